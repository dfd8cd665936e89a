//! Distance of NEW from BASE: one arm against the reference arm, and the geometric mean of all arms. A run is one number.
//!
//! | runs a side | one arm against the reference | geomean |
//! |---|---|---|
//! | 8 and more, in turns | pairs of neighbouring runs, as blocks | pairs likewise |
//! | 8 and more, else | least squares of runs whose neighbours are alike | not judged: the host wanders as much |
//! | 5 and more turns of `ab` | pairs of turns, as blocks, by their times | pairs likewise |
//! | fewer | the rounds, and how runs differ: as they show, pooled with [`BETWEEN_RUNS`] | not judged, but for simulations |
//!
//! Counts that do not repeat go by the last row, however many the runs or turns.

use std::collections::BTreeMap;

use super::group::{Both, MIN_RUNS, Pair};
use super::sample::{Run, Sample};
use crate::paired::{BETWEEN_RUNS, MIN_ROUNDS, centre, log};
use crate::stats::jackknife::{Estimate, known};
use crate::stats::{median, related, trimmed};

/// Share of the runs that must have a neighbour of the other side.
const BLOCKED: f64 = 0.8;

/// A run's start, and its logarithm with the error that its rounds show.
pub(super) type Level = (u64, Estimate);

/// A change and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// Logarithm of NEW over BASE.
    pub(super) log: Estimate,
    /// Logarithm of BASE.
    pub(super) base: f64,
    /// Pairs of neighbouring runs; 0: runs were not taken in turns.
    pub(super) blocks: usize,
}

/// Returns the change of independent blocks with these logarithms of NEW over BASE.
pub(super) fn of_blocks(logs: &[f64], base: f64) -> Option<Change> {
    Some(Change { log: trimmed::over_blocks(logs)?, base, blocks: logs.len() })
}

/// Returns all runs in order of time, each with its side and its logarithm.
fn in_order(sides: &Both<Vec<Level>>) -> Vec<(u64, usize, f64)> {
    let of = |side: usize| sides[side].iter().map(move |(at, level)| (*at, side, level.value));
    let mut order: Vec<_> = of(0).chain(of(1)).collect();
    order.sort_by_key(|(at, ..)| *at);
    order
}

/// Computes the change of runs that took turns, by pairs of neighbours in time; `None` if those are too few, or too many runs have no
/// neighbour of the other side.
pub(super) fn in_turns(sides: &Both<Vec<Level>>, of: &Pair<'_>) -> Option<Change> {
    let (order, mut pairs, mut at) = (in_order(sides), Vec::new(), 0);
    let (least, blocked) = if of.turns { (MIN_ROUNDS, 0.0) } else { (MIN_RUNS, BLOCKED) };
    while let Some(&[(first, side, one), (second, other, two)]) = order.get(at..at + 2) {
        let is_pair = side != other && (first == second || !of.turns);
        at += if is_pair { 2 } else { 1 };
        pairs.extend(is_pair.then_some(if side == 0 { [one, two] } else { [two, one] }));
    }
    let logs: Vec<f64> = pairs.iter().map(|[base, new]| new - base).collect();
    let base = pairs.iter().map(|[base, _]| base).sum::<f64>() / pairs.len() as f64;
    let are_many = pairs.len() >= least && 2.0 * pairs.len() as f64 >= blocked * order.len() as f64;
    of_blocks(&logs, base).filter(|_| are_many)
}

/// Computes the change of runs of which one side was taken after the other.
fn in_sequence(sides: &Both<Vec<Level>>) -> Change {
    let order = in_order(sides);
    let values: Vec<f64> = order.iter().map(|(.., value)| *value).collect();
    let of = |wanted| order.iter().map(|(_, side, _)| f64::from(u8::from(*side == wanted))).collect::<Vec<f64>>();
    let log = related::last(&values, &[vec![1.0; values.len()], of(1)]);
    let base = related::last(&values, &[of(1), of(0)]).value;
    Change { log, base, blocks: 0 }
}

