//! Rates at which the statistics are right, by synthetic hosts with a known truth: the tables of docs/validation.md and
//! docs/comparing.md.
//!
//! `cargo run --release -p trials --example statistics [intervals|until|compare] [RUNS]`

use std::process::ExitCode;

use rayon::prelude::*;
use results::compare::{CompareSpec, Question, compare};
use results::paired::{Looks, Pair, Ratio, median_interval, of_turns};
use results::stats::interval::Interval;
use results::stats::median;
use trials::fixture;
use trials::synthetic::{Host, Modes, Random, pair};

/// The ratio of the first arm to the second.
const TRUTH: f64 = 0.97;
/// Rounds of a run that is long enough for its median to be the host's.
const LONG: usize = 400_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs = arguments.get(1).and_then(|runs| runs.parse().ok()).unwrap_or(1000);
    for (name, print) in [("intervals", intervals as fn(u64)), ("until", until), ("compare", comparisons)] {
        if arguments.first().is_none_or(|asked| asked == name) {
            print(runs);
        }
    }
    ExitCode::SUCCESS
}

/// Says how many intervals cover the truth, %, and half of their median width, % of it.
fn shown(found: &[Option<Interval>], truth: f64) -> String {
    let covered = found.iter().flatten().filter(|one| one.low <= truth && truth <= one.high).count();
    let mut widths: Vec<f64> = found.iter().flatten().map(|one| (one.high - one.low) / 2.0 / truth * 100.0).collect();
    widths.sort_by(f64::total_cmp);
    format!("{:5.1} ± {:4.1}", covered as f64 / found.len() as f64 * 100.0, widths[widths.len() / 2])
}

/// Draws the rounds of the first two of three arms.
fn rounds(host: &Host, seed: u64) -> Vec<Pair> {
    let arms = host.run(&[TRUTH.ln(), 0.0, 0.05], &mut Random::new(seed));
    (0..).zip(arms[0].iter().zip(&arms[1])).map(|(round, (a, b))| pair(round, a, b)).collect()
}

/// Draws the times of an arm, and their guests.
fn times(host: &Host, seed: u64) -> (Vec<f64>, Vec<u64>) {
    let arms = host.run(&[0.0, 0.0, 0.0, 0.0], &mut Random::new(seed));
    arms[0].iter().map(|turn| (turn.log.exp(), turn.guest)).unzip()
}

/// Prints coverage and half-width of the intervals of a ratio and of an arm's p50, by host.
fn intervals(runs: u64) {
    let base = Host { guests: 0.0, ..Host::default() };
    let hosts = [
        ("16 guests, modes in time", base),
        ("layout 3 %", Host { guests: 0.03, ..base }),
        ("8 guests, layout 3 %", Host { rounds_per_guest: 20, guests: 0.03, ..base }),
        ("2 guests, layout 1 %", Host { rounds_per_guest: 80, guests: 0.01, ..base }),
        ("2 guests, layout 3 %", Host { rounds_per_guest: 80, guests: 0.03, ..base }),
        ("10 rounds, 10 guests of 1 s", Host { rounds: 10, turn: 1.0, rounds_per_guest: 1, ..base }),
    ];
    println!("| 160 rounds | ratio | p50 |\n|---|---|---|");
    for (name, host) in hosts {
        let of = |seed| of_turns(&rounds(&host, seed)).and_then(|Ratio { interval, .. }| interval);
        let ratios: Vec<Option<Interval>> = (0..runs).into_par_iter().map(of).collect();
        let alone = Host { drift: 0.0, ..host };
        let truth = median(&times(&Host { rounds: LONG, ..alone }, 1 << 40).0).unwrap_or_default();
        let of = |seed| {
            let (values, guests) = times(&alone, seed);
            median_interval(&values, &guests)
        };
        let levels: Vec<Option<Interval>> = (0..runs).into_par_iter().map(of).collect();
        println!("| {name} | {} | {} |", shown(&ratios, TRUTH), shown(&levels, truth));
    }
}

/// Draws a run that ends, as `--until-ci` does, when all of its ratios are known to `wanted`; whether each covers the truth.
/// `None`: it was never sure.
fn ended(host: &Host, wanted: f64, seed: u64) -> Option<Vec<bool>> {
    let truth = [TRUTH.ln(), 0.0, 0.05];
    let arms = host.run(&truth, &mut Random::new(seed));
    let pairs = [(0, 1), (0, 2), (1, 2)].map(|(a, b): (usize, usize)| {
        let both = arms[a].iter().zip(&arms[b]);
        let pairs: Vec<Pair> = (0..).zip(both).map(|(round, (a, b))| pair(round, a, b)).collect();
        (pairs, (truth[a] - truth[b]).exp())
    });
    let found = |guests: usize| -> Vec<Ratio> {
        pairs.iter().filter_map(|(pairs, _)| of_turns(&pairs[..guests * host.rounds_per_guest])).collect()
    };
    let sure = |guests| found(guests).iter().all(|one| one.half_width().is_some_and(|half| half <= wanted));
    let mut looks = Looks::default();
    let guests = (1..=host.rounds / host.rounds_per_guest).find(|&guests| looks.are_enough(|| sure(guests)))?;
    let covers =
        |(one, (_, truth)): (Ratio, &(_, f64))| one.interval.is_some_and(|one| one.low <= *truth && *truth <= one.high);
    Some(found(guests).into_iter().zip(&pairs).map(covers).collect())
}

