//! Levels of each class: means over hosts, and class against class.

use serde::Serialize;

use super::components::Components;
use super::grid::{Grid, Kind};
use super::odd::Judged;
use results::stats::interval::Interval;
use results::stats::jackknife::Estimate;

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
    /// Runs.
    pub runs: usize,
    /// Ratio to the largest class, whose rows have none.
    pub over_first: Option<f64>,
    /// Its 95 % interval, by Welch's t over hosts; `None` with one host in a class.
    pub over_first_interval: Option<Interval>,
    /// Components of its variance.
    pub spread: Components,
}

/// The rows of every series but speeds, which have no level.
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
