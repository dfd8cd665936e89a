//! Rates at which the statistics are right, by synthetic hosts with a known truth: the tables of docs/evidence.md.
//!
//! `cargo run --release -p trials --example statistics [intervals|until|compare|wanders|history] [RUNS]`

use rayon::prelude::*;
use results::compare::{CompareSpec, Question, compare};
use results::paired::{Looks, Pair, Ratio, median_interval, of_turns};
use results::stats::change_points::{Rules, find, trend};
use results::stats::interval::Interval;
use results::stats::median;
use trials::fixture;
use trials::synthetic::{Host, Modes, Random, Turn, pair};

/// The ratio of the first arm to the second.
const TRUTH: f64 = 0.97;
/// Rounds of a run that is long enough for its median to be the host's.
const LONG: usize = 400_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs = arguments.get(1).and_then(|runs| runs.parse().ok()).unwrap_or(1000);
    let all = [
        ("intervals", intervals as fn(u64)),
        ("until", until),
        ("compare", comparisons),
        ("wanders", wanders),
        ("history", histories),
    ];
    for (_, print) in all.iter().filter(|(name, _)| arguments.first().is_none_or(|asked| asked == name)) {
        print(runs);
    }
}

/// Draws something with so many seeds.
fn drawn<T: Send>(runs: u64, of: impl Fn(u64) -> T + Send + Sync) -> Vec<T> {
    (0..runs).into_par_iter().map(of).collect()
}

/// Returns the share of those that are so, %.
fn share<T>(all: &[T], is: impl Fn(&T) -> bool) -> f64 {
    all.iter().filter(|one| is(one)).count() as f64 / all.len() as f64 * 100.0
}

fn covers(interval: Option<Interval>, truth: f64) -> bool {
    interval.is_some_and(|one| one.low <= truth && truth <= one.high)
}

/// Says how many intervals cover the truth, %, and half of their median width, % of it.
fn shown(found: &[Option<Interval>], truth: f64) -> String {
    let mut widths: Vec<f64> = found.iter().flatten().map(|one| (one.high - one.low) / 2.0 / truth * 100.0).collect();
    widths.sort_by(f64::total_cmp);
    format!("{:5.1} ± {:4.1}", share(found, |one| covers(*one, truth)), widths[widths.len() / 2])
}

/// Pairs the rounds of two arms.
fn paired(a: &[Turn], b: &[Turn]) -> Vec<Pair> {
    (0..).zip(a.iter().zip(b)).map(|(round, (a, b))| pair(round, a, b)).collect()
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
        let ratios = drawn(runs, |seed| {
            let arms = host.run(&[TRUTH.ln(), 0.0, 0.05], &mut Random::new(seed));
            of_turns(&paired(&arms[0], &arms[1])).and_then(|Ratio { interval, .. }| interval)
        });
        let alone = Host { drift: 0.0, ..host };
        let truth = median(&times(&Host { rounds: LONG, ..alone }, 1 << 40).0).unwrap_or_default();
        let levels = drawn(runs, |seed| {
            let (values, guests) = times(&alone, seed);
            median_interval(&values, &guests)
        });
        println!("| {name} | {} | {} |", shown(&ratios, TRUTH), shown(&levels, truth));
    }
}

/// Draws a run that ends, as `--until-ci` does, when all of its ratios are known to `wanted`; whether each covers the truth.
/// `None`: it was never sure.
fn ended(host: &Host, wanted: f64, seed: u64) -> Option<Vec<bool>> {
    let truth = [TRUTH.ln(), 0.0, 0.05];
    let arms = host.run(&truth, &mut Random::new(seed));
    let pairs = [(0, 1), (0, 2), (1, 2)]
        .map(|(a, b): (usize, usize)| (paired(&arms[a], &arms[b]), (truth[a] - truth[b]).exp()));
    let found = |guests: usize| -> Vec<Ratio> {
        pairs.iter().filter_map(|(pairs, _)| of_turns(&pairs[..guests * host.rounds_per_guest])).collect()
    };
    let sure = |guests| found(guests).iter().all(|one| one.half_width().is_some_and(|half| half <= wanted));
    let mut looks = Looks::default();
    let guests = (1..=host.rounds / host.rounds_per_guest).find(|&guests| looks.are_enough(|| sure(guests)))?;
    Some(found(guests).into_iter().zip(&pairs).map(|(one, (_, truth))| covers(one.interval, *truth)).collect())
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
                drawn(runs, |seed| ended(&host, wanted, seed)).into_iter().flatten().flatten().collect();
            println!("| {name} | {} % | {:.1} |", wanted * 100.0, share(&all, |hit| *hit));
        }
    }
}

