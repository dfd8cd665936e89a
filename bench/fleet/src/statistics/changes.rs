//! Changes of the fleet over time, and the facts that changed with them.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use results::stats::change_points::{self, ChangePoint, Rules};
use results::stats::interval::Interval;
use results::stats::jackknife::Estimate;
use results::stats::median;
use serde::Serialize;

use super::fit::fit;
use super::grid::{FleetSpec, Grid, Kind, Series};
use super::spread::{EFFICIENCY, around_zero, centre};

/// Fewest hosts that a change of a fact is judged on.
const MIN_HOSTS: usize = 3;

/// Change of one figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeRow {
    /// Host class.
    pub class: String,
    /// Setting; empty of all together.
    pub setting: String,
    /// Kind of the figure.
    pub kind: Kind,
    /// Arm, or "all arms".
    pub arm: String,
    /// Metric, or "all metrics".
    pub metric: String,
    /// Relative change, 0.03 for 3 % slower.
    pub change: f64,
    /// Its 95 % interval, by t over hosts with the spread of periods added.
    pub interval: Interval,
    /// p value, adjusted for all facts and figures that were looked at (Bonferroni).
    pub p_adjusted: f64,
    /// Hosts with runs before and after it.
    pub hosts: usize,
    /// It is significant and at least the least change, and in the figures within a period of the fact.
    pub found: bool,
}

/// A change of facts, or of figures, or of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The facts that changed; none where figures changed alone.
    pub facts: Vec<String>,
    /// First period after it, of the first and the last host.
    pub periods: [String; 2],
    /// Hosts it reached.
    pub hosts: usize,
    /// Hosts of the fleet.
    pub of: usize,
    /// The speed of hosts, and other figures that changed. Empty where there are too few hosts.
    pub rows: Vec<ChangeRow>,
    /// Remark needed to read it; empty for most.
    pub note: String,
}

impl Change {
    /// Returns whether a figure changed.
    pub fn is_found(&self) -> bool {
        self.rows.iter().any(|row| row.found)
    }

    /// Returns whether a figure got slower by at least this share.
    pub fn is_slower(&self, by: f64) -> bool {
        self.rows.iter().any(|row| row.found && row.change >= by)
    }
}

/// Changes, and every series without them.
pub(super) struct Changed {
    pub(super) changes: Vec<Change>,
    /// Values of each series with found changes taken out.
    pub(super) logs: Vec<Vec<f64>>,
    /// Changes of facts by host, for what is said of odd hosts.
    pub(super) turns: Vec<Turn>,
    pub(super) notes: Vec<String>,
}

/// Finds every change.
pub(super) fn changes(grid: &Grid<'_>, spec: &FleetSpec) -> Changed {
    let (turns, restless) = turns(grid);
    let mut logs: Vec<Vec<f64>> =
        grid.series.iter().map(|series| series.points.iter().map(|point| point.log).collect()).collect();
    let judged = grid.series.iter().filter(|series| series.is_judged()).count();
    let wide = turns.iter().filter(|turn| turn.hosts.len() >= MIN_HOSTS).count();
    let mut changes = Vec::new();
    for turn in &turns {
        changes.push(of_turn(grid, turn, &mut logs, spec, (judged * wide).max(1) as f64));
    }
    changes.extend(steps(grid, &mut logs, spec));
    let line = |(fact, hosts): (String, usize)| {
        format!("{fact} changes all the time on {hosts} hosts: it is not taken for the cause of anything there")
    };
    Changed { changes, logs, turns, notes: restless.into_iter().map(line).collect() }
}

fn row(grid: &Grid<'_>, series: &Series, found: &Found, tests: f64, spec: &FleetSpec) -> ChangeRow {
    let Estimate { value, .. } = found.change;
    let interval = found.change.interval();
    let p_adjusted = (found.change.p() * tests).min(1.0);
    ChangeRow {
        class: grid.classes[series.class].clone(),
        setting: series.setting.map_or_else(String::new, |setting| grid.settings[setting].label.clone()),
        kind: series.kind,
        arm: series.arm.clone(),
        metric: series.metric.clone(),
        change: value.exp_m1(),
        interval: Interval { low: interval.low.exp_m1(), high: interval.high.exp_m1() },
        p_adjusted,
        hosts: found.hosts,
        found: p_adjusted < spec.alpha && value.exp_m1().abs() >= spec.least_change && found.offset.abs() <= 1,
    }
}

