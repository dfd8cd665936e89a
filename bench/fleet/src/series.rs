//! Runs as series of figures: one for each host class, setting and question. The runs of a host are one block of a series, and
//! hosts of two classes are in no series together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use results::compare::GEOMEAN;
use results::metric;
use results::stats::jackknife::Estimate;
use results::stats::median;
use results::table::layout::time;
use serde::Serialize;

use crate::run::Run;

/// A series of runs asks one question again and again: this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Question {
    /// Host class.
    pub class: String,
    /// Experiment, main parameters, and the variant if there are several.
    pub setting: String,
    /// Metric.
    pub metric: String,
    /// Arm, or "geomean".
    pub arm: String,
}

impl Question {
    /// Returns whether it is of all arms together.
    pub fn is_of_all_arms(&self) -> bool {
        self.arm == GEOMEAN
    }

    /// Formats a value: a time, or a ratio.
    pub(crate) fn value(&self, value: f64) -> String {
        if self.is_of_all_arms() { time(value) } else { format!("× {value:.3}") }
    }
}

/// Runs by number, each with the logarithm of a figure.
pub(crate) type Points = Vec<(usize, f64)>;

/// Values of one question.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) question: Question,
    pub(crate) points: Points,
}

/// All runs of a fleet.
pub(crate) struct Grid<'a> {
    pub(crate) runs: &'a [Run],
    /// The series of whole figures: of a class and setting all arms together, then each arm's ratio.
    pub(crate) series: Vec<Series>,
}

impl<'a> Grid<'a> {
    pub(crate) fn new(runs: &'a [Run]) -> Self {
        let labels = labels(runs);
        // By class, setting and metric: times and ratios of each arm.
        let mut arms: BTreeMap<(&str, &str, &str), BTreeMap<&str, [Points; 2]>> = BTreeMap::new();
        for (number, run) in runs.iter().enumerate() {
            let label = &labels[&(&run.key, &run.labels.variant)];
            for figure in run.figures.iter().filter(|figure| figure.doubt.is_none()) {
                let arms = arms.entry((run.class(), label, &figure.metric)).or_default();
                let [times, ratios] = arms.entry(&figure.arm).or_default();
                times.push((number, figure.time));
                ratios.extend(figure.ratio.map(|ratio| (number, ratio)));
            }
        }
        let mut series = Vec::new();
        for ((class, setting, metric), arms) in arms {
            let mut add = |arm: &str, points| {
                let [class, setting, metric, arm] = [class, setting, metric, arm].map(str::to_owned);
                series.push(Series { question: Question { class, setting, metric, arm }, points });
            };
            let together = all_arms(arms.values().map(|[times, _]| times));
            let means: HashMap<usize, f64> = together.iter().copied().collect();
            let has_floor = arms.values().any(|[_, ratios]| !ratios.is_empty());
            let is_alone = arms.len() == 1;
            add(GEOMEAN, together);
            for (arm, [times, ratios]) in arms {
                if !ratios.is_empty() {
                    add(arm, ratios);
                } else if !has_floor && !is_alone {
                    add(arm, times.iter().filter_map(|(run, log)| Some((*run, log - means.get(run)?))).collect());
                }
            }
        }
        series.sort_by(|a, b| {
            let key = |Series { question, .. }: &Series| {
                (question.class.clone(), question.setting.clone(), !question.is_of_all_arms())
            };
            key(a).cmp(&key(b))
        });
        Self { runs, series }
    }

    /// Lists the host classes.
    pub(crate) fn classes(&self) -> BTreeSet<&'a str> {
        self.runs.iter().map(Run::class).collect()
    }

    /// Groups points by host.
    pub(crate) fn by_host(&self, points: &Points) -> BTreeMap<&'a str, Vec<f64>> {
        let mut hosts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (run, log) in points {
            hosts.entry(self.runs[*run].host()).or_default().push(*log);
        }
        hosts
    }

    /// Returns the speed of each run of a class: the mean of its judged times over all arms, each as its distance from that
    /// figure's median in the class. A figure that a run lacks does not move it.
    pub(crate) fn speed(&self, class: &str) -> Points {
        let is_part = |Series { question, .. }: &&Series| {
            question.class == class && question.is_of_all_arms() && metric::is_main(&question.metric)
        };
        centred(self.series.iter().filter(is_part).map(|series| &series.points))
    }
}

/// Names the settings, by parameters and variant; two that differ in a lesser parameter have numbers.
fn labels(runs: &[Run]) -> HashMap<(&String, &Option<String>), String> {
    let several = runs.iter().map(|run| &run.labels.variant).collect::<BTreeSet<_>>().len() > 1;
    let mut labels = HashMap::new();
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs {
        labels.entry((&run.key, &run.labels.variant)).or_insert_with(|| {
            let variant = run.labels.variant.as_deref().filter(|_| several);
            let label = variant.map_or_else(|| run.setting.clone(), |name| format!("{}, {name}", run.setting));
            let count = used.entry(label.clone()).or_default();
            *count += 1;
            if *count > 1 { format!("{label} ({count})") } else { label }
        });
    }
    labels
}

/// Says what figures of these runs are not.
pub(crate) fn caveats(runs: &[Run]) -> Vec<String> {
    let simulated: BTreeSet<&str> =
        runs.iter().map(Run::class).filter(|class| class.starts_with("simulated")).collect();
    let mut notes: Vec<String> = simulated.into_iter().map(|class| format!("{class}: no measurement")).collect();
    if runs.iter().any(|run| run.stand_in) {
        notes.push("a stand-in for hardware events: compare hosts and arms, not times with those of a PMU".to_owned());
    }
    notes
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

/// Returns the mean over arms of each run.
fn all_arms<'a>(arms: impl Iterator<Item = &'a Points> + Clone) -> Points {
    let grand = arms.clone().map(level).sum::<f64>() / arms.clone().count().max(1) as f64;
    centred(arms).into_iter().map(|(run, log)| (run, grand + log)).collect()
}

/// Returns the mean of each run over these, each as its distance from its median: one that a run lacks does not move it.
fn centred<'a>(all: impl Iterator<Item = &'a Points>) -> Points {
    let mut runs: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for points in all {
        let level = level(points);
        for (run, log) in points {
            runs.entry(*run).or_default().push(log - level);
        }
    }
    runs.into_iter().map(|(run, logs)| (run, mean(&logs))).collect()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