/// A host, how its level and one arm's ratio go from run to run, and whether sides take turns.
#[derive(Clone, Copy)]
struct Case {
    host: Host,
    correlation: f64,
    wander: f64,
    in_turns: bool,
}

/// Returns the exit of a comparison of so many runs a side, and whether the interval of the one arm covers the truth. `planted` is
/// what NEW has in one arm that BASE has not, or in all.
fn compared(case: &Case, runs: usize, planted: f64, of_all: bool, seed: u64) -> Option<(u8, bool)> {
    let template = fixture::record(1, 1, |_, _| 1000);
    let mut random = Random::new(seed);
    let mut sides = [Vec::new(), Vec::new()];
    let ratios = Random::new(!seed).related(2 * runs, case.correlation);
    for (run, level) in random.related(2 * runs, case.correlation).into_iter().enumerate() {
        let side = if case.in_turns { run % 2 } else { run / runs };
        let (one, all) = match (side, of_all) {
            (0, _) => (0.0, 0.0),
            (_, false) => (planted, 0.0),
            (_, true) => (0.0, planted),
        };
        let truth = [0.15 + all, 0.1 + all + one + case.wander * ratios[run], 0.1 + all, all];
        let turns = case.host.run_at(level, &truth, &mut random);
        sides[side].push(fixture::of_turns(&template, 100 + run as u64, &turns));
    }
    let [base, new] = &sides;
    let found = compare(("base", base), ("new", new), &CompareSpec::default()).ok()?;
    let (question, arm) = if of_all { (Question::AllArms, "all arms") } else { (Question::OneArm, "reuse") };
    let row = found.rows().find(|row| row.question == question && row.arm == arm);
    Some((found.exit, covers(row.and_then(|row| row.change_interval), planted.exp_m1())))
}

/// Returns the exits of so many pairs, and the coverage, as text.
fn cell(case: &Case, runs: usize, (planted, of_all): (f64, bool), pairs: u64) -> String {
    let all: Vec<_> = drawn(pairs, |seed| compared(case, runs, planted, of_all, seed)).into_iter().flatten().collect();
    let exits = [1, 0, 3].map(|exit| format!("{:.0}", share(&all, |one| one.0 == exit)));
    format!("{} ({:.0})", exits.join(" / "), share(&all, |one| one.1))
}

/// Prints exits 1 / 0 / 3 of so many pairs by noise, order and runs a side, and the coverage of the one interval.
fn comparisons(pairs: u64) {
    let plain = Host { guests: 0.01, modes: Modes::None, ..Host::default() };
    let noises = [
        ("iid", plain, 0.0, 0.0),
        ("modes", Host { modes: Modes::InTime, ..plain }, 0.0, 0.0),
        ("process 1 %", Host { processes: 0.01, ..plain }, 0.0, 0.0),
        ("process 2 %", Host { processes: 0.02, ..plain }, 0.0, 0.0),
        ("a ratio wanders, AR .9, 2 %", plain, 0.9, 0.02),
        ("all of it", Host { processes: 0.01, modes: Modes::InTime, ..plain }, 0.7, 0.005),
    ];
    let orders = [(1, true), (2, true), (3, true), (4, true), (8, true), (8, false)];
    let planted =
        [(0.0, false), (1.03_f64.ln(), false), (1.05_f64.ln(), false), (1.1_f64.ln(), false), (1.1_f64.ln(), true)];
    println!("| exits 1 / 0 / 3 (covered), % | A/A | +3 % | +5 % | +10 % | all +10 % |\n|---|---|---|---|---|---|");
    for (runs, in_turns) in orders {
        for (name, host, correlation, wander) in noises {
            let case = Case { host, correlation, wander, in_turns };
            let cells = planted.map(|planted| cell(&case, runs, planted, pairs));
            let order = if in_turns { "in turns" } else { "one after the other" };
            println!("| {runs} a side, {order}: {name} | {} |", cells.join(" | "));
        }
    }
}

