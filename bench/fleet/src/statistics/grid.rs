//! Runs as series of figures: one for each class, setting and question.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use results::compare::Rules;
use results::metric;
use results::stats::median;
use results::write::utc;
use serde::Serialize;

use crate::run::Run;

/// Kind of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Times of all arms and judged metrics of all settings together: the speed of the host.
    Speed,
    /// Times of all arms of one setting and metric together.
    AllArms,
    /// An arm's ratio to the floor, or to all arms together where there is no floor.
    Ratio,
    /// An arm's time.
    Time,
}

/// A host in one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: Arc<str>,
    pub(crate) class: usize,
}

/// Runs that are comparable with one another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Experiment, main parameters, and the variant if there are several.
    pub label: String,
    /// Number of its runs.
    pub runs: usize,
    /// The backend only stands in for hardware events.
    pub stand_in: bool,
}

/// Host, boot and period of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) host: usize,
    pub(crate) boot: usize,
    pub(crate) period: usize,
}

/// A value of a series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) run: usize,
    pub(crate) log: f64,
    pub(crate) error: Option<f64>,
}

/// Values of one question in one class, by host and period.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// `None`: of all settings together.
    pub(crate) setting: Option<usize>,
    pub(crate) class: usize,
    pub(crate) kind: Kind,
    pub(crate) arm: String,
    pub(crate) metric: String,
    pub(crate) points: Vec<Point>,
}

impl Series {
    /// Returns whether a host or a change is judged by it.
    pub(crate) fn is_judged(&self) -> bool {
        self.kind != Kind::Time && metric::find(&self.metric).is_none_or(|metric| metric.judged)
    }
}

/// All runs of a fleet.
pub(crate) struct Grid<'a> {
    pub(crate) runs: &'a [Run],
    pub(crate) meta: Vec<Meta>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) classes: Vec<String>,
    pub(crate) settings: Vec<Setting>,
    /// Names of periods: repetitions or days.
    pub(crate) periods: Vec<String>,
    /// Periods are repetitions.
    pub(crate) by_repetition: bool,
    pub(crate) series: Vec<Series>,
}

/// Arms with their points.
type Arms<'a> = Vec<(&'a str, &'a [Point])>;
/// A run, values, and the sum of their squared errors.
type Cell = (usize, Vec<f64>, Option<f64>);

/// Name of a host whose documents have none.
const NAMELESS: &str = "(no name)";

/// Numbers for texts, in the order they are met.
struct Names<T>(HashMap<T, usize>, Vec<T>);

impl<T: Clone + Eq + std::hash::Hash> Names<T> {
    fn new() -> Self {
        Self(HashMap::new(), Vec::new())
    }

    fn of(&mut self, name: T) -> usize {
        *self.0.entry(name).or_insert_with_key(|name| {
            self.1.push(name.clone());
            self.1.len() - 1
        })
    }
}

impl<'a> Grid<'a> {
    pub(crate) fn new(runs: &'a [Run]) -> Self {
        let (periods, by_repetition, of_run) = of(runs);
        let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
        for run in runs {
            *classes.entry(run.class()).or_default() += 1;
        }
        // The largest class first.
        let mut classes: Vec<(&str, usize)> = classes.into_iter().collect();
        classes.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let classes: Vec<String> = classes.into_iter().map(|(name, _)| name.to_owned()).collect();
        let several = runs.iter().map(|run| &run.labels.variant).collect::<BTreeSet<_>>().len() > 1;
        let (mut hosts, mut boots, mut keys) = (Names::new(), Names::new(), Names::new());
        let (mut settings, mut meta, mut setting_of) = (Vec::new(), Vec::new(), Vec::new());
        for (run, period) in runs.iter().zip(of_run) {
            let name: Arc<str> = if run.host.is_empty() { NAMELESS.into() } else { Arc::clone(&run.host) };
            let class = classes.iter().position(|class| class == run.class()).unwrap_or(0);
            let host = hosts.of((name, class));
            let boot = boots.of((host, &*run.boot));
            let setting = keys.of((&*run.key, &run.labels.variant));
            if setting == settings.len() {
                let variant = run.labels.variant.as_deref().filter(|_| several);
                let label = variant.map_or_else(|| run.setting.to_string(), |name| format!("{}, {name}", run.setting));
                settings.push(Setting { label, runs: 0, stand_in: false });
            }
            settings[setting].runs += 1;
            settings[setting].stand_in |= run.stand_in;
            setting_of.push(setting);
            meta.push(Meta { host, boot, period });
        }
        let hosts = hosts.1.into_iter().map(|(name, class)| Host { name, class }).collect();
        let mut grid = Self { runs, meta, hosts, classes, settings, periods, by_repetition, series: Vec::new() };
        grid.series = grid.of_arms(&setting_of);
        grid.add_speed();
        grid.series.sort_by(|a, b| {
            let key = |one: &Series| (one.class, one.setting, one.kind);
            key(a).cmp(&key(b)).then_with(|| a.metric.cmp(&b.metric)).then_with(|| a.arm.cmp(&b.arm))
        });
        for series in &mut grid.series {
            series.points.sort_by_key(|point| {
                let meta = grid.meta[point.run];
                (meta.host, meta.period, grid.runs[point.run].started_unix)
            });
        }
        grid
    }

