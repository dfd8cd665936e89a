//! Change points of a series whose values are related and sometimes disturbed.
//!
//! A value that differs from all around it counts as its neighbours. The places where the means of the values before and after
//! differ most are candidates, the largest first, then those of the parts that it leaves. Each candidate is tested against the parts
//! beside it, the correlation of neighbours included, and corrected for the number of places it was chosen from and of
//! series that were looked at; the weakest is taken away until all that are left are significant and strong.

use serde::Serialize;

use super::jackknife::Estimate;
use super::limits::Limits;
use super::median;
use super::related::{last, product};

/// Fewest values of a series that can have a change point.
pub const MIN_VALUES: usize = 6;
/// p value of candidates, for values that are taken as independent.
const LOOSE: f64 = 0.05;
/// Values on either side that show whether one is disturbed.
const NEIGHBOURS: usize = 3;
/// Deviations from them, in robust standard deviations, beyond which it is.
const FAR: f64 = 4.0;
/// Twice the logarithm of the likelihoods' ratio from which one description is clearly better than another: 20 to 1.
const CLEAR: f64 = 6.0;

/// Usual limits of a change: Hunter's p of 0.001, and a change of the mean by 5 %.
pub const USUAL: Limits = Limits { alpha: 0.001, threshold: 0.05, bound: 0.05, report_only: false };

/// A place where a series changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ChangePoint {
    /// First value after the change, from 0.
    pub index: usize,
    /// Mean from the change point before to this one.
    pub before: f64,
    /// Mean from here to the next.
    pub after: f64,
    /// Two-sided p value of the difference between the two, corrected for all places and series.
    pub p: f64,
    /// Relative change, such as 0.1 for 10 % more; `None` from 0.
    pub change: Option<f64>,
}

fn relative(before: f64, after: f64) -> Option<f64> {
    (before != 0.0).then(|| after / before - 1.0)
}

/// Returns whether a difference of two means is significant and strong.
fn is_change(limits: &Limits, p: f64, [before, after]: [f64; 2]) -> bool {
    p < limits.alpha && relative(before, after).is_some_and(|change| change.abs() >= limits.threshold)
}

/// Finds every change point of one of `family` series, in order.
pub fn find(series: &[f64], limits: &Limits, family: usize) -> Vec<ChangePoint> {
    if series.len() < MIN_VALUES {
        return Vec::new();
    }
    let clean = undisturbed(series);
    let loose = Limits { alpha: LOOSE.max(limits.alpha), ..*limits };
    // A change looks like correlation, so the search does without it.
    let noise = noise(&clean);
    let of_unrelated = |own: &[f64], at: usize| Estimate {
        value: mean(&own[at..]) - mean(&own[..at]),
        error: noise.error * (1.0 / at as f64 + 1.0 / (own.len() - at) as f64).sqrt(),
        ..noise
    };
    // One value alone may be disturbed, unless none ever is.
    let places = candidates(&clean, of_unrelated, &loose, if noise.error > 0.0 { 2 } else { 1 });
    // Weak candidates are noise, and must not be taken out of it.
    let strong = pruned(&clean, &places, of_unrelated, &loose, 1);
    let places: Vec<usize> = strong.iter().map(|point| point.index).collect();
    let of_own = |own: &[f64], at: usize| last(own, &[vec![1.0; own.len()], step(own.len(), at)]);
    pruned(&clean, &places, of_own, limits, family)
}

