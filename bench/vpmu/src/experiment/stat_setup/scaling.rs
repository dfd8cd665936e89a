//! Growth over the number of events and of CPUs.

use std::time::Instant;

use stat_setup::costs::Costs;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::unit::Outcome;

use super::document::Growth;
use super::measure::Steps;
use host_pmu::stats::ns;

use super::measure::{Setting, method};
use super::prepare::EventRequest;
use crate::arms::rounds::schedule::Schedule;
use results::document::{ScalePoint, Summary, Warning};
use results::error::Error;

/// Most runs per size.
const RUNS: usize = 5;

/// One strategy at one size.
struct SizedArm<'a> {
    strategy: &'a str,
    setting: Setting<'a>,
    method: stat_setup::method::Method,
    totals: Vec<u64>,
    /// True if every supported event was opened on every CPU; otherwise the time is of fewer events.
    whole: bool,
}

/// Order and progress, the rounds asked for and the end of their time, and warnings.
type Tools<'a, 'b> = (&'a mut Schedule, &'a mut Steps<'b>, (u64, Option<Instant>), &'a mut Vec<Warning>);

/// Measures every strategy with each number of events on all CPUs, and with the full list on 1, 2, 4 ... CPUs.
pub(crate) fn measure(
    sizes: &[usize],
    request: &EventRequest,
    base: Setting<'_>,
    strategies: &[String],
    costs: &Costs,
    sysfs: &mut Sysfs,
    (schedule, steps, (rounds, until), warnings): Tools<'_, '_>,
) -> Result<(Vec<ScalePoint>, Vec<Growth>), Error> {
    let lists = sizes.iter().map(|&n| request.sized(n, sysfs)).collect::<Result<Vec<_>, _>>()?;
    let mut points = Vec::new();
    let mut cut = false;
    let mut add = |setting: Setting<'_>| -> Result<(), Error> {
        cut |= until.is_some_and(|until| Instant::now() >= until);
        if cut {
            return Ok(());
        }
        let (mut here, small): (Vec<SizedArm<'_>>, Vec<_>) = strategies
            .iter()
            .map(|strategy| {
                let cpus = setting.cpus.len();
                let method = method(strategy, setting.list, cpus, costs, &setting.choice(costs), setting.purpose);
                SizedArm { strategy, setting, method, totals: Vec::new(), whole: true }
            })
            .partition(|point| setting.fits(point.method.order));
        if !small.is_empty() {
            let names: Vec<&str> = small.iter().map(|point| point.strategy).collect();
            let (names, events, cpus) = (names.join(", "), setting.list.events.len(), setting.cpus.len());
            let why = format!(
                "{names} left out of {events} events × {cpus} CPUs: more descriptors than the limit of open files"
            );
            warnings.push(Warning::of_all("file-limit", why));
        }
        for _ in 0..runs(rounds) {
            for at in schedule.next_round(here.len()) {
                let point = &mut here[at];
                steps.step(|| {
                    format!("{} × {}, {}", point.setting.list.events.len(), point.setting.cpus.len(), point.strategy)
                })?;
                let finished = point.setting.timed(point.method);
                point.whole &= !finished.outcomes.iter().any(|o| matches!(o, Outcome::NotCounted { .. }));
                point.totals.push(ns(finished.phases.iter().map(|cost| cost.wall).sum()));
            }
        }
        points.extend(here.into_iter().filter(|point| point.whole).map(|point| ScalePoint {
            strategy: point.strategy.to_owned(),
            events: point.setting.list.events.len() as u64,
            cpus: point.setting.cpus.len() as u64,
            total_ns: Summary::of_values(&point.totals),
        }));
        Ok(())
    };
    for list in &lists {
        add(Setting { list, ..base })?;
    }
    let mut cpus = 1;
    while cpus < base.cpus.len() {
        add(Setting { cpus: &base.cpus[..cpus], ..base })?;
        cpus *= 2;
    }
    if base.cpus.len() > 1 {
        add(base)?;
    }
    let all = base.cpus.len() as u64;
    let events = base.list.events.len() as u64;
    let mut growth = Vec::new();
    for strategy in strategies {
        let series = |keep: &dyn Fn(&ScalePoint) -> bool, x: fn(&ScalePoint) -> u64| -> Vec<(u64, u64)> {
            let here = points.iter().filter(|point| point.strategy == *strategy && keep(point));
            here.map(|point| (x(point), point.total_ns.p50)).collect()
        };
        growth.extend(fit(strategy, "events", &series(&|point| point.cpus == all, |point| point.events)));
        growth.extend(fit(strategy, "cpus", &series(&|point| point.events == events, |point| point.cpus)));
    }
    if cut {
        let message = "--duration ended the measurement of growth: sizes are missing".to_owned();
        warnings.push(Warning::of_all("growth-cut", message));
    }
    Ok((points, growth))
}

/// Returns the runs per size: no more than the rounds asked for.
fn runs(rounds: u64) -> usize {
    usize::try_from(rounds).map_or(RUNS, |rounds| rounds.min(RUNS))
}

/// Returns the number of steps of `measure`.
pub(crate) fn steps(sizes: usize, cpus: usize, strategies: usize, rounds: u64) -> u64 {
    let by_cpus = if cpus > 1 { (cpus as u64).next_power_of_two().ilog2() as usize + 1 } else { 0 };
    if sizes == 0 { 0 } else { (runs(rounds) * strategies * (sizes + by_cpus)) as u64 }
}

/// Returns the slope of log(time) over log(x); `None` for fewer than two different x.
fn fit(strategy: &str, over: &str, points: &[(u64, u64)]) -> Option<Growth> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|&&(x, y)| x > 0 && y > 0).map(|&(x, y)| ((x as f64).ln(), (y as f64).ln())).collect();
    let n = logs.len() as f64;
    let (mean_x, mean_y) = (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
    let spread: f64 = logs.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let from = points.iter().map(|p| p.0).min()?;
    let to = points.iter().map(|p| p.0).max()?;
    (from < to && spread > 0.0).then(|| Growth {
        strategy: strategy.to_owned(),
        over: over.to_owned(),
        from,
        to,
        exponent: logs.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum::<f64>() / spread,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_of_known_curves() {
        let curve = |power: u32| -> Vec<(u64, u64)> { [100, 200, 400, 800].map(|x: u64| (x, 7 * x.pow(power))).into() };
        for power in [1, 2] {
            let growth = fit("auto", "events", &curve(power)).unwrap();
            assert!((growth.exponent - f64::from(power)).abs() < 1e-9, "{growth:?}");
            assert_eq!((growth.from, growth.to), (100, 800));
        }
        assert_eq!(fit("auto", "cpus", &[(1, 5)]), None);
        assert_eq!(fit("auto", "cpus", &[]), None);
        assert_eq!(fit("auto", "cpus", &[(2, 5), (2, 6)]), None);
    }

    #[test]
    fn steps_are_known_before() {
        assert_eq!(steps(5, 2, 5, 15), 5 * 5 * 7);
        assert_eq!(steps(5, 2, 5, 3), 3 * 5 * 7, "no more runs than rounds");
        assert_eq!(steps(2, 1, 1, 5), 10);
        assert_eq!(steps(2, 94, 1, 5), 5 * (2 + 8));
        assert_eq!(steps(0, 94, 5, 5), 0);
    }
}