/// Computes the change of few runs, of which it is known how they differ; `None`: they do not beyond what their rounds show, as simulated
/// ones.
pub(super) fn of_few(runs: &Both<Vec<Level>>, known_between: Option<Estimate>) -> Change {
    let sides = runs.each_ref().map(|runs| Estimate::mean(runs.iter().map(|(_, run)| *run)));
    let [n, m] = runs.each_ref().map(|runs| runs.len() as f64);
    // The squares of what runs differ by beyond their own errors.
    let seen = |runs: &[Level], n: f64, side: &Estimate| {
        let squares: f64 = runs.iter().map(|(_, run)| (run.value - side.value).powi(2)).sum();
        (squares - (n - 1.0) * n * side.error.powi(2)).max(0.0)
    };
    let (freedom, squares) = (n + m - 2.0, seen(&runs[0], n, &sides[0]) + seen(&runs[1], m, &sides[1]));
    let Estimate { error, freedom: usual, .. } = known_between.unwrap_or(BETWEEN_RUNS);
    let pooled = (usual * error.powi(2) + squares) / (usual + freedom);
    // Hosts that show more are believed.
    let variance = if freedom > 0.0 { pooled.max(squares / freedom) } else { pooled };
    let error = if known_between.is_none() { 0.0 } else { (variance * (1.0 / n + 1.0 / m)).sqrt() };
    let between = Estimate { freedom: usual + freedom, ..known(error) };
    Change { log: sides[1].less(&sides[0]).less(&between), base: sides[0].value, blocks: 0 }
}

/// Computes the change of an arm's ratio to the reference arm. `None` with too few rounds for an interval.
pub(super) fn of_arm(sides: &Both<Vec<Run>>, pair: &Pair<'_>) -> Option<Change> {
    let levels = |of: fn(&Run) -> Option<Estimate>| -> Both<Vec<Level>> {
        sides.each_ref().map(|side| side.iter().filter_map(|run| Some((run.started, of(run)?))).collect())
    };
    // What the rounds of a run show of its error takes longer than all the rest, and is not needed of many.
    let many = levels(|run| Some(Estimate { value: centre(&run.pairs)?, ..known(0.0) }));
    if many.iter().all(|side| side.len() >= MIN_RUNS) {
        return in_turns(&many, pair).or_else(|| Some(in_sequence(&many)));
    }
    let runs = levels(|run| log(&run.pairs));
    runs.iter().all(|side| !side.is_empty()).then(|| of_few(&runs, Some(BETWEEN_RUNS).filter(|_| !pair.simulated())))
}

/// Returns the change of the mean logarithm of all arms' times, and whether it is judged: where the runs were taken in turns, or
/// simulated, no host wanders.
pub(super) fn of_all(arms: &[&Sample], pair: &Pair<'_>) -> Option<(Change, bool)> {
    let simulated = pair.simulated() && !pair.turns;
    let time = |run: &Run| {
        let logs: Vec<f64> = run.values.iter().filter(|ns| **ns > 0.0).map(|ns| ns.ln()).collect();
        let shown = if simulated { trimmed::over_blocks(&logs) } else { None };
        Some(Estimate { value: median(&logs)?, ..shown.unwrap_or_else(|| known(0.0)) })
    };
    let sides = [0, 1].map(|side: usize| -> Vec<Level> {
        let mut runs: BTreeMap<usize, (u64, Vec<Estimate>)> = BTreeMap::new();
        for run in arms.iter().flat_map(|arm| &arm.sides[side]) {
            runs.entry(run.document).or_insert((run.started, Vec::new())).1.extend(time(run));
        }
        runs.retain(|_, (_, all)| all.len() == arms.len());
        let mean = |all: Vec<Estimate>| Estimate { freedom: all[0].freedom, ..Estimate::mean(all.into_iter()) };
        runs.into_values().map(|(started, all)| (started, mean(all))).collect()
    });
    let found = in_turns(&sides, pair).map(|found| (found, true));
    found.or_else(|| sides.iter().all(|side| !side.is_empty()).then(|| (of_few(&sides, None), simulated)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_runs_are_believed_where_they_differ_by_more_than_the_default() {
        let run = |value: f64| Estimate { value, error: 0.001, freedom: 9.0 };
        let of = |base: &[f64], new: &[f64]| {
            let side = |values: &[f64]| values.iter().map(|value| (0, run(*value))).collect::<Vec<_>>();
            of_few(&[side(base), side(new)], Some(BETWEEN_RUNS)).log
        };
        let one = of(&[0.1], &[0.15]);
        assert!((one.value - 0.05).abs() < 1e-12 && (one.error.powi(2) - 2.0 * (9e-6 + 1e-6)).abs() < 1e-12, "{one:?}");
        let alike = of(&[0.1, 0.1, 0.1], &[0.1, 0.1, 0.1]);
        assert!(alike.error < one.error && alike.freedom > one.freedom, "{alike:?}");
        // The mean of the sides' variances over their number of runs, and nothing less.
        let wild = of(&[0.0, 0.1], &[0.0, 0.1]);
        assert!((wild.error.powi(2) - 0.005).abs() < 1e-12, "{wild:?}");
        let exact = of_few(&[vec![(0, run(0.1))], vec![(0, run(0.1))]], None).log;
        assert!((exact.error.powi(2) - 2e-6).abs() < 1e-15, "no host disturbs a simulation: {exact:?}");
    }
}
