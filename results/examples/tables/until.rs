//! Intervals of runs that end as soon as an interval is narrow enough.

use rayon::prelude::*;
use results::paired::{Looks, Pair, Ratio, of_turns};
use results::synthetic::{Host, Modes, Random};

const TRUTH: f64 = 0.97;

/// When a run ends.
#[derive(Clone, Copy)]
enum Rule {
    /// At the first good look; there is one after each guest from so many on.
    Each(usize),
    /// As the tool does.
    Tool,
}

/// Draws the rounds of a run that ends when all of its ratios are known to `wanted`; of its ratios which cover the
/// truth. `None`: it was never sure.
fn run(host: &Host, rule: Rule, wanted: f64, seed: u64) -> Option<(usize, [bool; 3])> {
    let truth = [TRUTH.ln(), 0.0, 0.05];
    let arms = host.run(&truth, &mut Random::new(seed));
    let pairs: Vec<(Vec<Pair>, f64)> = [(0, 1), (0, 2), (1, 2)]
        .into_iter()
        .map(|(a, b): (usize, usize)| {
            let both = arms[a].iter().zip(&arms[b]);
            let pairs = (0..).zip(both).map(|(round, (a, b))| Pair::of_turns(round, a, b)).collect();
            (pairs, (truth[a] - truth[b]).exp())
        })
        .collect();
    let found = |guests: usize| -> Vec<Ratio> {
        pairs.iter().filter_map(|(pairs, _)| of_turns(&pairs[..guests * host.rounds_per_guest])).collect()
    };
    let sure = |guests| found(guests).iter().all(|one| one.half_width().is_some_and(|half| half <= wanted));
    let mut looks = Looks::default();
    let guests = (1..=host.rounds / host.rounds_per_guest).find(|&guests| match rule {
        Rule::Each(first) => guests >= first && sure(guests),
        Rule::Tool => looks.are_enough(|| sure(guests)),
    })?;
    let covers = |(one, (_, truth)): (&Ratio, &(Vec<Pair>, f64))| {
        one.interval.is_some_and(|one| one.low <= *truth && *truth <= one.high)
    };
    let covered: Vec<bool> = found(guests).iter().zip(&pairs).map(covers).collect();
    Some((guests * host.rounds_per_guest, covered.try_into().ok()?))
}

/// Prints the coverage at the end, and the rounds it took.
pub(crate) fn print(runs: u64) {
    let base = Host { rounds: 1200, ..Host::default() };
    let long = Host { rounds_per_guest: 20, ..base };
    let own = Host { rounds_per_guest: 1, rounds: 600, turn: 0.11, ..base };
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
    println!(
        "| host | until | after each guest from 5 on | from 10 on | two looks in a row from 10 on |\n|---|---|---|---|---|"
    );
    for (name, host) in hosts {
        for wanted in [0.02, 0.01] {
            let cells: Vec<String> = [Rule::Each(5), Rule::Each(10), Rule::Tool]
                .into_iter()
                .map(|rule| {
                    let all: Vec<_> = (0..runs).into_par_iter().map(|seed| run(&host, rule, wanted, seed)).collect();
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
