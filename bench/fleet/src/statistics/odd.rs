//! Hosts that differ from their class.

use std::collections::BTreeMap;

use results::stats::change_points::{self, ChangePoint, Rules};
use results::stats::interval::Interval;
use results::stats::jackknife::Estimate;
use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF};

use super::changes::{Step, Turn};
use super::fit::{Fit, HostPart, Noise};
use super::grid::{FleetSpec, Grid, Kind};
use super::spread::{EFFICIENCY, around_zero, centre};

/// Fewest hosts of a class in which one can be odd.
pub(crate) const MIN_CLASS: usize = 3;
/// From so many hosts on, their spread is estimated robustly over all of them; with fewer, over the others of each.
const ROBUST: usize = 10;

/// A figure by which a host is odd.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OddFigure {
    /// Setting; empty of all together.
    pub setting: String,
    /// Kind of the figure.
    pub kind: Kind,
    /// Arm, or "all arms".
    pub arm: String,
    /// Metric, or "all metrics".
    pub metric: String,
    /// Only the newest periods show it.
    pub lately: bool,
    /// Relative difference from the class, 0.05 for 5 % slower.
    pub change: f64,
    /// Its 95 % interval, by the spread of the host's boots and runs.
    pub interval: Interval,
    /// p value, adjusted for the host's figures (Holm).
    pub p_adjusted: f64,
}

/// A host that differs from its class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OddHost {
    /// The host.
    pub host: String,
    /// Its class.
    pub class: String,
    /// Hosts of the class.
    pub of: usize,
    /// Runs that it was judged by.
    pub runs: usize,
    /// Slow or fast in all arms alike.
    pub whole: bool,
    /// The verdict in words.
    pub verdict: String,
    /// Something is slower.
    pub slower: bool,
    /// First period of a step of this host alone, with the facts that changed on it then; empty if it was odd all the time.
    pub since: String,
    /// Figures, the speed of the host first.
    pub figures: Vec<OddFigure>,
    /// p value over all its figures, before the adjustment for hosts.
    pub p: f64,
}

/// A series with all that odd hosts are judged by.
pub(super) struct Judged {
    pub(super) series: usize,
    pub(super) fit: Fit,
    pub(super) noise: Noise,
}

/// One test of one host.
struct Test {
    judged: usize,
    /// It is about the host's speed.
    speed: bool,
    lately: bool,
    value: f64,
    variance: f64,
    p: f64,
}

fn p_of(value: f64, variance: f64, freedom: f64) -> f64 {
    Estimate { value, error: variance.sqrt(), freedom }.p()
}

/// Computes the chance that half of so many runs are disturbed: then a centre is theirs.
fn by_outliers(runs: usize, share: f64) -> f64 {
    let law = Binomial::new(share.min(1.0), runs as u64);
    law.map_or(0.0, |law| law.sf(runs.div_ceil(2).saturating_sub(1) as u64))
}

/// Computes the distance of the hosts' levels from their class, with the p value of each: (difference, p).
fn against_class(levels: &[f64], own: &[f64], host: f64) -> Vec<(f64, f64)> {
    let n = levels.len() as f64;
    if levels.len() >= ROBUST {
        let freedom = EFFICIENCY * (n - 1.0);
        return levels.iter().zip(own).map(|(level, own)| (*level, p_of(*level, host + own, freedom))).collect();
    }
    // With few hosts, each against the others: what is odd about it must not widen the spread that it is judged by.
    let of = |place: usize| {
        let others: Vec<f64> =
            levels.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, level)| *level).collect();
        let m = others.len() as f64;
        let mean = others.iter().sum::<f64>() / m;
        let seen = others.iter().map(|level| (level - mean).powi(2)).sum::<f64>() / (m - 1.0);
        let known = own.iter().sum::<f64>() / n;
        let variance = seen.max(known) * (1.0 + 1.0 / m);
        (levels[place] - mean, p_of(levels[place] - mean, variance, m - 1.0))
    };
    (0..levels.len()).map(of).collect()
}

/// Level, variance and runs of a host's newest periods.
type Recent = (f64, f64, usize);

/// Levels of hosts in the newest periods alone, less the middle of them.
fn newest(grid: &Grid<'_>, judged: &Judged, window: usize) -> Vec<Option<Recent>> {
    let from = grid.periods.len().saturating_sub(window);
    let series = &grid.series[judged.series];
    let of = |host: &HostPart| {
        let own: Vec<f64> = host
            .points
            .clone()
            .filter(|index| grid.meta[series.points[*index].run].period >= from)
            .map(|index| judged.fit.rest[index])
            .collect();
        let variance = judged.noise.boot + judged.noise.run / own.len().max(1) as f64;
        (own.len() > 1).then(|| centre(&own).map(|level| (level, variance, own.len())))
    };
    let levels: Vec<Option<Recent>> = judged.fit.hosts.iter().map(|host| of(host).flatten()).collect();
    let middle = centre(&levels.iter().flatten().map(|(level, ..)| *level).collect::<Vec<_>>()).unwrap_or(0.0);
    levels.into_iter().map(|found| found.map(|(level, own, runs)| (level - middle, own, runs))).collect()
}

