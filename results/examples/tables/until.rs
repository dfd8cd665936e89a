//! Intervals of runs that end as soon as an interval is narrow enough.

use rayon::prelude::*;
use results::paired::{Pair, of_slices};
use results::synthetic::{Host, Modes, Random};

const TRUTH: f64 = 0.97;

/// The rounds of a run that looks after each guest, from `first` guests on, until all of its ratios are known to `wanted`; of its
/// ratios how many cover the truth. `None`: it was never sure.
fn run(host: &Host, first: usize, wanted: f64, seed: u64) -> Option<(usize, [bool; 3])> {
    let truth = [TRUTH.ln(), 0.0, 0.05];
    let arms = host.run(&truth, &mut Random::new(seed));
    let pairs: Vec<(Vec<Pair>, f64)> = [(0, 1), (0, 2), (1, 2)]
        .into_iter()
        .map(|(a, b): (usize, usize)| {
            let both = arms[a].iter().zip(&arms[b]);
            let pairs = (0..).zip(both).map(|(round, (a, b))| Pair::of_slices(round, a, b)).collect();
            (pairs, (truth[a] - truth[b]).exp())
        })
        .collect();
    (first..=host.rounds / host.rounds_per_guest).find_map(|guests| {
        let rounds = guests * host.rounds_per_guest;
        let mut covered = [false; 3];
        for ((pairs, truth), covered) in pairs.iter().zip(&mut covered) {
            let found = of_slices(&pairs[..rounds])?;
            found.half_width().filter(|half| *half <= wanted)?;
            *covered = found.interval.is_some_and(|one| one.low <= *truth && *truth <= one.high);
        }
        Some((rounds, covered))
    })
}

/// Prints the coverage at the end, and the rounds it took.
pub(crate) fn print(runs: u64) {
    let base = Host { rounds: 1200, ..Host::default() };
    let long = Host { rounds_per_guest: 20, ..base };
    let own = Host { rounds_per_guest: 1, rounds: 600, slice: 0.11, ..base };
    let hosts = [
        ("20 rounds a guest, layout 1 %", long),
        ("20 rounds a guest, layout 3 %", Host { guests: 0.03, rounds: 4800, ..long }),
        ("10 rounds a guest, layout 1 %", base),
        ("the same, no modes", Host { modes: Modes::None, ..base }),
        ("a guest for each round", own),
    ];
    println!(
        "coverage of 95 % intervals of runs that ended for --until-ci, %, (median of rounds, runs that were never sure)"
    );
    println!("| host | until | from 5 guests | from 10 | from 15 |\n|---|---|---|---|---|");
    for (name, host) in hosts {
        for wanted in [0.03, 0.02, 0.01] {
            let cells: Vec<String> = [5, 10, 15]
                .into_iter()
                .map(|first| {
                    let all: Vec<_> = (0..runs).into_par_iter().map(|seed| run(&host, first, wanted, seed)).collect();
                    let mut rounds: Vec<usize> = all.iter().flatten().map(|(rounds, _)| *rounds).collect();
                    rounds.sort_unstable();
                    let hits: usize =
                        all.iter().flatten().map(|(_, covered)| covered.iter().filter(|hit| **hit).count()).sum();
                    let sure = rounds.len().max(1);
                    let middle = rounds.get(rounds.len() / 2).copied().unwrap_or_default();
                    format!("{:.1} ({middle}, {})", hits as f64 / (3 * sure) as f64 * 100.0, all.len() - rounds.len())
                })
                .collect();
            println!("| {name} | {} % | {} |", wanted * 100.0, cells.join(" | "));
        }
    }
}