/// Measures the change at a change of facts. Found ones are taken out of `logs`.
fn of_turn(grid: &Grid<'_>, turn: &Turn, logs: &mut [Vec<f64>], spec: &FleetSpec, tests: f64) -> Change {
    let mut periods: Vec<usize> = turn.hosts.values().copied().collect();
    periods.sort_unstable();
    let name = |period: Option<&usize>| period.map_or_else(String::new, |period| grid.periods[*period].clone());
    let mut change = Change {
        facts: turn.steps.iter().map(Step::text).collect(),
        periods: [name(periods.first()), name(periods.last())],
        hosts: turn.hosts.len(),
        of: grid.hosts.len(),
        rows: Vec::new(),
        note: String::new(),
    };
    if turn.hosts.len() < MIN_HOSTS {
        change.note = format!("on fewer than {MIN_HOSTS} hosts: not judged");
        return change;
    }
    let find = |wanted: &(dyn Fn(&Series) -> bool + Sync)| -> Vec<(usize, Found)> {
        (0..grid.series.len())
            .into_par_iter()
            .filter(|index| wanted(&grid.series[*index]))
            .filter_map(|index| {
                let series = &grid.series[index];
                let fitted = fit(grid, series, &logs[index]);
                let values = values_by_host(grid, series, &logs[index]);
                let found = change_at(&values, &turn.hosts, spec.window, of_period(&fitted.periods))?;
                (found.hosts >= MIN_HOSTS).then_some((index, found))
            })
            .collect()
    };
    let mut found = find(&Series::is_judged);
    let mut taken = vec![false; grid.classes.len()];
    let mut offset = 0;
    for (index, found) in &found {
        let series = &grid.series[*index];
        let row = row(grid, series, found, tests, spec);
        taken[series.class] |= row.found;
        let speed = grid.speed(series.class) == Some(*index);
        if speed && !row.found && found.offset.abs() > 1 && row.p_adjusted < spec.alpha {
            offset = found.offset;
        }
        if row.found || speed {
            change.rows.push(row);
        }
    }
    if offset != 0 && !change.is_found() {
        let when = if offset < 0 { "before" } else { "after" };
        change.note = format!("the figures change {} periods {when} it: it is not their cause", offset.abs());
    }
    // A change is taken out of all series of its class.
    found.extend(find(&|series| !series.is_judged() && taken[series.class]));
    let step = &turn.steps[0];
    for (index, found) in found {
        let series = &grid.series[index];
        if !taken[series.class] {
            continue;
        }
        for (point, log) in series.points.iter().zip(&mut logs[index]) {
            let meta = grid.meta[point.run];
            let is_after = match turn.hosts.get(&meta.host) {
                Some(at) => meta.period >= *at,
                // It had the new value all the time.
                None => grid.runs[point.run].facts.get(&step.fact) == Some(&step.to),
            };
            if is_after {
                *log -= found.change.value;
            }
        }
    }
    change
}

