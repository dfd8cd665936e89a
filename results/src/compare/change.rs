//! Distance of NEW from BASE: one arm against the reference arm, and all arms together. A run is one number.
//!
//! | runs a side | one arm against the reference | all arms together |
//! |---|---|---|
//! | 8 and more, in turns | pairs of neighbouring runs, as blocks | the same |
//! | 8 and more, else | least squares of runs whose neighbours are alike | not judged: the host wanders as much |
//! | fewer | the rounds, and how runs differ: as they show, pooled with [`BETWEEN_RUNS`] | the same |

use super::group::{Both, MIN_RUNS};
use super::sample::{Run, Sample};
use crate::paired::{BETWEEN_RUNS, centre, log};
use crate::stats::jackknife::{Estimate, known};
use crate::stats::{median, related, trimmed};

/// Share of the runs that must have a neighbour of the other side.
const BLOCKED: f64 = 0.8;

/// A run's start, and its number.
type Level = (u64, f64);

/// A change and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// Logarithm of NEW over BASE.
    pub(super) log: Estimate,
    /// Logarithms of the two, whose difference it is.
    pub(super) sides: Both<f64>,
    /// The part of its error that more rounds of the same runs do not make smaller.
    pub(super) fixed: Estimate,
    /// Pairs of neighbouring runs; 0: runs were not taken in turns.
    pub(super) blocks: usize,
}

/// Returns the change of independent blocks with these logarithms of NEW over BASE; `sides` are those of the two, given their centre.
pub(super) fn of_blocks(logs: &[f64], sides: impl Fn(f64) -> Both<f64>) -> Option<Change> {
    let log = trimmed::over_blocks(logs)?;
    Some(Change { log, sides: sides(log.value), fixed: known(0.0), blocks: logs.len() })
}

/// Returns all runs in order of time, each with its side and its place there.
fn in_order(sides: [&[u64]; 2]) -> Vec<(u64, usize, usize)> {
    let of = |side: usize| sides[side].iter().enumerate().map(move |(run, at)| (*at, side, run));
    let mut order: Vec<(u64, usize, usize)> = of(0).chain(of(1)).collect();
    order.sort_unstable();
    order
}

/// Pairs runs of BASE and NEW that are neighbours in time, each once; `None` if too many runs have no such neighbour.
fn neighbours(sides: [&[u64]; 2]) -> Option<Vec<Both<usize>>> {
    let order = in_order(sides);
    let (mut pairs, mut at) = (Vec::new(), 0);
    while at + 1 < order.len() {
        let ((_, side, run), (_, other, next)) = (order[at], order[at + 1]);
        if side == other {
            at += 1;
            continue;
        }
        pairs.push(if side == 0 { [run, next] } else { [next, run] });
        at += 2;
    }
    (2.0 * pairs.len() as f64 >= BLOCKED * order.len() as f64).then_some(pairs)
}

/// Computes the change of sides of many runs: by pairs of neighbours where they took turns, else by least squares over all runs in order
/// of time, where `related` allows that.
fn of_many(sides: &Both<Vec<Level>>, related: bool) -> Option<Change> {
    let starts = sides.each_ref().map(|side| side.iter().map(|(at, _)| *at).collect::<Vec<_>>());
    let starts = starts.each_ref().map(Vec::as_slice);
    if let Some(pairs) = neighbours(starts).filter(|pairs| pairs.len() >= MIN_RUNS) {
        let logs: Vec<f64> = pairs.iter().map(|[one, two]| sides[1][*two].1 - sides[0][*one].1).collect();
        let base = pairs.iter().map(|[one, _]| sides[0][*one].1).sum::<f64>() / pairs.len() as f64;
        return of_blocks(&logs, |log| [base, base + log]);
    }
    if !related || sides.iter().any(|side| side.len() < MIN_RUNS) {
        return None;
    }
    let order = in_order(starts);
    let values: Vec<f64> = order.iter().map(|(_, side, run)| sides[*side][*run].1).collect();
    let is_of = |wanted: usize| order.iter().map(|(_, side, _)| f64::from(u8::from(*side == wanted))).collect();
    let columns: Both<Vec<f64>> = [is_of(0), is_of(1)];
    let level = |own: usize| related::last(&values, &[columns[1 - own].clone(), columns[own].clone()]).value;
    let log = related::last(&values, &[vec![1.0; values.len()], columns[1].clone()]);
    Some(Change { log, sides: [level(0), level(1)], fixed: known(0.0), blocks: 0 })
}

