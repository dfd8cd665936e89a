//! Components of a figure's variance: hosts, boots of a host, runs of a boot, rounds of a run.

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::fit::{Fit, HostPart};
use super::grid::{Grid, Series};
use super::spread::{EFFICIENCY, around_zero, beyond, centre};
use results::stats::interval::Interval;
use results::stats::median;

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
    /// The variance of a host's level around its true one.
    pub(super) fn of_level(&self, host: &HostPart) -> f64 {
        self.boot / host.even_boots() + self.run / host.runs().max(1) as f64
    }
}

/// A boot: its centre and runs.
struct Boot {
    centre: f64,
    runs: usize,
}

/// The components of a fitted series.
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

/// The spread of a variance `own` that was seen together with a known one.
fn spread(own: f64, lower: f64, freedom: f64, over: usize) -> Spread {
    let freedom = (freedom * EFFICIENCY).max(1.0);
    let at = |q: f64| ChiSquared::new(freedom).map_or(freedom, |law| law.inverse_cdf(q));
    let end = |q: f64| ((own + lower) * freedom / at(q) - lower).max(0.0).sqrt();
    Spread { value: own.sqrt(), interval: Interval { low: end(0.975), high: end(0.025) }, over }
}