/// Steps of figures with which no fact changed; taken out of `logs`.
fn steps(grid: &Grid<'_>, logs: &mut [Vec<f64>], spec: &FleetSpec) -> Vec<Change> {
    let judged: Vec<usize> = (0..grid.series.len()).filter(|index| grid.series[*index].is_judged()).collect();
    let tests = (judged.len() * grid.periods.len()) as f64;
    let found: Vec<(usize, Vec<(usize, Found)>)> = judged
        .par_iter()
        .map(|&index| (index, of_series(grid, &grid.series[index], &logs[index], spec, judged.len())))
        .collect();
    let mut by_period: BTreeMap<usize, Vec<(usize, Found)>> = BTreeMap::new();
    for (index, found) in found {
        for (period, found) in found {
            // Series may disagree by one period about the same step.
            let near = by_period.keys().copied().find(|other| other.abs_diff(period) <= 1);
            by_period.entry(near.unwrap_or(period)).or_default().push((index, found));
        }
    }
    let mut changes = Vec::new();
    for (period, found) in by_period {
        let mut rows = Vec::new();
        let mut hosts = 0;
        let mut classes: Vec<usize> = Vec::new();
        for (index, found) in &found {
            let series = &grid.series[*index];
            if !classes.contains(&series.class) {
                classes.push(series.class);
                hosts += grid.hosts.iter().filter(|host| host.class == series.class).count();
            }
            rows.push(ChangeRow { found: true, ..row(grid, series, found, tests, spec) });
            for (point, log) in series.points.iter().zip(&mut logs[*index]) {
                if grid.meta[point.run].period >= period {
                    *log -= found.change.value;
                }
            }
        }
        let name = grid.periods[period].clone();
        let note = "no fact that documents hold changed with it".to_owned();
        changes.push(Change {
            facts: Vec::new(),
            periods: [name.clone(), name],
            hosts,
            of: grid.hosts.len(),
            rows,
            note,
        });
    }
    changes
}

/// Returns the steps of the part that all hosts share in a period, in one of `family` series.
fn of_series(grid: &Grid<'_>, series: &Series, logs: &[f64], spec: &FleetSpec, family: usize) -> Vec<(usize, Found)> {
    let tests = (family * grid.periods.len()) as f64;
    let fitted = fit(grid, series, logs);
    let noise = of_period(&fitted.periods);
    let known: Vec<(usize, f64)> =
        fitted.periods.iter().enumerate().filter_map(|(period, value)| Some((period, (*value)?))).collect();
    let values = values_by_host(grid, series, logs);
    if noise <= 0.0 {
        return Vec::new();
    }
    let rules = Rules {
        window: spec.window,
        p: spec.alpha,
        strength: spec.least_change,
        logarithms: true,
        variance: Some((noise.powi(2), EFFICIENCY * (known.len() as f64 - 1.0).max(1.0))),
    };
    let logs: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let confirmed = |point: ChangePoint| {
        let period = known[point.index].0;
        let all: BTreeMap<usize, usize> = values.keys().map(|host| (*host, period)).collect();
        let change = change_at(&values, &all, spec.window, noise);
        let hosts = change.as_ref().map_or(fitted.hosts.len(), |change| change.hosts);
        // The periods of a few hosts say how sure the step is; of more, each is its own control.
        let change = change.filter(|change| change.hosts >= MIN_HOSTS).map_or(point.difference, |change| change.change);
        let is_found = change.p() * tests < spec.alpha && change.value.abs() >= spec.least_change;
        is_found.then_some((period, Found { change, hosts, offset: 0 }))
    };
    change_points::find(&logs, &rules, family).into_iter().filter_map(confirmed).collect()
}

/// A fact's change from one value to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub(super) fact: String,
    pub(super) from: String,
    pub(super) to: String,
}

impl Step {
    pub(super) fn text(&self) -> String {
        format!("{} {} → {}", self.fact, self.from, self.to)
    }
}

/// Facts that changed together, and the period of the first run after it, by host.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) steps: Vec<Step>,
    pub(super) hosts: BTreeMap<usize, usize>,
}

/// A host whose fact changes more often than this has it changing all the time.
const MOST: usize = 3;
/// Facts that change on this share of each other's hosts at the same time changed together.
const TOGETHER: f64 = 0.8;

/// Lists the last run of each period, by host. Variants that take turns have binaries of their own: each is followed by itself.
fn by_host(grid: &Grid<'_>) -> BTreeMap<(usize, Option<String>), BTreeMap<usize, usize>> {
    let mut all: BTreeMap<_, BTreeMap<usize, usize>> = BTreeMap::new();
    for (run, meta) in grid.meta.iter().enumerate() {
        let variant = grid.runs[run].labels.variant.clone();
        all.entry((meta.host, variant)).or_default().insert(meta.period, run);
    }
    all
}