/// Makes every test of every host.
fn tests(grid: &Grid<'_>, all: &[Judged], spec: &FleetSpec) -> BTreeMap<usize, Vec<Test>> {
    let mut tests: BTreeMap<usize, Vec<Test>> = BTreeMap::new();
    for (place, judged) in all.iter().enumerate() {
        let hosts = &judged.fit.hosts;
        if hosts.len() < MIN_CLASS {
            continue;
        }
        let speed = grid.speed(grid.series[judged.series].class) == Some(judged.series);
        let levels: Vec<f64> = hosts.iter().map(|host| host.level).collect();
        let own: Vec<f64> = hosts.iter().map(|host| judged.noise.of_level(host)).collect();
        for ((host, own), (value, p)) in hosts.iter().zip(&own).zip(against_class(&levels, &own, judged.noise.host)) {
            let p = p.max(by_outliers(host.runs(), judged.noise.outliers));
            let test = Test { judged: place, speed, lately: false, value, variance: *own, p };
            tests.entry(host.host).or_default().push(test);
        }
        if speed && grid.periods.len() > 2 * spec.window && hosts.len() >= ROBUST {
            let freedom = EFFICIENCY * (hosts.len() as f64 - 1.0);
            let newest = newest(grid, judged, spec.window);
            // Few runs of one boot may scatter more than the parts say.
            let seen = newest.iter().flatten().map(|(level, ..)| *level).collect::<Vec<_>>();
            let seen = around_zero(&seen).unwrap_or(0.0).powi(2);
            for (host, found) in hosts.iter().zip(newest) {
                let Some((value, own, runs)) = found else { continue };
                let p = p_of(value, seen.max(judged.noise.host + own), freedom)
                    .max(by_outliers(runs, judged.noise.outliers));
                let test = Test { judged: place, speed: false, lately: true, value, variance: own, p };
                tests.entry(host.host).or_default().push(test);
            }
        }
    }
    tests
}

/// Combines the tests of a host into a p value: half of the weight is on its speed, a quarter on its speed lately, a
/// quarter on everything else (Simes).
fn of_host(tests: &[Test]) -> f64 {
    let least =
        |wanted: fn(&&Test) -> bool| tests.iter().filter(wanted).map(|test| test.p).fold(f64::INFINITY, f64::min);
    let (speed, lately) = (least(|test| test.speed), least(|test| test.lately));
    let mut others: Vec<f64> = tests.iter().filter(|test| !test.speed && !test.lately).map(|test| test.p).collect();
    others.sort_by(f64::total_cmp);
    let n = others.len() as f64;
    let simes = others.iter().enumerate().map(|(rank, p)| p * n / (rank + 1) as f64).fold(f64::INFINITY, f64::min);
    (2.0 * speed).min(4.0 * lately).min(4.0 * simes).min(1.0)
}

/// Lists the hosts that are odd: slower ones first, the most different first.
pub(super) fn odd(grid: &Grid<'_>, all: &[Judged], turns: &[Turn], spec: &FleetSpec) -> Vec<OddHost> {
    let tests = tests(grid, all, spec);
    let p: BTreeMap<usize, f64> = tests.iter().map(|(host, tests)| (*host, of_host(tests))).collect();
    let mut sorted: Vec<f64> = p.values().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let hosts = sorted.len() as f64;
    // Benjamini and Hochberg: the largest p that is below its rank's share.
    let rank = sorted
        .iter()
        .enumerate()
        .filter(|(rank, p)| **p <= spec.false_share * (rank + 1) as f64 / hosts)
        .map(|(rank, _)| rank + 1)
        .max();
    let Some(rank) = rank else { return Vec::new() };
    let bound = spec.false_share * rank as f64 / hosts;
    let mut odd: Vec<OddHost> = tests
        .iter()
        .filter(|(host, _)| p[host] <= bound)
        .filter_map(|(host, tests)| {
            verdict(grid, all, *host, tests, turns, bound, spec).map(|odd| OddHost { p: p[host], ..odd })
        })
        .collect();
    let size = |host: &OddHost| host.figures.first().map_or(0.0, |figure| figure.change.abs());
    odd.sort_by(|a, b| b.slower.cmp(&a.slower).then(b.whole.cmp(&a.whole)).then(size(b).total_cmp(&size(a))));
    odd
}