/// Tests each place by the parts that it ends and begins, and takes away the weakest until all that are left are significant and
/// strong: a place's parts grow as its neighbours go.
fn pruned(
    series: &[f64],
    places: &[usize],
    difference: impl Fn(&[f64], usize) -> Estimate,
    limits: &Limits,
    family: usize,
) -> Vec<ChangePoint> {
    let chosen_from = (series.len() - 1) as f64 * family.max(1) as f64;
    let point = |from: usize, index: usize, to: usize| {
        let difference = difference(&series[from..to], index - from);
        let (before, after) = (mean(&series[from..index]), mean(&series[index..to]));
        let p = (difference.p() * chosen_from).min(1.0);
        ChangePoint { index, before, after, p, change: relative(before, after) }
    };
    let mut ends: Vec<usize> = [0].into_iter().chain(places.iter().copied()).chain([series.len()]).collect();
    let mut points: Vec<ChangePoint> = ends.windows(3).map(|at| point(at[0], at[1], at[2])).collect();
    loop {
        let is_weak = |point: &ChangePoint| !is_change(limits, point.p, [point.before, point.after]);
        let weak = points.iter().enumerate().filter(|(_, point)| is_weak(point));
        let Some((weakest, _)) = weak.max_by(|a, b| a.1.p.total_cmp(&b.1.p)) else { return points };
        points.remove(weakest);
        ends.remove(weakest + 1);
        for near in weakest.saturating_sub(1)..(weakest + 1).min(points.len()) {
            points[near] = point(ends[near], ends[near + 1], ends[near + 2]);
        }
    }
}

/// Returns a column that is 1 from a place on.
fn step(values: usize, at: usize) -> Vec<f64> {
    (0..values).map(|run| f64::from(u8::from(run >= at))).collect()
}

/// Returns the series with values that differ from all around them replaced by the median of those.
fn undisturbed(series: &[f64]) -> Vec<f64> {
    let differences: Vec<f64> = series.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    // The median of absolute differences of normal values is 0.954 standard deviations.
    let usual = median(&differences).unwrap_or(0.0) / 0.954;
    let near = |at: usize| &series[at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(series.len())];
    // If most neighbours are the same, anything else is far.
    let is_far = |distance: f64| distance.abs() > FAR * usual;
    // Two values differ by more than one from its middle.
    let is_alike = |a: f64, b: f64| !is_far((a - b) / std::f64::consts::SQRT_2);
    (0..series.len())
        .map(|at| {
            let middle = median(near(at)).unwrap_or(series[at]);
            // Near an end the fewer values may be those of a change: only one that is like none of its neighbours is disturbed.
            let is_full = at >= NEIGHBOURS && at + NEIGHBOURS < series.len();
            let is_alone = || near(at).iter().filter(|other| is_alike(**other, series[at])).count() == 1;
            if is_far(series[at] - middle) && (is_full || is_alone()) { middle } else { series[at] }
        })
        .collect()
}

/// A series that goes up or down all the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Trend {
    /// Its line at the first value.
    pub before: f64,
    /// Its line at the last.
    pub after: f64,
    /// Two-sided p value of the slope, corrected for all series.
    pub p: f64,
}

/// Finds a trend of one of `family` series that describes it better than `steps`, which [`find`] found; returns it with the steps
/// beside its line, else with those.
pub fn trend(
    series: &[f64],
    limits: &Limits,
    family: usize,
    steps: Vec<ChangePoint>,
) -> (Option<Trend>, Vec<ChangePoint>) {
    let (n, count) = (series.len(), series.len() as f64);
    if n < MIN_VALUES {
        return (None, steps);
    }
    let clean = undisturbed(series);
    let x: Vec<f64> = (0..n).map(|at| at as f64 - (count - 1.0) / 2.0).collect();
    let spread = squares(&x);
    let line = |flat: &[f64]| -> (f64, f64, Vec<f64>) {
        let (level, slope) = (mean(flat), product(&x, flat) / spread);
        (level, slope, x.iter().zip(flat).map(|(x, y)| y - level - slope * x).collect())
    };
    let (mut flat, mut beside, mut columns) = (clean.clone(), Vec::new(), vec![x.clone(), vec![1.0; n]]);
    let (mut level, mut slope, mut left) = line(&flat);
    for _ in 0..n / MIN_VALUES {
        let Some(at) = best_step(&left, Some(&x), 2) else { break };
        columns.push(step(n, at));
        let difference = last(&clean, &columns);
        let up = difference.value;
        let without: Vec<f64> = flat.iter().enumerate().map(|(run, y)| if run < at { *y } else { y - up }).collect();
        let next = line(&without);
        let before = next.0 + next.1 * (x[at] - 0.5);
        let p = difference.p() * (count - 1.0) * family.max(1) as f64;
        if !is_change(limits, p, [before, before + up]) {
            columns.pop();
            break;
        }
        beside.push(ChangePoint { index: at, before, after: before + up, p, change: relative(before, before + up) });
        (flat, (level, slope, left)) = (without, next);
    }
    beside.sort_by_key(|step| step.index);
    columns.rotate_left(1);
    let p = last(&clean, &columns).p() * family.max(1) as f64;
    let (before, after) = (level + slope * x[0], level + slope * x[n - 1]);
    // Steps leave what the means of their parts leave. They have two parameters each and one more, a line has two.
    let ends: Vec<usize> = [0].into_iter().chain(steps.iter().map(|step| step.index)).chain([n]).collect();
    let parts = ends.windows(2).map(|at| &clean[at[0]..at[1]]);
    let of_steps: f64 = parts.map(|part| part.iter().map(|value| (value - mean(part)).powi(2)).sum::<f64>()).sum();
    let [others, own] =
        [2 * steps.len() + 1, 2 * beside.len() + 2].map(|parameters| (count - parameters as f64).max(1.0));
    let is_better = steps.is_empty() || count * (of_steps / others / (squares(&left) / own)).ln() > CLEAR;
    if !is_change(limits, p, [before, after]) || !is_better {
        return (None, steps);
    }
    (Some(Trend { before, after, p }), beside)
}