/// Prints the same of ten runs a side, one after the other, whose ratio wanders.
fn wanders(pairs: u64) {
    let host = Host { guests: 0.01, modes: Modes::None, ..Host::default() };
    println!("| exits 1 / 0 / 3 (covered), % | A/A | +11 % | +17 % |\n|---|---|---|---|");
    for (correlation, wander) in [(0.7, 0.02), (0.7, 0.04), (0.9, 0.02), (0.9, 0.04)] {
        let case = Case { host, correlation, wander, in_turns: false };
        let cells = [0.0, 1.11_f64.ln(), 1.17_f64.ln()].map(|planted| cell(&case, 10, (planted, false), pairs));
        println!("| 10 a side, one after the other: AR {correlation}, {} % | {} |", wander * 100.0, cells.join(" | "));
    }
}

/// Prints how many of so many series of 50 runs have changes, and how many the right first one.
fn histories(count: u64) {
    // Spread, correlation, share of outliers; what a series has from a run on, or from 0 to its last one, beside its noise.
    let cases = [
        ("no change, 2 %", 0.02, 0.0, 0.0, 50, 0.0),
        ("no change, 2 %, outliers", 0.02, 0.0, 0.02, 50, 0.0),
        ("no change, 3 %, AR .7", 0.03, 0.7, 0.0, 50, 0.0),
        ("no change, 3 %, AR .7, outliers", 0.03, 0.7, 0.02, 50, 0.0),
        ("+5 % at 25, 1 %", 0.01, 0.0, 0.0, 25, 0.05),
        ("+6 % at 25, 1 %", 0.01, 0.0, 0.0, 25, 0.06),
        ("+10 % at 47, 1 %", 0.01, 0.0, 0.0, 47, 0.1),
        ("+10 % at 25, 1 %, AR .7", 0.01, 0.7, 0.0, 25, 0.1),
        ("+10 % at 45, 1 %, AR .7", 0.01, 0.7, 0.0, 45, 0.1),
        ("creep of 10 %, 1 %", 0.01, 0.0, 0.0, 0, 0.1),
        ("one high last run, 1 %", 0.01, 0.0, 0.0, 49, 0.2),
    ];
    println!("| series of 50, % with | any change | its place | a trend |\n|---|---|---|---|");
    for (name, spread, correlation, outliers, from, by) in cases {
        let shape = |run: usize| match from {
            0 => by * run as f64 / 49.0,
            _ if run >= from => by,
            _ => 0.0,
        };
        let found = drawn(count, |seed| {
            let mut random = Random::new(seed);
            let noise = random.related(50, correlation);
            let far = |random: &mut Random| if random.uniform() < outliers { 0.3 } else { 0.0 };
            let series: Vec<f64> =
                (0..50).map(|run| 1.0 + shape(run) + spread * noise[run] + far(&mut random)).collect();
            let rules = Rules::default();
            let (trend, steps) = trend(&series, &rules, 12, find(&series, &rules, 12));
            let is_right = (1..50).contains(&from) && steps.iter().any(|step| step.index.abs_diff(from) < 2);
            (!steps.is_empty(), is_right, trend.is_some())
        });
        let [any, right, trends] = [share(&found, |one| one.0), share(&found, |one| one.1), share(&found, |one| one.2)];
        println!("| {name} | {any:.1} | {right:.1} | {trends:.1} |");
    }
}
