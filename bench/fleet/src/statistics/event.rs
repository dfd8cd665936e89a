//! Change of a figure at a fact's change: each host before and after, as its own control.

use std::collections::BTreeMap;

use super::grid::{Grid, Series};
use super::spread::{around_zero, centre};
use results::stats::jackknife::Estimate;
use results::stats::median;

/// Periods to either side in which the largest step is looked for.
const AROUND: isize = 3;
/// Hosts of a mean that is not cut: with fewer nothing shows which of them is far out.
const CUT_FROM: usize = 8;

/// Values of one host by period.
type Own = Vec<(usize, f64)>;

/// Values of the hosts of a series by period.
pub(super) fn by_host(grid: &Grid<'_>, series: &Series, logs: &[f64]) -> BTreeMap<usize, Own> {
    let mut all: BTreeMap<usize, Own> = BTreeMap::new();
    for (point, log) in series.points.iter().zip(logs) {
        let meta = grid.meta[point.run];
        all.entry(meta.host).or_default().push((meta.period, *log));
    }
    all
}

/// The difference after less before a period, over so many periods to either side.
fn difference(own: &Own, at: usize, window: usize) -> Option<f64> {
    let side = |inside: &dyn Fn(usize) -> bool| {
        let values: Vec<f64> = own.iter().filter(|(period, _)| inside(*period)).map(|(_, log)| *log).collect();
        if values.len() < 4 { median(&values) } else { centre(&values) }
    };
    let before = side(&|period| period < at && period + window >= at)?;
    let after = side(&|period| period >= at && period < at + window)?;
    Some(after - before)
}

/// Mean and standard error over hosts; those far out are cut to 2.5 spreads where there are several.
pub(super) fn over_hosts(differences: &[f64]) -> Option<Estimate> {
    let n = differences.len() as f64;
    if differences.len() < 2 {
        return None;
    }
    let middle = centre(differences)?;
    let spread = around_zero(&differences.iter().map(|one| one - middle).collect::<Vec<_>>())?;
    let bound = if differences.len() < CUT_FROM { f64::INFINITY } else { 2.5 * spread };
    let kept: Vec<f64> = differences.iter().map(|one| one.clamp(middle - bound, middle + bound)).collect();
    let mean = kept.iter().sum::<f64>() / n;
    let variance = kept.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(Estimate { value: mean, error: (variance / n).sqrt(), freedom: n - 1.0 })
}

/// A change around a period of each host.
pub(super) struct Found {
    /// Change of the logarithm, less the part that all hosts share in a period.
    pub(super) change: Estimate,
    /// Hosts that have values on both sides.
    pub(super) hosts: usize,
    /// Place of the largest step, in periods after the given ones.
    pub(super) offset: isize,
}

/// The change of a series at `at`, a period of each host. `of_period`: the spread of what all hosts share in a period.
pub(super) fn change(
    values: &BTreeMap<usize, Own>,
    at: &BTreeMap<usize, usize>,
    window: usize,
    of_period: f64,
) -> Option<Found> {
    let differences = |offset: isize, window: usize| -> Vec<f64> {
        let of = |(host, at): (&usize, &usize)| difference(values.get(host)?, at.checked_add_signed(offset)?, window);
        at.iter().filter_map(of).collect()
    };
    let own = differences(0, window);
    let found = over_hosts(&own)?;
    // The shared part does not average out over hosts: periods do that, and there are so many on each side.
    let sides = |inside: &dyn Fn(usize, usize) -> bool| -> f64 {
        let count = |(host, at): (&usize, &usize)| {
            let periods = values.get(host)?.iter().filter(|(period, _)| inside(*period, *at));
            let mut periods: Vec<usize> = periods.map(|(period, _)| *period).collect();
            periods.dedup();
            (!periods.is_empty()).then_some(periods.len() as f64)
        };
        median(&at.iter().filter_map(count).collect::<Vec<_>>()).unwrap_or(1.0).max(1.0)
    };
    let before = sides(&|period, at| period < at && period + window >= at);
    let after = sides(&|period, at| period >= at && period < at + window);
    let change = found.widened(of_period * (1.0 / before + 1.0 / after).sqrt());
    let step = |offset: isize| {
        let own = differences(offset, AROUND.unsigned_abs());
        // An end with few hosts says little.
        (own.len() * 2 >= at.len()).then(|| median(&own)).flatten().map_or(0.0, f64::abs)
    };
    let offset =
        (-AROUND..=AROUND).max_by(|a, b| step(*a).total_cmp(&step(*b)).then(b.abs().cmp(&a.abs()))).unwrap_or(0);
    Some(Found { change, hosts: own.len(), offset })
}

/// The spread of what all hosts share in a period, by the differences of neighbouring periods. With fewer than four of them it is not known.
pub(super) fn of_period(periods: &[Option<f64>]) -> f64 {
    let known: Vec<f64> = periods.iter().flatten().copied().collect();
    let steps: Vec<f64> = known.windows(2).map(|two| (two[1] - two[0]) / std::f64::consts::SQRT_2).collect();
    if steps.len() < 3 { 0.0 } else { around_zero(&steps).unwrap_or(0.0) }
}