/// Lists every change of facts, those on most hosts first; and facts that change all the time, with the number of hosts.
pub(super) fn turns(grid: &Grid<'_>) -> (Vec<Turn>, BTreeMap<String, usize>) {
    let mut single: BTreeMap<Step, BTreeMap<usize, usize>> = BTreeMap::new();
    let mut restless: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for ((host, _), runs) in by_host(grid) {
        let mut own: BTreeMap<&str, Vec<(Step, usize)>> = BTreeMap::new();
        for ((_, before), (period, after)) in runs.iter().zip(runs.iter().skip(1)) {
            let (before, after) = (&grid.runs[*before].facts, &grid.runs[*after].facts);
            // Runs that were reduced together share their facts.
            if std::sync::Arc::ptr_eq(before, after) {
                continue;
            }
            for (fact, to) in after.iter() {
                let from = before.get(fact).map_or("unknown", String::as_str);
                if from != to {
                    let step = Step { fact: fact.clone(), from: from.to_owned(), to: to.clone() };
                    own.entry(fact).or_default().push((step, *period));
                }
            }
        }
        for (fact, steps) in own {
            if steps.len() > MOST {
                restless.entry(fact.to_owned()).or_default().insert(host);
                continue;
            }
            for (step, period) in steps {
                single.entry(step).or_default().entry(host).or_insert(period);
            }
        }
    }
    let mut turns: Vec<Turn> = Vec::new();
    for (step, hosts) in single {
        let alike = |turn: &&mut Turn| {
            let both = hosts.iter().filter(|(host, period)| turn.hosts.get(host) == Some(period)).count() as f64;
            both >= TOGETHER * hosts.len().max(turn.hosts.len()) as f64
        };
        match turns.iter_mut().find(alike) {
            Some(turn) => turn.steps.push(step),
            None => turns.push(Turn { steps: vec![step], hosts }),
        }
    }
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.hosts.len()));
    (turns, restless.into_iter().map(|(fact, hosts)| (fact, hosts.len())).collect())
}

/// Periods to either side in which the largest step is looked for.
const AROUND: isize = 3;
/// Hosts of a mean that is not cut: with fewer nothing shows which of them is far out.
const CUT_FROM: usize = 8;

/// Values of one host by period.
type Own = Vec<(usize, f64)>;

/// Values of the hosts of a series by period.
fn values_by_host(grid: &Grid<'_>, series: &Series, logs: &[f64]) -> BTreeMap<usize, Own> {
    let mut all: BTreeMap<usize, Own> = BTreeMap::new();
    for (point, log) in series.points.iter().zip(logs) {
        let meta = grid.meta[point.run];
        all.entry(meta.host).or_default().push((meta.period, *log));
    }
    all
}

/// Computes the difference after less before a period, over so many periods to either side.
fn difference(own: &Own, at: usize, window: usize) -> Option<f64> {
    let side = |inside: &dyn Fn(usize) -> bool| {
        let values: Vec<f64> = own.iter().filter(|(period, _)| inside(*period)).map(|(_, log)| *log).collect();
        if values.len() < 4 { median(&values) } else { centre(&values) }
    };
    let before = side(&|period| period < at && period + window >= at)?;
    let after = side(&|period| period >= at && period < at + window)?;
    Some(after - before)
}

/// Computes mean and standard error over hosts; those far out are cut to 2.5 spreads where there are several.
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
fn change_at(
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

/// Estimates the spread of what all hosts share in a period, by the differences of neighbouring periods. With fewer
/// than four of them it is not known.
pub(super) fn of_period(periods: &[Option<f64>]) -> f64 {
    let known: Vec<f64> = periods.iter().flatten().copied().collect();
    let steps: Vec<f64> = known.windows(2).map(|two| (two[1] - two[0]) / std::f64::consts::SQRT_2).collect();
    if steps.len() < 3 { 0.0 } else { around_zero(&steps).unwrap_or(0.0) }
}
