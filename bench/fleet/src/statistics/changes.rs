//! Changes of the fleet over time, and the facts that changed with them.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::event::{self, Found};
use super::facts::{self, Turn};
use super::fit::fit;
use super::grid::{Grid, Kind, Series};
use super::spec::FleetSpec;
use results::stats::change_points::{self, ChangePoint, Rules};
use results::stats::interval::Interval;
use results::stats::jackknife::Estimate;

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
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.rows.iter().any(|row| row.found)
    }

    /// Returns whether a figure got slower by at least this share.
    #[must_use]
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
    let (turns, restless) = facts::turns(grid);
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

/// The change with a change of facts. Found ones are taken out of `logs`.
fn of_turn(grid: &Grid<'_>, turn: &Turn, logs: &mut [Vec<f64>], spec: &FleetSpec, tests: f64) -> Change {
    let mut periods: Vec<usize> = turn.hosts.values().copied().collect();
    periods.sort_unstable();
    let name = |period: Option<&usize>| period.map_or_else(String::new, |period| grid.periods[*period].clone());
    let mut change = Change {
        facts: turn.steps.iter().map(facts::Step::text).collect(),
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
                let values = event::by_host(grid, series, &logs[index]);
                let found = event::change(&values, &turn.hosts, spec.window, event::of_period(&fitted.periods))?;
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
    let noise = event::of_period(&fitted.periods);
    let known: Vec<(usize, f64)> =
        fitted.periods.iter().enumerate().filter_map(|(period, value)| Some((period, (*value)?))).collect();
    let values = event::by_host(grid, series, logs);
    if noise <= 0.0 {
        return Vec::new();
    }
    let rules = Rules {
        window: spec.window,
        p: spec.alpha,
        strength: spec.least_change,
        logarithms: true,
        variance: Some(noise.powi(2)),
    };
    let logs: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let confirmed = |point: ChangePoint| {
        let period = known[point.index].0;
        let all: BTreeMap<usize, usize> = values.keys().map(|host| (*host, period)).collect();
        let change = event::change(&values, &all, spec.window, noise);
        let hosts = change.as_ref().map_or(fitted.hosts.len(), |change| change.hosts);
        // The periods of a few hosts say how sure the step is; of more, each is its own control.
        let change = change.filter(|change| change.hosts >= MIN_HOSTS).map_or(point.difference, |change| change.change);
        let is_found = change.p() * tests < spec.alpha && change.value.abs() >= spec.least_change;
        is_found.then_some((period, Found { change, hosts, offset: 0 }))
    };
    change_points::find(&logs, &rules, family).into_iter().filter_map(confirmed).collect()
}