fn verdict(
    grid: &Grid<'_>,
    all: &[Judged],
    host: usize,
    tests: &[Test],
    turns: &[Turn],
    bound: f64,
    spec: &FleetSpec,
) -> Option<OddHost> {
    let adjusted = results::stats::holm(&tests.iter().map(|test| test.p).collect::<Vec<_>>());
    // Each part of the weight is adjusted by itself.
    let p = |index: usize| match &tests[index] {
        test if test.speed => (2.0 * test.p).min(adjusted[index]),
        test if test.lately => (4.0 * test.p).min(adjusted[index]),
        _ => adjusted[index],
    };
    let mut found: Vec<(usize, &Test)> = tests
        .iter()
        .enumerate()
        .filter(|(index, test)| p(*index) <= bound && test.value.exp_m1().abs() >= spec.least_host)
        .collect();
    // The newest periods are of interest where the whole time does not show it.
    if found.iter().any(|(_, test)| test.speed) {
        found.retain(|(_, test)| !test.lately);
    }
    found.sort_by(|(_, a), (_, b)| {
        let key = |test: &Test| (!test.speed, !test.lately, grid.series[all[test.judged].series].kind);
        key(a).cmp(&key(b)).then(b.value.abs().total_cmp(&a.value.abs()))
    });
    let figure = |(index, test): &(usize, &Test)| {
        let series = &grid.series[all[test.judged].series];
        let freedom = (all[test.judged].fit.hosts.len() as f64 - 1.0).max(1.0);
        let interval = Estimate { value: test.value, error: test.variance.sqrt(), freedom }.interval();
        OddFigure {
            setting: series.setting.map_or_else(String::new, |setting| grid.settings[setting].label.clone()),
            kind: series.kind,
            arm: series.arm.clone(),
            metric: series.metric.clone(),
            lately: test.lately,
            change: test.value.exp_m1(),
            interval: Interval { low: interval.low.exp_m1(), high: interval.high.exp_m1() },
            p_adjusted: p(*index),
        }
    };
    let figures: Vec<OddFigure> = found.iter().map(figure).collect();
    let first = figures.first()?;
    let whole = figures.iter().any(|figure| figure.kind != Kind::Ratio);
    let slower = first.change > 0.0;
    let word = if slower { "slow" } else { "fast" };
    let verdict = match (whole, first.lately) {
        (true, false) => format!("{word} host: all arms alike"),
        (true, true) => format!("{word} host lately: all arms alike"),
        (false, _) => format!("{} of arm {} alone", if slower { "slow" } else { "fast" }, first.arm),
    };
    let judged = &all[found[0].1.judged];
    let part = judged.fit.hosts.iter().find(|part| part.host == host)?;
    let since = if whole { since(grid, judged, part, turns, spec) } else { String::new() };
    let class = grid.hosts[host].class;
    Some(OddHost {
        host: grid.hosts[host].name.to_string(),
        class: grid.classes[class].clone(),
        of: judged.fit.hosts.len(),
        runs: part.runs(),
        whole,
        verdict,
        slower,
        since,
        figures,
        p: 0.0,
    })
}

/// Finds the step in one host's own values, if it is at least the least difference.
fn since(grid: &Grid<'_>, judged: &Judged, part: &HostPart, turns: &[Turn], spec: &FleetSpec) -> String {
    let own: Vec<f64> = part.points.clone().map(|index| judged.fit.rest[index]).collect();
    let Some(step) = step(&own, &judged.noise, spec) else { return String::new() };
    let period = grid.meta[grid.series[judged.series].points[part.points.start + step].run].period;
    let with: Vec<String> = turns
        .iter()
        .filter(|turn| turn.hosts.get(&part.host).is_some_and(|at| at.abs_diff(period) <= 1))
        .flat_map(|turn| turn.steps.iter().map(Step::text))
        .collect();
    let with = if with.is_empty() { String::new() } else { format!(" (with {})", with.join(", ")) };
    grid.periods[period].clone() + &with
}

/// Finds the largest step of one host's runs that is beyond what its boots and runs do: its first run.
fn step(own: &[f64], noise: &Noise, spec: &FleetSpec) -> Option<usize> {
    let rules = Rules {
        p: spec.alpha,
        strength: spec.least_host,
        logarithms: true,
        variance: Some((noise.run + noise.boot, f64::INFINITY)),
        ..Rules::default()
    };
    let found = change_points::find(own, &rules, 1);
    let places: Vec<usize> = found.iter().map(|point| point.index).collect();
    let ends: Vec<usize> = [0].into_iter().chain(places).chain([own.len()]).collect();
    // The search takes all runs as independent, and those of one boot are not: each side may be a single boot.
    let is_sure = |(at, point): &(&[usize], ChangePoint)| {
        let [before, after] = [at[1] - at[0], at[2] - at[1]].map(|runs| 1.0 / runs as f64);
        let variance = noise.run * (before + after) + 2.0 * noise.boot;
        p_of(point.difference.value, variance, f64::INFINITY) * (own.len() as f64) < spec.alpha
    };
    let size = |point: &ChangePoint| point.difference.value.abs();
    let sure = ends.windows(3).zip(found).filter(is_sure).map(|(_, point)| point);
    sure.max_by(|a, b| size(a).total_cmp(&size(b))).map(|step| step.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_that_is_as_slow_as_boots_are_is_no_step() {
        // Two boots of twenty runs each; boots differ by 1 % and runs by 0.5 %.
        let of = |up: f64| {
            let own: Vec<f64> =
                (0..40_u32).map(|run| f64::from(run * 7 % 5) / 400.0 + if run < 20 { 0.0 } else { up }).collect();
            let noise = Noise { run: 0.005_f64.powi(2), boot: 0.01_f64.powi(2), host: 0.0, outliers: 0.0 };
            step(&own, &noise, &FleetSpec::default())
        };
        assert_eq!((of(0.04), of(0.1)), (None, Some(20)));
    }
}
