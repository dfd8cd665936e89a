//! Intervals of the ratio of two arms within a run, and which centre is the sharpest.

use rayon::prelude::*;
use results::paired::{Pair, Ratio, groups, of_turns};
use results::stats::interval::Interval;
use results::stats::{jackknife, location, median};
use results::synthetic::{Host, Modes, Random};

const TRUTH: f64 = 0.97;

fn rounds(host: &Host, seed: u64) -> Vec<Pair> {
    let arms = host.run(&[TRUTH.ln(), 0.0, 0.05], &mut Random::new(seed));
    (0..).zip(arms[0].iter().zip(&arms[1])).map(|(round, (a, b))| Pair::of_turns(round, a, b)).collect()
}

fn hodges_lehmann(rounds: &[Pair]) -> Option<f64> {
    location::hodges_lehmann(&rounds.iter().map(|pair| pair.log).collect::<Vec<_>>())
}

fn middle(rounds: &[Pair]) -> Option<f64> {
    median(&rounds.iter().map(|pair| pair.log).collect::<Vec<_>>())
}

fn mean(rounds: &[Pair]) -> Option<f64> {
    (!rounds.is_empty()).then(|| rounds.iter().map(|pair| pair.log).sum::<f64>() / rounds.len() as f64)
}

fn by(rounds: &[Pair], centre: impl Fn(&[Pair]) -> Option<f64>) -> Option<Interval> {
    let groups = groups::groups(&rounds.iter().map(|pair| pair.guest).collect::<Vec<_>>());
    let found = jackknife::over_groups(rounds, &groups.group, centre)?.interval();
    Some(Interval { low: found.low.exp(), high: found.high.exp() })
}

fn shown(found: &[Option<Interval>]) -> String {
    let covered = found.iter().flatten().filter(|one| one.low <= TRUTH && TRUTH <= one.high).count();
    let mut widths: Vec<f64> = found.iter().flatten().map(|one| ((one.high / one.low).sqrt() - 1.0) * 100.0).collect();
    widths.sort_by(f64::total_cmp);
    format!("{:5.1} ± {:4.1}", covered as f64 / found.len() as f64 * 100.0, widths[widths.len() / 2])
}

/// Prints coverage and half-width of the interval by host, for each centre.
pub(crate) fn print(runs: u64) {
    let base = Host { guests: 0.0, ..Host::default() };
    let own = Host { rounds_per_guest: 1, ..base };
    let hosts = [
        ("160 rounds, 16 guests, modes in time", base),
        ("the same, guests' layout 1 %", Host { guests: 0.01, ..base }),
        ("the same, guests' layout 3 %", Host { guests: 0.03, ..base }),
        ("160 rounds, 8 guests, layout 3 %", Host { rounds_per_guest: 20, guests: 0.03, ..base }),
        ("160 rounds, 2 guests, layout 1 %", Host { rounds_per_guest: 80, guests: 0.01, ..base }),
        ("160 rounds, 2 guests, layout 3 %", Host { rounds_per_guest: 80, guests: 0.03, ..base }),
        ("160 rounds, 160 guests, turns of 110 ms", Host { turn: 0.11, ..own }),
        ("no modes", Host { modes: Modes::None, ..base }),
        ("a mode for each turn", Host { modes: Modes::PerTurn, ..base }),
        ("a mode for each turn, probed", Host { modes: Modes::PerTurn, probe: Some(0.03), ..base }),
        ("modes in time, probed", Host { probe: Some(0.03), ..base }),
        ("40 rounds, 40 guests", Host { rounds: 40, turn: 0.11, ..own }),
        ("10 rounds, 10 guests of 1 s", Host { rounds: 10, turn: 1.0, ..own }),
        ("10 rounds, a mode for each guest", Host { rounds: 10, modes: Modes::PerTurn, ..own }),
    ];
    println!("coverage of 95 % intervals, %, and half of their width, % (median of {runs} runs)");
    println!("| host | `paired` | median | Hodges-Lehmann | mean |\n|---|---|---|---|---|");
    for (name, host) in hosts {
        let all: Vec<[Option<Interval>; 4]> = (0..runs)
            .into_par_iter()
            .map(|seed| {
                let rounds = rounds(&host, seed);
                let own = of_turns(&rounds).and_then(|Ratio { interval, .. }| interval);
                [own, by(&rounds, middle), by(&rounds, hodges_lehmann), by(&rounds, mean)]
            })
            .collect();
        let cells: Vec<String> = (0..4).map(|i| shown(&all.iter().map(|one| one[i]).collect::<Vec<_>>())).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}