/// Computes the change of few runs, each with the error that its rounds show. Simulated runs do not differ beyond that.
pub(super) fn of_few(runs: &Both<Vec<Estimate>>, simulated: bool) -> Change {
    let mean = |runs: &[Estimate], of: &dyn Fn(&Estimate) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let [one, two] = runs.each_ref().map(|runs| {
        let squares = mean(runs, &|run| run.error.powi(2));
        let terms = mean(runs, &|run| run.error.powi(4) / run.freedom);
        let n = runs.len() as f64;
        let freedom = if terms > 0.0 { n * squares * squares / terms } else { f64::INFINITY };
        Estimate { value: mean(runs, &|run| run.value), error: (squares / n).sqrt(), freedom }
    });
    // The squares of what runs differ by beyond their own errors.
    let seen = |runs: &[Estimate], side: &Estimate| {
        let freedom = runs.len() as f64 - 1.0;
        let squares: f64 = runs.iter().map(|run| (run.value - side.value).powi(2)).sum();
        (squares - freedom * mean(runs, &|run| run.error.powi(2))).max(0.0)
    };
    let [n, m] = runs.each_ref().map(|runs| runs.len() as f64);
    let (freedom, squares) = (n + m - 2.0, seen(&runs[0], &one) + seen(&runs[1], &two));
    let pooled = (BETWEEN_RUNS.freedom * BETWEEN_RUNS.error.powi(2) + squares) / (BETWEEN_RUNS.freedom + freedom);
    // Hosts that show more are believed.
    let variance = if freedom > 0.0 { pooled.max(squares / freedom) } else { pooled };
    let error = (variance * (1.0 / n + 1.0 / m)).sqrt();
    let fixed =
        if simulated { known(0.0) } else { Estimate { value: 0.0, error, freedom: BETWEEN_RUNS.freedom + freedom } };
    Change { log: two.less(&one).less(&fixed), sides: [one.value, two.value], fixed, blocks: 0 }
}

/// Computes the change of an arm's ratio to the reference arm. `None` with too few rounds for an interval.
pub(super) fn of_arm(sides: &Both<Vec<Run>>, simulated: bool) -> Option<Change> {
    if sides.iter().all(|side| side.len() >= MIN_RUNS) {
        let level = |run: &Run| Some((run.started, centre(&run.pairs)?));
        let levels = sides.each_ref().map(|side| side.iter().filter_map(level).collect::<Vec<Level>>());
        return of_many(&levels, true);
    }
    let runs = sides.each_ref().map(|side| side.iter().filter_map(|run| log(&run.pairs)).collect::<Vec<_>>());
    runs.iter().all(|side| !side.is_empty()).then(|| of_few(&runs, simulated))
}

/// Returns the mean logarithms of all arms' times, BASE and NEW, and their change where the runs were taken in turns, or simulated:
/// no host wanders there.
pub(super) fn of_all(arms: &[&Sample], simulated: bool) -> Option<(Both<f64>, Option<Change>)> {
    let time = |run: &Run| {
        let logs: Vec<f64> = run.values.iter().filter(|ns| **ns > 0.0).map(|ns| ns.ln()).collect();
        Some(Estimate { value: median(&logs)?, ..trimmed::over_blocks(&logs).unwrap_or_else(|| known(0.0)) })
    };
    let of_side = |side: usize| -> Vec<(u64, Estimate)> {
        let level = |run: &Run| {
            let own = |arm: &&Sample| time(arm.sides[side].iter().find(|other| other.document == run.document)?);
            let all: Vec<Estimate> = arms.iter().map(own).collect::<Option<_>>()?;
            let n = all.len() as f64;
            let value = all.iter().map(|arm| arm.value).sum::<f64>() / n;
            let error = all.iter().map(|arm| arm.error.powi(2)).sum::<f64>().sqrt() / n;
            Some((run.started, Estimate { value, error, freedom: all[0].freedom }))
        };
        arms.first().into_iter().flat_map(|arm| &arm.sides[side]).filter_map(level).collect()
    };
    let sides = [of_side(0), of_side(1)];
    if sides.iter().any(Vec::is_empty) {
        return None;
    }
    let levels = sides.each_ref().map(|side| side.iter().map(|(at, level)| (*at, level.value)).collect::<Vec<Level>>());
    let few = of_few(&sides.map(|side| side.into_iter().map(|(_, level)| level).collect()), true);
    let change = of_many(&levels, false).or_else(|| simulated.then_some(few));
    Some((change.map_or(few.sides, |change| change.sides), change))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_runs_are_believed_where_they_differ_by_more_than_the_default() {
        let run = |value: f64| Estimate { value, error: 0.001, freedom: 9.0 };
        let of = |base: &[f64], new: &[f64]| {
            let side = |values: &[f64]| values.iter().map(|value| run(*value)).collect::<Vec<_>>();
            of_few(&[side(base), side(new)], false).log
        };
        let one = of(&[0.1], &[0.15]);
        assert!((one.value - 0.05).abs() < 1e-12 && (one.error.powi(2) - 2.0 * (9e-6 + 1e-6)).abs() < 1e-12, "{one:?}");
        let alike = of(&[0.1, 0.1, 0.1], &[0.1, 0.1, 0.1]);
        assert!(alike.error < one.error && alike.freedom > one.freedom, "{alike:?}");
        // The mean of the sides' variances over their number of runs, and nothing less.
        let wild = of(&[0.0, 0.1], &[0.0, 0.1]);
        assert!((wild.error.powi(2) - 0.005).abs() < 1e-12, "{wild:?}");
        let exact = of_few(&[vec![run(0.1)], vec![run(0.1)]], true).log;
        assert!((exact.error.powi(2) - 2e-6).abs() < 1e-15, "no host disturbs a simulation: {exact:?}");
    }
}