/// Prints the coverage of runs that ended as soon as their intervals were narrow enough.
fn until(runs: u64) {
    let base = Host { rounds: 1200, ..Host::default() };
    let long = Host { rounds_per_guest: 20, ..base };
    let hosts = [
        ("20 rounds a guest, layout 1 %", long),
        ("20 rounds a guest, layout 3 %", Host { guests: 0.03, rounds: 4800, ..long }),
        ("10 rounds a guest, layout 1 %", base),
        ("the same, no modes", Host { modes: Modes::None, ..base }),
        ("a guest for each round", Host { rounds_per_guest: 1, rounds: 600, turn: 0.11, ..base }),
    ];
    println!("| host | until | covered, % |\n|---|---|---|");
    for (name, host) in hosts {
        for wanted in [0.02, 0.01] {
            let all: Vec<bool> =
                (0..runs).into_par_iter().filter_map(|seed| ended(&host, wanted, seed)).flatten().collect();
            let hits = all.iter().filter(|hit| **hit).count();
            println!("| {name} | {} % | {:.1} |", wanted * 100.0, hits as f64 / all.len().max(1) as f64 * 100.0);
        }
    }
}

/// A host, how its level goes from run to run, the spread with which one arm's ratio does, too, and what NEW has in one arm
/// that BASE has not.
#[derive(Clone, Copy)]
struct Case {
    host: Host,
    correlation: f64,
    wander: f64,
    planted: f64,
}

/// Returns the exit of a comparison of so many runs a side, and whether the interval of the one arm covers the truth.
fn compared(case: &Case, runs: usize, seed: u64) -> Option<(u8, bool)> {
    let template = fixture::record(1, 1, |_, _| 1000);
    let mut random = Random::new(seed);
    let mut sides = [Vec::new(), Vec::new()];
    let ratios = Random::new(!seed).related(2 * runs, case.correlation);
    for (run, level) in random.related(2 * runs, case.correlation).into_iter().enumerate() {
        let planted = if run < runs { 0.0 } else { case.planted };
        let truth = [0.15, 0.1 + planted + case.wander * ratios[run], 0.1, 0.0];
        let turns = case.host.run_at(level, &truth, &mut random);
        sides[run / runs].push(fixture::of_turns(&template, 100 + run as u64, &turns));
    }
    let [base, new] = &sides;
    let found = compare(("base", base), ("new", new), &CompareSpec::default()).ok()?;
    let row = found.rows().find(|row| row.question == Question::OneArm && row.arm == "reuse");
    let truth = case.planted.exp_m1();
    let covers = row.and_then(|row| row.change_interval).is_some_and(|one| one.low <= truth && truth <= one.high);
    Some((found.exit, covers))
}

/// Prints exits 1 / 0 / 3 of so many pairs by runs a side, one side after the other, and the coverage of one arm's interval.
fn comparisons(pairs: u64) {
    let host = Host { guests: 0.01, ..Host::default() };
    let same = Case { host, correlation: 0.0, wander: 0.0, planted: 0.0 };
    let cases = [
        ("A/A, AR 0.9, a ratio's, too (1 %)", Case { correlation: 0.9, wander: 0.01, ..same }),
        ("A/A, layouts of processes 3 %", Case { host: Host { processes: 0.03, ..host }, ..same }),
        ("one arm +5 %", Case { planted: 1.05_f64.ln(), ..same }),
        ("one arm +10 %", Case { planted: 1.1_f64.ln(), ..same }),
    ];
    println!("| exits 1 / 0 / 3 (covered), % | 1 | 2 | 3 | 4 | 8 |\n|---|---|---|---|---|---|");
    for (name, case) in cases {
        let cells = [1, 2, 3, 4, 8].map(|runs| {
            let all: Vec<(u8, bool)> =
                (0..pairs).into_par_iter().filter_map(|seed| compared(&case, runs, seed)).collect();
            let share = |is: &dyn Fn(&(u8, bool)) -> bool| {
                all.iter().filter(|one| is(one)).count() as f64 / all.len() as f64 * 100.0
            };
            let exits = [1, 0, 3].map(|exit| format!("{:.0}", share(&|one| one.0 == exit)));
            format!("{} ({:.0})", exits.join(" / "), share(&|one| one.1))
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
}
