//! Levels of each class: means over hosts, and class against class.

use std::collections::BTreeMap;

use results::stats::interval::Interval;
use results::stats::jackknife::Estimate;
use serde::Serialize;

use super::fit::Components;
use super::grid::{Grid, Kind};
use super::odd::{Judged, OddHost};
use super::spread::centre;

/// A figure of a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelRow {
    /// Setting.
    pub setting: String,
    /// Host class.
    pub class: String,
    /// Kind of the figure.
    pub kind: Kind,
    /// Arm, or "all arms".
    pub arm: String,
    /// Metric.
    pub metric: String,
    /// Mean over hosts: ns, or a ratio. Found changes are taken out: it is the level before them.
    pub level: f64,
    /// Its 95 % interval, by t over hosts; `None` of one host.
    pub interval: Option<Interval>,
    /// Hosts.
    pub hosts: usize,
    /// Boots.
    pub boots: usize,
    /// Number of its runs.
    pub runs: usize,
    /// Ratio to the largest class, whose rows have none.
    pub over_first: Option<f64>,
    /// Its 95 % interval, by Welch's t over hosts; `None` with one host in a class.
    pub over_first_interval: Option<Interval>,
    /// Components of its variance.
    pub spread: Components,
}

/// Lists the rows of every series but speeds, which have no level.
pub(super) fn levels(grid: &Grid<'_>, all: &[(Judged, Components)]) -> Vec<LevelRow> {
    let estimate = |judged: &Judged| {
        let n = judged.fit.hosts.len() as f64;
        let levels = || judged.fit.hosts.iter().map(|host| judged.fit.grand + host.level);
        let mean = levels().sum::<f64>() / n;
        let variance = levels().map(|level| (level - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, (n > 1.0).then(|| Estimate { value: mean, error: (variance / n).sqrt(), freedom: n - 1.0 }))
    };
    let exp = |interval: Interval| Interval { low: interval.low.exp(), high: interval.high.exp() };
    let mut rows = Vec::new();
    for (judged, spread) in all {
        let series = &grid.series[judged.series];
        let Some(setting) = series.setting else { continue };
        let (mean, own) = estimate(judged);
        let same = |(other, _): &&(Judged, Components)| {
            let other = &grid.series[other.series];
            other.class == 0
                && (other.setting, other.kind, &other.arm, &other.metric)
                    == (series.setting, series.kind, &series.arm, &series.metric)
        };
        let first = if series.class > 0 { all.iter().find(same).map(|(first, _)| estimate(first)) } else { None };
        let over = first.and_then(|(_, first)| Some(own?.less(&first?)));
        rows.push(LevelRow {
            setting: grid.settings[setting].label.clone(),
            class: grid.classes[series.class].clone(),
            kind: series.kind,
            arm: series.arm.clone(),
            metric: series.metric.clone(),
            level: mean.exp(),
            interval: own.map(|own| exp(own.interval())),
            hosts: judged.fit.hosts.len(),
            boots: judged.fit.hosts.iter().map(|host| host.boots.len()).sum(),
            runs: series.points.len(),
            over_first: first.map(|(first, _)| (mean - first).exp()),
            over_first_interval: over.map(|over| exp(over.interval())),
            spread: spread.clone(),
        });
    }
    rows
}

/// A row of the heat map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeatRow {
    /// Host, or class.
    pub(crate) name: String,
    pub(crate) class: String,
    /// Difference from the class's middle over all periods, per period, as a logarithm.
    pub(crate) cells: Vec<Option<f64>>,
}

/// The heat map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heat {
    /// Odd hosts, in their order.
    pub(crate) odd: Vec<HeatRow>,
    /// Middle of each class.
    pub(crate) classes: Vec<HeatRow>,
    /// All hosts by class and name.
    pub(crate) hosts: Vec<HeatRow>,
}

/// Maps the speed of hosts.
pub(super) fn heat(grid: &Grid<'_>, odd: &[OddHost]) -> Heat {
    let mut heat = Heat::default();
    for (class, name) in grid.classes.iter().enumerate() {
        let Some(series) = grid.speed(class).map(|index| &grid.series[index]) else { continue };
        let middle = centre(&series.points.iter().map(|point| point.log).collect::<Vec<_>>()).unwrap_or(0.0);
        let mut rows: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
        let mut by_period: Vec<Vec<f64>> = vec![Vec::new(); grid.periods.len()];
        for point in &series.points {
            let meta = grid.meta[point.run];
            let row = rows.entry(&grid.hosts[meta.host].name).or_insert_with(|| vec![None; grid.periods.len()]);
            row[meta.period] = Some(point.log - middle);
            by_period[meta.period].push(point.log - middle);
        }
        let cells = by_period.iter().map(|values| centre(values)).collect();
        heat.classes.push(HeatRow { name: name.clone(), class: name.clone(), cells });
        let row =
            |(host, cells): (&str, Vec<Option<f64>>)| HeatRow { name: host.to_owned(), class: name.clone(), cells };
        heat.hosts.extend(rows.into_iter().map(row));
    }
    let row = |host: &OddHost| heat.hosts.iter().find(|row| row.name == host.host && row.class == host.class).cloned();
    heat.odd = odd.iter().filter_map(row).collect();
    heat
}