    /// Times and ratios of each arm, and all arms together.
    fn of_arms(&self, setting_of: &[usize]) -> Vec<Series> {
        let mut times: HashMap<(usize, usize, &str, &str), Vec<Point>> = HashMap::new();
        let mut ratios = times.clone();
        for (run, (of, setting)) in self.runs.iter().zip(setting_of).enumerate() {
            let class = self.hosts[self.meta[run].host].class;
            for figure in of.figures.iter().filter(|figure| figure.doubt.is_none()) {
                let key = (*setting, class, &*figure.metric, &*figure.arm);
                let point = |level: crate::run::Level| Point { run, log: level.log, error: level.error };
                times.entry(key).or_default().push(point(figure.time));
                if let Some(ratio) = figure.ratio {
                    ratios.entry(key).or_default().push(point(ratio));
                }
            }
        }
        let mut together: HashMap<(usize, usize, &str), Arms<'_>> = HashMap::new();
        for ((setting, class, metric, arm), points) in &times {
            together.entry((*setting, *class, metric)).or_default().push((arm, points));
        }
        let series = |setting: usize, class: usize, kind, arm: &str, metric: &str, points| Series {
            setting: Some(setting),
            class,
            kind,
            arm: arm.to_owned(),
            metric: metric.to_owned(),
            points,
        };
        let mut all = Vec::new();
        for ((setting, class, metric), arms) in &together {
            let mean = Self::all_arms(arms);
            let has_floor = arms.iter().any(|(arm, _)| ratios.contains_key(&(*setting, *class, *metric, *arm)));
            if !has_floor && arms.len() > 1 {
                let by_run: HashMap<usize, f64> = mean.iter().map(|point| (point.run, point.log)).collect();
                for (arm, points) in arms {
                    let over = |point: &Point| Some(Point { log: point.log - by_run.get(&point.run)?, ..*point });
                    let points = points.iter().filter_map(over).collect();
                    all.push(series(*setting, *class, Kind::Ratio, arm, metric, points));
                }
            }
            all.push(series(*setting, *class, Kind::AllArms, "all arms", metric, mean));
        }
        for (kind, found) in [(Kind::Time, times), (Kind::Ratio, ratios)] {
            for ((setting, class, metric, arm), points) in found {
                all.push(series(setting, class, kind, arm, metric, points));
            }
        }
        all
    }

    /// Computes the mean over arms of each run. An arm that a run lacks does not move it: arms are centred first.
    fn all_arms(arms: &[(&str, &[Point])]) -> Vec<Point> {
        let level = |points: &[Point]| median(&points.iter().map(|point| point.log).collect::<Vec<_>>()).unwrap_or(0.0);
        let levels: Vec<f64> = arms.iter().map(|(_, points)| level(points)).collect();
        let grand = levels.iter().sum::<f64>() / levels.len().max(1) as f64;
        // Sum, sum of squared errors, arms.
        let mut sums: BTreeMap<usize, (f64, Option<f64>, f64)> = BTreeMap::new();
        for ((_, points), level) in arms.iter().zip(levels) {
            for point in *points {
                let (sum, squares, count) = sums.entry(point.run).or_insert((0.0, Some(0.0), 0.0));
                *sum += point.log - level;
                *squares = squares.zip(point.error).map(|(squares, error)| squares + error * error);
                *count += 1.0;
            }
        }
        let mean = |(run, (sum, squares, count)): (usize, (f64, Option<f64>, f64))| {
            let error = squares.map(|squares: f64| squares.sqrt() / count);
            Point { run, log: grand + sum / count, error }
        };
        sums.into_iter().map(mean).collect()
    }

    /// Adds the speed of each host in each period: all judged settings and metrics together, centred. A class with one
    /// of them has none.
    fn add_speed(&mut self) {
        for class in 0..self.classes.len() {
            let own = |series: &&Series| series.class == class && series.kind == Kind::AllArms && series.is_judged();
            let parts: Vec<&Series> = self.series.iter().filter(own).collect();
            if parts.len() < 2 {
                continue;
            }
            // Each host and period has runs, values and a sum of squared errors.
            let mut cells: BTreeMap<(usize, usize), Cell> = BTreeMap::new();
            for part in parts {
                let logs: Vec<f64> = part.points.iter().map(|point| point.log).collect();
                let level = median(&logs).unwrap_or(0.0);
                for point in &part.points {
                    let meta = self.meta[point.run];
                    let cell = cells.entry((meta.host, meta.period)).or_insert((point.run, Vec::new(), Some(0.0)));
                    cell.1.push(point.log - level);
                    cell.2 = cell.2.zip(point.error).map(|(squares, error)| squares + error * error);
                }
            }
            let point = |(run, logs, squares): Cell| {
                let count = logs.len() as f64;
                Point {
                    run,
                    log: logs.iter().sum::<f64>() / count,
                    error: squares.map(|squares| squares.sqrt() / count),
                }
            };
            let points = cells.into_values().map(point).collect();
            let (arm, metric) = ("all arms".to_owned(), "all metrics".to_owned());
            self.series.push(Series { setting: None, class, kind: Kind::Speed, arm, metric, points });
        }
    }

