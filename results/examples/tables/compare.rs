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

/// Counts over many pairs of sides: exits 1, 0 and 3, and intervals of one arm and of all arms that cover the truth.
#[derive(Clone, Copy, Default)]
struct Tally {
    exits: [u64; 3],
    arm: u64,
    all: u64,
}

fn one(host: &Host, runs: u64, planted: Planted, seed: u64) -> Tally {
    let template = fixture::record(1, 1, |_, _| 1000);
    let mut random = Random::new(seed);
    let (arm, all) = match planted {
        Planted::Nothing => (0.0, 0.0),
        Planted::OneArm(log) => (log, 0.0),
        Planted::AllArms(log) => (0.0, log),
    };
    let truth = |new: f64| [0.15, 0.1 + arm * new, 0.1, 0.0].map(|log| log + all * new);
    let (mut base, mut new) = (Vec::new(), Vec::new());
    for run in 0..runs {
        base.push(fixture::of_turns(&template, 100 + 2 * run, &host.run(&truth(0.0), &mut random)));
        new.push(fixture::of_turns(&template, 101 + 2 * run, &host.run(&truth(1.0), &mut random)));
    }
    let Ok(found) = compare(("base", &base), ("new", &new), &CompareSpec::default()) else { return Tally::default() };
    let mut tally = Tally::default();
    tally.exits[match found.exit {
        1 => 0,
        0 => 1,
        _ => 2,
    }] = 1;
    let covers = |question, arm: &str, log: f64| {
        let row = found.rows().find(|row| row.question == question && row.arm == arm);
        let interval = row.and_then(|row| row.change_interval);
        u64::from(interval.is_some_and(|one| one.low <= log.exp_m1() && log.exp_m1() <= one.high))
    };
    tally.arm = covers(Question::OneArm, "reuse", arm);
    tally.all = covers(Question::AllArms, "all arms", all + arm / 4.0);
    tally
}

fn cell(host: &Host, runs: u64, planted: Planted, pairs: u64) -> String {
    let all: Vec<Tally> = (0..pairs).into_par_iter().map(|seed| one(host, runs, planted, seed)).collect();
    let share = |pick: &dyn Fn(&Tally) -> u64| {
        let percent = all.iter().map(pick).sum::<u64>() as f64 / pairs as f64 * 100.0;
        format!("{percent:.1}").trim_end_matches(".0").to_owned()
    };
    let exits: Vec<String> = (0..3).map(|exit| share(&|tally| tally.exits[exit])).collect();
    format!("{} ({}, {})", exits.join(" / "), share(&|tally| tally.arm), share(&|tally| tally.all))
}

/// Prints exits 1 / 0 / 3 of so many pairs, for the hosts with `only` in their name, and in brackets the coverage of
/// the intervals of one arm and of all arms.
pub(crate) fn print(pairs: u64, only: &str) {
    let ten = Host { rounds: 10, rounds_per_guest: 1, turn: 0.11, guests: 0.01, ..Host::default() };
    let full = Host { guests: 0.01, ..Host::default() };
    let hosts = [
        ("10 rounds, no modes", Host { modes: Modes::None, ..ten }),
        ("10 rounds, modes in time", ten),
        ("10 rounds, a mode for each guest", Host { modes: Modes::PerTurn, ..ten }),
        ("160 rounds, no modes", Host { modes: Modes::None, ..full }),
        ("160 rounds, modes in time", full),
        ("160 rounds, a mode for each turn", Host { modes: Modes::PerTurn, ..full }),
        ("160 rounds, modes in time, processes' layout 1 %", Host { processes: 0.01, ..full }),
        ("160 rounds, modes in time, processes' layout 3 %", Host { processes: 0.03, ..full }),
    ];
    println!("exits 1 / 0 / 3 of {pairs} pairs, %, and coverage of 95 % intervals (one arm, all arms), %");
    println!(
        "| runs | host, between-run drift 5 % | A/A | one arm +10 % | one arm +5 % | all arms +10 % |\n|---|---|---|---|---|---|"
    );
    for (name, host) in hosts.into_iter().filter(|(name, _)| name.contains(only)) {
        for runs in [1, 8] {
            let planted = [
                Planted::Nothing,
                Planted::OneArm(1.1_f64.ln()),
                Planted::OneArm(1.05_f64.ln()),
                Planted::AllArms(1.1_f64.ln()),
            ];
            let cells = planted.map(|planted| cell(&host, runs, planted, pairs));
            println!("| {runs} | {name} | {} |", cells.join(" | "));
        }
    }
}
