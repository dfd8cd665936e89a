//! Comparisons of synthetic runs: alarms where nothing changed, and changes that are found.

use rayon::prelude::*;
use results::compare::{CompareSpec, Question, compare};
use results::fixture;
use results::synthetic::{Host, Modes, Random};

/// Change that NEW has and BASE has not.
#[derive(Clone, Copy)]
enum Planted {
    Nothing,
    OneArm(f64),
    AllArms(f64),
}

/// A host, how its level goes from run to run, the spread with which one arm's ratio does, too, and the order of the runs.
#[derive(Clone, Copy)]
struct Case {
    host: Host,
    correlation: f64,
    wander: f64,
    in_turns: bool,
}

/// Counts over many pairs of sides: exits 1, 0 and 3, "all arms" judged slower or faster, and intervals of one arm and of
/// all arms that cover the truth.
#[derive(Clone, Copy, Default)]
struct Tally {
    exits: [u64; 3],
    moved: u64,
    arm: u64,
    all: u64,
}

fn one(case: &Case, runs: usize, planted: Planted, seed: u64) -> Tally {
    let template = fixture::record(1, 1, |_, _| 1000);
    let mut random = Random::new(seed);
    let (arm, all) = match planted {
        Planted::Nothing => (0.0, 0.0),
        Planted::OneArm(log) => (log, 0.0),
        Planted::AllArms(log) => (0.0, log),
    };
    let mut sides = [Vec::new(), Vec::new()];
    let ratios = Random::new(!seed).related(2 * runs, case.correlation);
    for (run, level) in random.related(2 * runs, case.correlation).into_iter().enumerate() {
        let side = if case.in_turns { run % 2 } else { run / runs };
        let new = if side == 1 { 1.0 } else { 0.0 };
        let truth = [0.15, 0.1 + arm * new + case.wander * ratios[run], 0.1, 0.0].map(|log| log + all * new);
        let turns = case.host.run_at(level, &truth, &mut random);
        sides[side].push(fixture::of_turns(&template, 100 + run as u64, &turns));
    }
    let [base, new] = &sides;
    let Ok(found) = compare(("base", base), ("new", new), &CompareSpec::default()) else { return Tally::default() };
    let mut tally = Tally::default();
    tally.exits[match found.exit {
        1 => 0,
        0 => 1,
        _ => 2,
    }] = 1;
    let row = |question, arm: &str| found.rows().find(|row| row.question == question && row.arm == arm);
    let covers = |question, arm: &str, log: f64| {
        let interval = row(question, arm).and_then(|row| row.change_interval);
        u64::from(interval.is_some_and(|one| one.low <= log.exp_m1() && log.exp_m1() <= one.high))
    };
    tally.moved = row(Question::AllArms, "all arms")
        .map_or(0, |row| u64::from(matches!(row.verdict.word(), "SLOWER" | "faster")));
    tally.arm = covers(Question::OneArm, "reuse", arm);
    tally.all = covers(Question::AllArms, "all arms", all + arm / 4.0);
    tally
}

fn cell(case: &Case, runs: usize, planted: Planted, pairs: u64) -> String {
    let all: Vec<Tally> = (0..pairs).into_par_iter().map(|seed| one(case, runs, planted, seed)).collect();
    let share = |pick: &dyn Fn(&Tally) -> u64| {
        let percent = all.iter().map(pick).sum::<u64>() as f64 / pairs as f64 * 100.0;
        format!("{percent:.1}").trim_end_matches(".0").to_owned()
    };
    let exits: Vec<String> = (0..3).map(|exit| share(&|tally| tally.exits[exit])).collect();
    let [moved, arm, all] = [share(&|one| one.moved), share(&|one| one.arm), share(&|one| one.all)];
    format!("{} ({moved}; {arm}, {all})", exits.join(" / "))
}

/// Prints exits 1 / 0 / 3 of so many pairs, for the hosts with `only` in their name, and in brackets how often "all arms"
/// is said to have moved, and the coverage of the intervals of one arm and of all arms.
pub(crate) fn print(pairs: u64, only: &str) {
    let full = Host { guests: 0.01, ..Host::default() };
    let hosts = [
        ("modes in time", full, 0.0),
        ("no modes", Host { modes: Modes::None, ..full }, 0.0),
        ("a mode for each turn", Host { modes: Modes::PerTurn, ..full }, 0.0),
        ("processes' layout 1 %", Host { processes: 0.01, ..full }, 0.0),
        ("processes' layout 3 %", Host { processes: 0.03, ..full }, 0.0),
        ("a ratio wanders by 1 %", full, 0.01),
        ("a ratio wanders by 2 %", full, 0.02),
    ];
    let five = Planted::OneArm(1.05_f64.ln());
    let planted = [
        ("A/A", Planted::Nothing, &[1, 2, 3, 4, 8][..]),
        ("one arm +5 %", five, &[1, 2, 3, 4, 8]),
        ("one arm +10 %", Planted::OneArm(1.1_f64.ln()), &[1, 8]),
        ("all arms +10 %", Planted::AllArms(1.1_f64.ln()), &[8]),
        ("all arms +50 %", Planted::AllArms(1.5_f64.ln()), &[1]),
    ];
    println!("exits 1 / 0 / 3 of {pairs} pairs (\"all arms\" moved; intervals of one arm and of all arms cover), %");
    println!("| 160 rounds, runs differ by 5 % | order | change | runs a side | |\n|---|---|---|---|---|");
    for (name, host, wander) in hosts {
        for (level, correlation) in [("independent", 0.0), ("AR 0.7", 0.7), ("AR 0.9", 0.9)] {
            for in_turns in [true, false] {
                let order = if in_turns { "in turns" } else { "one side after the other" };
                for (change, planted, runs) in planted {
                    let title = format!("{name}, {level} | {order} | {change}");
                    for runs in runs.iter().filter(|_| title.contains(only)) {
                        println!(
                            "| {title} | {runs} | {} |",
                            cell(&Case { host, correlation, wander, in_turns }, *runs, planted, pairs)
                        );
                    }
                }
            }
        }
    }
}