/// Returns the place of the single step, beside a line over `x` if there is one, after which the least squares are left of what is
/// left of a series without it. At least so many values are on either side.
fn best_step(left: &[f64], x: Option<&[f64]>, least: usize) -> Option<usize> {
    let (mut of_left, mut of_x) = (0.0, 0.0);
    let spread = x.map_or(1.0, squares);
    let gain = (1..left.len()).rev().map(|at| {
        let (n, after) = (left.len() as f64, (left.len() - at) as f64);
        of_left += left[at];
        of_x += x.map_or(0.0, |x| x[at]);
        (at, of_left * of_left / (after - after * after / n - of_x * of_x / spread))
    });
    let within = gain.filter(|(at, _)| (least..left.len() + 1 - least).contains(at));
    within.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

fn squares(values: &[f64]) -> f64 {
    product(values, values)
}

fn mean(part: &[f64]) -> f64 {
    part.iter().sum::<f64>() / part.len().max(1) as f64
}

/// Returns the places where the means of the parts that they end and begin differ by more than noise, in order.
fn candidates(
    series: &[f64],
    difference: impl Fn(&[f64], usize) -> Estimate,
    limits: &Limits,
    least: usize,
) -> Vec<usize> {
    let (mut places, mut parts) = (Vec::new(), vec![(0, series.len())]);
    while let Some((begin, end)) = parts.pop() {
        let own = &series[begin..end];
        let middle = mean(own);
        let left: Vec<f64> = own.iter().map(|value| value - middle).collect();
        let Some(at) = best_step(&left, None, least) else { continue };
        if difference(own, at).p() * (own.len() - 1) as f64 <= limits.alpha {
            places.push(begin + at);
            parts.extend([(begin, begin + at), (begin + at, end)]);
        }
    }
    places.sort_unstable();
    places
}

/// Returns the variance of a series whose neighbours are taken as independent, by their differences, of which far ones are cut; its
/// value is that of the estimate.
fn noise(series: &[f64]) -> Estimate {
    let squares: Vec<f64> = series.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).collect();
    // The median of squares of normal values is 0.455 of their mean.
    let cut = median(&squares).unwrap_or(0.0) / 0.455 * 9.0;
    let sum: f64 = squares.iter().map(|square| square.min(cut)).sum();
    // Of differences of neighbours every second one is independent.
    let freedom = (series.len() as f64 / 2.0 - 1.0).max(1.0);
    Estimate { value: 0.0, error: (sum / (2.0 * squares.len().max(1) as f64)).sqrt(), freedom }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::synthetic::Random;

    fn indices(series: &[f64], limits: Limits) -> Vec<usize> {
        find(series, &limits, 1).iter().map(|point| point.index).collect()
    }

    #[test]
    fn ten_runs_against_ten_show_a_tenth() {
        let found = |spread, correlation, up: f64, family, count| {
            let of = |seed| -> Vec<f64> {
                let related = Random::new(seed).related(20, correlation);
                let level = |run: usize| if run < 10 { 1.0 } else { 1.0 + up };
                related.iter().zip(0..).map(|(noise, run)| level(run) * f64::exp(spread * noise)).collect()
            };
            (0..count).filter(|&seed| !find(&of(seed), &USUAL, family).is_empty()).count()
        };
        let steps = [(0.01, -0.12), (0.02, -0.12), (0.01, 0.1)].map(|(spread, up)| found(spread, 0.0, up, 9, 60));
        assert!(steps.iter().all(|count| *count >= 56), "of 60 steps: {steps:?}");
        let alarms =
            [(0.05, 0.0), (0.02, 0.7), (0.05, 0.7)].map(|(spread, related)| found(spread, related, 0.0, 1, 300));
        assert!(alarms[0] == 0 && alarms.iter().all(|count| *count <= 6), "of 300 without a step: {alarms:?}");
    }

    #[test]
    fn a_change_near_the_end_is_where_it_is_and_one_value_is_none() {
        // The first three of a change are no outliers, and a last one that is like none before is no change.
        for seed in 0..8 {
            let mut random = Random::new(seed);
            let mut of = |before: usize, after: usize| -> Vec<f64> {
                let level = |run: usize| if run < before { 1.0 } else { 1.1 };
                (0..before + after).map(|run| level(run) * (1.0 + 0.005 * random.normal())).collect()
            };
            for (before, after) in [(60, 3), (27, 3), (28, 2), (3, 27)] {
                assert_eq!(indices(&of(before, after), USUAL), [before], "{before}, {after}, {seed}");
            }
            for (before, after) in [(29, 1), (1, 29)] {
                assert!(indices(&of(before, after), USUAL).is_empty(), "{before}, {after}, {seed}");
            }
        }
    }

    #[test]
    fn one_high_run_is_one_run() {
        for usual in [vec![70e3; 12], (0..12).map(|n| 70e3 + f64::from(n * 7 % 5) * 100.0).collect()] {
            let last: Vec<f64> = usual.iter().copied().chain([90e3]).collect();
            let within: Vec<f64> = last.iter().chain(&usual).copied().collect();
            assert_eq!((indices(&last, USUAL), indices(&within, USUAL)), (vec![], vec![]));
        }
    }

    #[test]
    fn published_examples_give_the_published_points() {
        // Series and change points that Apache Otava publishes with its tests (tests/series_test.py, analysis_test.py).
        let fall = [1.02, 0.95, 0.99, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55];
        let slip = [2.02, 2.03, 2.01, 2.04, 1.82, 1.85, 1.79, 1.81, 1.80, 1.76, 1.78];
        let half = [
            1.02, 0.95, 0.99, 1.00, 1.12, 1.00, 1.01, 0.98, 1.01, 0.96, 0.50, 0.51, 0.48, 0.48, 0.55, 0.50, 0.49, 0.51,
            0.50, 0.49,
        ];
        let loose = Limits { alpha: 0.05, ..USUAL };
        assert_eq!((indices(&fall, loose), indices(&slip, loose), indices(&half, loose)), (vec![6], vec![4], vec![10]));
        let strong = Limits { threshold: 0.2, ..loose };
        assert_eq!((indices(&fall, strong), indices(&slip, strong)), (vec![6], vec![]));
    }

    proptest! {
        #[test]
        fn any_series_gives_ordered_points_within(
            series in prop::collection::vec(0.0_f64..1e9, 0..120),
        ) {
            let points = find(&series, &USUAL, 1);
            prop_assert!(points.windows(2).all(|pair| pair[0].index < pair[1].index));
            prop_assert!(points.iter().all(|point| point.index > 0 && point.index < series.len() && point.p < 0.001));
        }
    }
}
