//! A series as a sum: level, host, period, rest. Locations are bisquare centres, so that disturbed runs have no weight.

use super::grid::{Grid, Series};
use super::spread::centre;

/// Fewest hosts of a period whose shared part is taken out: with fewer, a host's own would go with it.
pub(super) const MIN_SHARED: usize = 5;
/// Steps of the fit.
const STEPS: usize = 3;

/// A host in a fit.
#[derive(Clone, Debug)]
pub(super) struct HostPart {
    pub(super) host: usize,
    /// Its level less the series'.
    pub(super) level: f64,
    /// Runs of each boot.
    pub(super) boots: Vec<usize>,
    /// Its points in the series.
    pub(super) points: std::ops::Range<usize>,
}

impl HostPart {
    pub(super) fn runs(&self) -> usize {
        self.points.len()
    }

    /// Boots that would say as much if each had as many runs.
    pub(super) fn even_boots(&self) -> f64 {
        let squares: f64 = self.boots.iter().map(|runs| (*runs as f64).powi(2)).sum();
        (self.runs() as f64).powi(2) / squares.max(1.0)
    }
}

/// The parts of a series.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// Level of the series.
    pub(super) grand: f64,
    /// Hosts in order.
    pub(super) hosts: Vec<HostPart>,
    /// Part that all hosts share in a period; `None` without runs.
    pub(super) periods: Vec<Option<f64>>,
    /// The shared part was taken out of hosts and rest.
    pub(super) shared: bool,
    /// Values without level and period; those of hosts are still in them.
    pub(super) rest: Vec<f64>,
}

/// Fits a series whose values are `logs`.
pub(super) fn fit(grid: &Grid<'_>, series: &Series, logs: &[f64]) -> Fit {
    let meta = |index: usize| grid.meta[series.points[index].run];
    let mut hosts: Vec<HostPart> = Vec::new();
    let mut boots: Vec<usize> = Vec::new();
    for index in 0..series.points.len() {
        let own = meta(index);
        match hosts.last_mut() {
            Some(last) if last.host == own.host => {
                last.points.end = index + 1;
                match boots.iter().position(|boot| *boot == own.boot) {
                    Some(place) => last.boots[place] += 1,
                    None => {
                        boots.push(own.boot);
                        last.boots.push(1);
                    }
                }
            }
            _ => {
                boots = vec![own.boot];
                hosts.push(HostPart { host: own.host, level: 0.0, boots: vec![1], points: index..index + 1 });
            }
        }
    }
    let mut by_period: Vec<Vec<usize>> = vec![Vec::new(); grid.periods.len()];
    for index in 0..series.points.len() {
        by_period[meta(index).period].push(index);
    }
    let mut level = vec![0.0; logs.len()];
    let mut period = vec![None; by_period.len()];
    let of_period = |period: &[Option<f64>], index: usize| period[meta(index).period].unwrap_or(0.0);
    let shared = hosts.len() >= MIN_SHARED;
    let mut grand = centre(logs).unwrap_or(0.0);
    for _ in 0..STEPS {
        for host in &mut hosts {
            let own: Vec<f64> = host
                .points
                .clone()
                .map(|index| logs[index] - grand - if shared { of_period(&period, index) } else { 0.0 })
                .collect();
            host.level = centre(&own).unwrap_or(0.0);
        }
        let middle = centre(&hosts.iter().map(|host| host.level).collect::<Vec<_>>()).unwrap_or(0.0);
        grand += middle;
        for host in &mut hosts {
            host.level -= middle;
            level[host.points.clone()].fill(host.level);
        }
        for (period, members) in period.iter_mut().zip(&by_period) {
            let own: Vec<f64> = members.iter().map(|&index| logs[index] - grand - level[index]).collect();
            *period = centre(&own);
        }
        let of_periods: Vec<f64> = period.iter().flatten().copied().collect();
        let middle = centre(&of_periods).unwrap_or(0.0);
        for one in period.iter_mut().flatten() {
            *one -= middle;
        }
        grand += if shared { middle } else { 0.0 };
        if !shared {
            break;
        }
    }
    let rest = (0..logs.len())
        .map(|index| logs[index] - grand - if shared { of_period(&period, index) } else { 0.0 })
        .collect();
    Fit { grand, hosts, periods: period, shared, rest }
}
