//! Runs as series of figures: one for each host class, setting and question. The runs of a host are one block of a series, and
//! hosts of two classes are in no series together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use results::metric;
use results::stats::jackknife::Estimate;
use results::stats::median;
use serde::Serialize;

use crate::run::Run;

/// Kind of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Times of all arms of one setting and metric together.
    AllArms,
    /// An arm's ratio to the floor, or to all arms together where there is no floor.
    Ratio,
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

/// Runs by number, each with the logarithm of a figure.
pub(crate) type Points = Vec<(usize, f64)>;

/// Times and ratios of an arm.
type Both = (Points, Points);

/// Values of one question in one class.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) setting: usize,
    pub(crate) class: usize,
    pub(crate) kind: Kind,
    pub(crate) arm: String,
    pub(crate) metric: String,
    pub(crate) points: Points,
}

/// All runs of a fleet.
pub(crate) struct Grid<'a> {
    pub(crate) runs: &'a [Run],
    /// Number of the class of each run.
    class_of: Vec<usize>,
    /// Host classes, the one with the most runs first.
    pub(crate) classes: Vec<String>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) series: Vec<Series>,
}

impl<'a> Grid<'a> {
    pub(crate) fn new(runs: &'a [Run]) -> Self {
        let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
        for run in runs {
            *classes.entry(run.class()).or_default() += 1;
        }
        let mut classes: Vec<(&str, usize)> = classes.into_iter().collect();
        classes.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let classes: Vec<String> = classes.into_iter().map(|(name, _)| name.to_owned()).collect();
        let class_of = runs.iter().map(|run| classes.iter().position(|class| class == run.class()).unwrap_or(0));
        let class_of: Vec<usize> = class_of.collect();
        let several = runs.iter().map(|run| &run.labels.variant).collect::<BTreeSet<_>>().len() > 1;
        let mut settings: Vec<Setting> = Vec::new();
        let mut numbers = HashMap::new();
        let mut setting_of = Vec::new();
        for run in runs {
            let number = *numbers.entry((&run.key, &run.labels.variant)).or_insert_with(|| {
                let variant = run.labels.variant.as_deref().filter(|_| several);
                let label = variant.map_or_else(|| run.setting.clone(), |name| format!("{}, {name}", run.setting));
                settings.push(Setting { label, runs: 0, stand_in: false });
                settings.len() - 1
            });
            settings[number].runs += 1;
            settings[number].stand_in |= run.stand_in;
            setting_of.push(number);
        }
        let series = series(runs, &class_of, &setting_of);
        Self { runs, class_of, classes, settings, series }
    }

    /// Groups the points of a class by host.
    pub(crate) fn by_host(&self, points: &Points) -> BTreeMap<&'a str, Vec<f64>> {
        let mut hosts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (run, log) in points {
            hosts.entry(self.runs[*run].host()).or_default().push(*log);
        }
        hosts
    }

    /// Returns the speed of each run of a class: the mean of its judged times over all arms, each as its distance from that
    /// figure's median in the class. A figure that a run lacks does not move it.
    pub(crate) fn speed(&self, class: usize) -> Points {
        let mut runs: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for series in &self.series {
            if series.class == class && series.kind == Kind::AllArms && metric::is_main(&series.metric) {
                let level = level(&series.points);
                for (run, log) in &series.points {
                    runs.entry(*run).or_default().push(log - level);
                }
            }
        }
        runs.into_iter().map(|(run, logs)| (run, logs.iter().sum::<f64>() / logs.len() as f64)).collect()
    }

    /// Counts the hosts of a class, and its runs.
    pub(crate) fn size(&self, class: usize) -> (usize, usize) {
        let runs = || self.runs.iter().zip(&self.class_of).filter(|(_, own)| **own == class).map(|(run, _)| run);
        (runs().map(Run::host).collect::<BTreeSet<_>>().len(), runs().count())
    }
}

/// Returns the standard deviation that the median absolute deviation of normal values has; 0 if more than half are equal. `None`
/// without values.
pub(crate) fn scale(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>()).map(|mad| mad / 0.6745)
}

/// Standard error of a median of normal values, over that of their mean.
const OF_MEDIAN: f64 = 1.2533;

/// Estimates the median that values of one block have in common; `None` of fewer than two.
pub(crate) fn block(values: &[f64]) -> Option<Estimate> {
    let n = values.len() as f64;
    let error = OF_MEDIAN * scale(values)? / n.sqrt();
    (values.len() > 1).then_some(Estimate { value: median(values)?, error, freedom: n - 1.0 })
}

fn level(points: &Points) -> f64 {
    median(&points.iter().map(|(_, log)| *log).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Returns the series of whole figures: all arms together, then each arm's ratio, by class, setting, metric and arm.
fn series(runs: &[Run], class_of: &[usize], setting_of: &[usize]) -> Vec<Series> {
    let mut arms: BTreeMap<(usize, usize, &str), BTreeMap<&str, Both>> = BTreeMap::new();
    for (number, run) in runs.iter().enumerate() {
        for figure in run.figures.iter().filter(|figure| figure.doubt.is_none()) {
            let arms = arms.entry((class_of[number], setting_of[number], &figure.metric)).or_default();
            let (times, ratios) = arms.entry(&figure.arm).or_default();
            times.push((number, figure.time));
            ratios.extend(figure.ratio.map(|ratio| (number, ratio)));
        }
    }
    let mut all = Vec::new();
    for ((class, setting, metric), arms) in arms {
        let mut add = |kind, arm: &str, points| {
            all.push(Series { setting, class, kind, arm: arm.to_owned(), metric: metric.to_owned(), points });
        };
        let together = all_arms(arms.values().map(|(times, _)| times));
        let has_floor = arms.values().any(|(_, ratios)| !ratios.is_empty());
        if !has_floor && arms.len() > 1 {
            let means: HashMap<usize, f64> = together.iter().copied().collect();
            for (arm, (times, _)) in &arms {
                let over = times.iter().filter_map(|(run, log)| Some((*run, log - means.get(run)?)));
                add(Kind::Ratio, arm, over.collect());
            }
        }
        add(Kind::AllArms, "all arms", together);
        for (arm, (_, ratios)) in arms {
            if !ratios.is_empty() {
                add(Kind::Ratio, arm, ratios);
            }
        }
    }
    all.sort_by(|a, b| {
        let key = |one: &Series| (one.class, one.setting, one.kind);
        key(a).cmp(&key(b)).then_with(|| a.metric.cmp(&b.metric)).then_with(|| a.arm.cmp(&b.arm))
    });
    all
}

/// Computes the mean over arms of each run. An arm that a run lacks does not move it: arms are centred first.
fn all_arms<'a>(arms: impl Iterator<Item = &'a Points> + Clone) -> Points {
    let grand = arms.clone().map(level).sum::<f64>() / arms.clone().count().max(1) as f64;
    let mut runs: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for points in arms {
        let level = level(points);
        for (run, log) in points {
            runs.entry(*run).or_default().push(log - level);
        }
    }
    runs.into_iter().map(|(run, logs)| (run, grand + logs.iter().sum::<f64>() / logs.len() as f64)).collect()
}