    /// Finds the series that says how fast hosts of a class are: [`Kind::Speed`], or the only one of all arms.
    pub(crate) fn speed(&self, class: usize) -> Option<usize> {
        let of = |kind| self.series.iter().position(|one| one.class == class && one.kind == kind && one.is_judged());
        of(Kind::Speed).or_else(|| of(Kind::AllArms))
    }
}

/// Seconds of a day.
const DAY: u64 = 86_400;
/// A clock that is further off is named, s.
const OFF: f64 = 3600.0;

/// Returns the names of periods, whether they are repetitions, and the period of each run. Periods are repetitions
/// where each run has one and a host has no two runs of one setting in the same; else UTC days by the hosts' clocks.
pub(super) fn of(runs: &[Run]) -> (Vec<String>, bool, Vec<usize>) {
    let by_repetition = !runs.is_empty() && runs.iter().all(|run| run.labels.repetition.is_some()) && {
        let key = |run: &Run| (run.host.clone(), run.key.clone(), run.labels.variant.clone(), run.labels.repetition);
        let mut seen = std::collections::HashSet::with_capacity(runs.len());
        runs.iter().all(|run| seen.insert(key(run)))
    };
    let number = |run: &Run| match run.labels.repetition {
        Some(repetition) if by_repetition => repetition,
        _ => run.started_unix / DAY,
    };
    let all: BTreeSet<u64> = runs.iter().map(number).collect();
    let place: HashMap<u64, usize> = all.iter().enumerate().map(|(place, number)| (*number, place)).collect();
    let of_run: Vec<usize> = runs.iter().map(|run| place[&number(run)]).collect();
    let mut starts: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    // A simulation has no date.
    for (run, period) in runs.iter().zip(&of_run).filter(|(run, _)| run.started_unix > 0) {
        starts[*period].push(run.started_unix as f64);
    }
    let name = |(number, starts): (u64, Vec<f64>)| match median(&starts).map(date) {
        Some(date) if by_repetition => format!("repetition {number} ({date})"),
        Some(date) => date,
        None if by_repetition => format!("repetition {number}"),
        None => "no date".to_owned(),
    };
    (all.into_iter().zip(starts).map(name).collect(), by_repetition, of_run)
}

/// Formats the date of a time, UTC.
#[expect(clippy::cast_sign_loss, reason = "no time is before 1970")]
fn date(unix: f64) -> String {
    utc(unix as u64).chars().take(10).collect()
}

/// A host whose clock differs from the others'.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clock {
    /// The host.
    pub host: String,
    /// Median over repetitions of its start less the median start of all hosts, s.
    pub seconds: f64,
    /// Repetitions.
    pub repetitions: usize,
}

/// Hosts that began more than an hour off the other hosts in the middle of their repetitions. Without repetitions nobody can know.
pub(super) fn clocks(runs: &[Run], by_repetition: bool) -> Vec<Clock> {
    if !by_repetition {
        return Vec::new();
    }
    let mut starts: BTreeMap<u64, BTreeMap<&str, f64>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.started_unix > 0) {
        let repetition = starts.entry(run.labels.repetition.unwrap_or(0)).or_default();
        repetition.entry(&run.host).or_insert(run.started_unix as f64);
    }
    let mut off: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    // Two hosts do not show which of them is off.
    for hosts in starts.values().filter(|hosts| hosts.len() > 2) {
        let middle = median(&hosts.values().copied().collect::<Vec<_>>()).unwrap_or(0.0);
        for (host, start) in hosts {
            off.entry(host).or_default().push(start - middle);
        }
    }
    let clock = |(host, off): (&str, Vec<f64>)| {
        let seconds = median(&off).filter(|seconds| seconds.abs() > OFF)?;
        Some(Clock { host: host.to_owned(), seconds, repetitions: off.len() })
    };
    off.into_iter().filter_map(clock).collect()
}

/// Bounds of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetSpec {
    /// An odd host differs from its class by at least this share.
    pub least_host: f64,
    /// A change of the fleet moves a figure by at least this share.
    pub least_change: f64,
    /// Most wrong names among the hosts that are named odd, as a mean share (Benjamini and Hochberg).
    pub false_share: f64,
    /// Adjusted p values below this are significant for a change.
    pub alpha: f64,
    /// Periods (days or repetitions) before and after a change that it is judged by.
    pub window: usize,
    /// Limits of [`compare`](crate::compare).
    #[serde(skip)]
    pub rules: Rules,
}

impl Default for FleetSpec {
    /// Hosts 3 % off with at most 5 % wrong names; changes of 1 % with p < 0.01 over seven periods to either side.
    fn default() -> Self {
        Self {
            least_host: 0.03,
            least_change: 0.01,
            false_share: 0.05,
            alpha: 0.01,
            window: 7,
            rules: Rules::default(),
        }
    }
}
