//! Intervals of an arm's p50 within a run.

use rayon::prelude::*;
use results::paired::median_interval;
use results::stats::interval::Interval;
use results::stats::median;
use results::synthetic::{Host, Modes, Random};

/// Rounds of a run that is long enough for its median to be the host's.
const LONG: usize = 400_000;

fn run(host: &Host, seed: u64) -> (Vec<f64>, Vec<u64>) {
    let arms = host.run(&[0.0, 0.0, 0.0, 0.0], &mut Random::new(seed));
    arms[0].iter().map(|turn| (turn.log.exp(), turn.guest)).unzip()
}

fn shown(found: &[Option<Interval>], truth: f64) -> String {
    let covered = found.iter().flatten().filter(|one| one.low <= truth && truth <= one.high).count();
    let mut widths: Vec<f64> = found.iter().flatten().map(|one| (one.high - one.low) / 2.0 / truth * 100.0).collect();
    widths.sort_by(f64::total_cmp);
    format!("{:5.1} ± {:4.1}", covered as f64 / found.len() as f64 * 100.0, widths[widths.len() / 2])
}

/// Prints coverage and half-width of the interval by host.
pub(crate) fn print(runs: u64) {
    let base = Host { guests: 0.0, drift: 0.0, ..Host::default() };
    let own = Host { rounds_per_guest: 1, ..base };
    let hosts = [
        ("160 rounds, 16 guests, modes in time", base),
        ("the same, guests' layout 1 %", Host { guests: 0.01, ..base }),
        ("the same, guests' layout 3 %", Host { guests: 0.03, ..base }),
        ("160 rounds, 8 guests, layout 3 %", Host { rounds_per_guest: 20, guests: 0.03, ..base }),
        ("160 rounds, 2 guests, layout 1 %", Host { rounds_per_guest: 80, guests: 0.01, ..base }),
        ("160 rounds, 160 guests, turns of 110 ms", Host { turn: 0.11, ..own }),
        ("no modes", Host { modes: Modes::None, ..base }),
        ("a mode for each turn", Host { modes: Modes::PerTurn, ..base }),
        ("40 rounds, 40 guests", Host { rounds: 40, turn: 0.11, ..own }),
        ("10 rounds, 10 guests of 1 s", Host { rounds: 10, turn: 1.0, ..own }),
        ("10 rounds, no modes", Host { rounds: 10, modes: Modes::None, ..own }),
        ("5 rounds, no modes", Host { rounds: 5, modes: Modes::None, ..own }),
    ];
    println!("coverage of 95 % intervals of p50, %, and half of their width, % (median of {runs} runs)");
    println!("| host | p50 |\n|---|---|");
    for (name, host) in hosts {
        let (long, _) = run(&Host { rounds: LONG, ..host }, 1 << 40);
        let truth = median(&long).unwrap_or_default();
        let all: Vec<Option<Interval>> = (0..runs)
            .into_par_iter()
            .map(|seed| {
                let (values, guests) = run(&host, seed);
                median_interval(&values, &guests)
            })
            .collect();
        println!("| {name} | {} |", shown(&all, truth));
    }
}
