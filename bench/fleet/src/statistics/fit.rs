//! A series as a sum: level, host, period, rest. Locations are bisquare centres, so that disturbed runs have no weight.

use results::stats::interval::Interval;
use results::stats::median;
use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::grid::{Grid, Series};
use super::spread::{EFFICIENCY, around_zero, beyond, centre};

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

/// A standard deviation of logarithms: 0.01 is 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The standard deviation.
    pub value: f64,
    /// Its 95 % interval, by the chi-square of its degrees of freedom with the parts below taken as known.
    pub interval: Interval,
    /// Hosts, boots or runs that it was taken over.
    pub over: usize,
}

/// The components of one series. A part is `None` where nothing shows it: one host, one boot of each host, one run of each boot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Components {
    /// Between hosts of the class.
    pub hosts: Option<Spread>,
    /// Between boots of a host.
    pub boots: Option<Spread>,
    /// Between runs of a boot, beyond what rounds explain.
    pub runs: Option<Spread>,
    /// Within runs: the median standard error of a run's figure by its rounds; its interval is not estimated.
    pub rounds: Option<Spread>,
}

/// Variances by which a host's level is weighed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    /// Variance of the runs of a boot, their rounds included.
    pub(super) run: f64,
    /// Variance of boots.
    pub(super) boot: f64,
    /// Variance of hosts, beyond both.
    pub(super) host: f64,
    /// Share of runs that are disturbed: further off than normal ones are.
    pub(super) outliers: f64,
}

/// Runs further off than so many standard deviations are disturbed, beyond the share of normal ones that are.
const FAR: (f64, f64) = (3.0, 0.0027);

impl Noise {
    /// Returns the variance of a host's level around its true one.
    pub(super) fn of_level(&self, host: &HostPart) -> f64 {
        self.boot / host.even_boots() + self.run / host.runs().max(1) as f64
    }
}

/// A boot: its centre and runs.
struct Boot {
    centre: f64,
    runs: usize,
}

/// Estimates the components of a fitted series.
pub(super) fn components(grid: &Grid<'_>, series: &Series, fit: &Fit) -> (Components, Noise) {
    // Periods taken out of few hosts take some of their spread along.
    let hosts = fit.hosts.len() as f64;
    let shared = if fit.shared { hosts / (hosts - 1.0) } else { 1.0 };
    let mut within = Vec::new();
    let mut freedom = 0;
    let mut boots: Vec<Vec<Boot>> = Vec::new();
    for host in &fit.hosts {
        let mut own: Vec<(usize, Vec<f64>)> = Vec::new();
        for index in host.points.clone() {
            let boot = grid.meta[series.points[index].run].boot;
            match own.iter_mut().find(|(other, _)| *other == boot) {
                Some((_, values)) => values.push(fit.rest[index]),
                None => own.push((boot, vec![fit.rest[index]])),
            }
        }
        for (_, values) in &own {
            let middle = centre(values).unwrap_or(0.0);
            let n = values.len() as f64;
            if values.len() > 1 {
                freedom += values.len() - 1;
                within.extend(values.iter().map(|value| (value - middle) * (shared * n / (n - 1.0)).sqrt()));
            }
        }
        boots.push(
            own.iter().map(|(_, values)| Boot { centre: centre(values).unwrap_or(0.0), runs: values.len() }).collect(),
        );
    }
    let errors: Vec<f64> = series.points.iter().filter_map(|point| point.error).collect();
    let rounds = median(&errors).filter(|_| errors.len() * 2 > series.points.len());
    let total = around_zero(&within).filter(|_| freedom > 1).map_or(0.0, |spread| spread.powi(2));
    let known = rounds.map_or(0.0, |error| error * error);
    let of_runs = (freedom > 1).then(|| spread((total - known).max(0.0), known, freedom as f64, freedom));

    let several: Vec<&Vec<Boot>> = boots.iter().filter(|boots| boots.len() > 1).collect();
    let (mut off, mut known_of_boot, mut count) = (Vec::new(), Vec::new(), 0);
    for boots in &several {
        let n = boots.len() as f64;
        let mean = boots.iter().map(|boot| boot.centre).sum::<f64>() / n;
        count += boots.len();
        // Runs contribute to the difference from the mean twice: by the boot, and by the mean.
        let of_mean = boots.iter().map(|boot| total / boot.runs as f64).sum::<f64>() / (n * n);
        for boot in *boots {
            off.push((boot.centre - mean) * (shared * n / (n - 1.0)).sqrt());
            known_of_boot.push((total / boot.runs as f64 * (1.0 - 2.0 / n) + of_mean) * n / (n - 1.0));
        }
    }
    let boot = beyond(&off, &known_of_boot);
    let of_boots = (count > several.len() + 1).then(|| {
        let lower = known_of_boot.iter().sum::<f64>() / known_of_boot.len() as f64;
        spread(boot, lower, (count - several.len()) as f64, count)
    });
    let far = within.iter().filter(|off| off.abs() > FAR.0 * total.sqrt()).count() as f64;
    let outliers = (far / within.len().max(1) as f64 - FAR.1).max(0.0);
    let mut noise = Noise { run: total, boot, host: 0.0, outliers };
    let levels: Vec<f64> = fit.hosts.iter().map(|host| host.level).collect();
    let known_of_host: Vec<f64> = fit.hosts.iter().map(|host| noise.of_level(host)).collect();
    let scale = (hosts / (hosts - 1.0).max(1.0)).sqrt();
    let levels: Vec<f64> = levels.iter().map(|level| level * scale).collect();
    noise.host = beyond(&levels, &known_of_host);
    let of_hosts = (fit.hosts.len() > 2).then(|| {
        let lower = known_of_host.iter().sum::<f64>() / hosts;
        spread(noise.host, lower, hosts - 1.0, fit.hosts.len())
    });
    let rounds =
        rounds.map(|value| Spread { value, interval: Interval { low: value, high: value }, over: errors.len() });
    (Components { hosts: of_hosts, boots: of_boots, runs: of_runs, rounds }, noise)
}

/// Estimates the spread of a variance `own` that was seen together with a known one.
fn spread(own: f64, lower: f64, freedom: f64, over: usize) -> Spread {
    let freedom = (freedom * EFFICIENCY).max(1.0);
    let at = |q: f64| ChiSquared::new(freedom).map_or(freedom, |law| law.inverse_cdf(q));
    let end = |q: f64| ((own + lower) * freedom / at(q) - lower).max(0.0).sqrt();
    Spread { value: own.sqrt(), interval: Interval { low: end(0.975), high: end(0.025) }, over }
}
