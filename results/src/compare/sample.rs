//! Says which documents go with which, and takes the values that they give.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde_json::Value;

use super::comparable;
use super::rules::CompareSpec;
use crate::document::{Any, Arm, ArmKind, Record, Round};
use crate::error::Error;
use crate::paired::{self, Statistic};
use crate::stats::median;
use crate::table::layout::plural;

/// With this many documents on both sides how runs differ is seen, and absolute times are judged.
pub const MIN_RUNS: usize = 8;
/// Begin of a note about something that one side lacks.
pub(super) const ONLY_IN: &str = "only in ";
/// Begins of such a note about an arm; others are about a kind of run.
pub(super) const ARM_ONLY_IN: [&str; 2] = ["only in BASE: arm ", "only in NEW: arm "];

/// Parameters that say how much is measured or why, not what: they may differ.
const HOW_MUCH: [&str; 14] = [
    "rounds",
    "rounds_per_guest",
    "until_ci",
    "quick",
    "pin",
    "samples",
    "warmup_samples",
    "warmup_rounds",
    "duration_ns",
    "time_limit_ns",
    "strategies",
    "backend_requested",
    "backend_why",
    "look_ups",
];

/// Documents of both sides that measured the same.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) label: String,
    pub(super) base: Vec<&'a Record>,
    pub(super) new: Vec<&'a Record>,
}

impl Pair<'_> {
    /// Returns whether both sides have enough runs to show how runs differ.
    pub(super) fn by_run(&self) -> bool {
        self.base.len().min(self.new.len()) >= MIN_RUNS
    }

    pub(super) fn unit(&self) -> &'static str {
        if self.by_run() { "run" } else { "round" }
    }

    /// The arm that the others are divided by: the floor, else the first that both sides have.
    pub(super) fn reference(&self) -> Option<String> {
        let all = || self.base.iter().chain(&self.new);
        let everywhere = |name: &str| all().all(|record| record.arm(name).is_some_and(|arm| !arm.rounds.is_empty()));
        let arms = || self.base.iter().flat_map(|record| &record.arms).filter(|arm| everywhere(&arm.name));
        arms().find(|arm| arm.kind == ArmKind::Floor).or_else(|| arms().next()).map(|arm| arm.name.clone())
    }

    /// Returns whether the runs were simulated: no two of them differ by the host's doing.
    pub(super) fn simulated(&self) -> bool {
        let backend = |record: &&Record| record.parameter("backend").is_some_and(|name| name.starts_with("sim:"));
        self.base.iter().chain(&self.new).all(backend)
    }
}

/// One run of one arm.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Place of its document on its side: arms of one document are one run.
    pub(super) document: usize,
    /// Its start, seconds since 1970; two documents may share it.
    pub(super) started: u64,
    /// Its rounds against the reference arm's.
    pub(super) pairs: Vec<paired::Pair>,
    /// The reference arm's rounds of no time at all.
    pub(super) zeros: Vec<f64>,
    /// Its rounds' statistic, ns.
    pub(super) values: Vec<f64>,
}

/// The runs of an arm in BASE and NEW.
pub(super) type Sides<'a> = (&'a [Run], &'a [Run]);

/// An arm of one document, with the arm that it is divided by.
struct Beside<'a> {
    document: usize,
    started: u64,
    arm: &'a Arm<Any>,
    reference: Option<&'a Arm<Any>>,
}

/// One arm's runs by one metric.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) arm: String,
    pub(super) metric: String,
    pub(super) base: Vec<Run>,
    pub(super) new: Vec<Run>,
    /// It is the arm that the others are divided by.
    pub(super) is_reference: bool,
    /// Reason why its figures are not judged as whole.
    pub(super) not_whole: Option<String>,
}

/// Returns the parameters that must be equal for two documents to be comparable.
pub fn group_key(record: &Record) -> BTreeMap<String, Value> {
    let parameters = record.parameters.iter().filter(|(name, _)| !HOW_MUCH.contains(&name.as_str()));
    let mut key: BTreeMap<String, Value> = parameters.map(|(name, value)| (name.clone(), value.clone())).collect();
    key.insert("experiment".to_owned(), record.experiment.clone().into());
    key
}

/// The experiment and its main parameters, for people.
pub fn group_label(record: &Record) -> String {
    let mut parts = vec![record.experiment.clone()];
    if record.parameter("workload").is_none() {
        for (name, unit) in [("events", "event"), ("cpus", "CPU")] {
            parts.extend(record.size(name).and_then(|n| usize::try_from(n).ok()).map(|n| plural(n, unit)));
        }
        parts.extend(record.parameter("mode"));
    }
    parts.extend(["workload", "backend"].into_iter().filter_map(|name| record.parameter(name)));
    parts.extend(record.parameter("vcpus").map(|vcpus| format!("{vcpus} vCPU{}", if vcpus == "1" { "" } else { "s" })));
    parts.extend(record.other_cpu());
    parts.join(", ")
}

fn grouped<'a>(records: &[&'a Record]) -> BTreeMap<String, Vec<&'a Record>> {
    let mut groups: BTreeMap<String, Vec<&'a Record>> = BTreeMap::new();
    for record in records {
        let key = serde_json::to_string(&group_key(record)).unwrap_or_default();
        groups.entry(key).or_default().push(record);
    }
    groups
}

/// Pairs documents by what they measured.
///
/// # Errors
/// Exit 2 if the sides have nothing in common.
pub(super) fn pairs<'a>(
    base: (&str, &[&'a Record]),
    new: (&str, &[&'a Record]),
    notes: &mut Vec<String>,
) -> Result<Vec<Pair<'a>>, Error> {
    let (mut bases, mut news) = (grouped(base.1), grouped(new.1));
    let common: Vec<String> = bases.keys().filter(|key| news.contains_key(*key)).cloned().collect();
    if common.is_empty() {
        let why = match (base.1.first(), new.1.first()) {
            (Some(a), Some(b)) => first_difference(a, b),
            _ => "there are no documents".to_owned(),
        };
        return Err(Error::usage(
            format!("{} and {} measured different things", base.0, new.0),
            why,
            "compare runs of the same experiment and parameters",
        ));
    }
    let pairs = common.iter().filter_map(|key| {
        let (base, new) = bases.remove(key).zip(news.remove(key))?;
        Some(Pair { label: group_label(base[0]), base, new })
    });
    let pairs = pairs.collect();
    for (which, left) in [("BASE", &bases), ("NEW", &news)] {
        for records in left.values() {
            let (label, documents) = (group_label(records[0]), plural(records.len(), "document"));
            notes.push(format!(
                "{ONLY_IN}{which}: {label} ({documents}), not compared; a folder of its own leaves it out"
            ));
        }
    }
    Ok(pairs)
}

fn first_difference(a: &Record, b: &Record) -> String {
    let (a, b) = (group_key(a), group_key(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let shown = |value: Option<&Value>| match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let unlike: Vec<&String> = names.into_iter().filter(|name| a.get(*name) != b.get(*name)).collect();
    // Lists of events follow from the name of the workload.
    let plain = |name: &&&String| {
        ![&a, &b].into_iter().any(|key| key.get(**name).is_some_and(|v| v.is_array() || v.is_object()))
    };
    let workload = unlike.iter().find(|name| **name == "workload");
    match workload.or_else(|| unlike.iter().find(plain)) {
        Some(name) => format!("{name} is {} and {}", shown(a.get(*name)), shown(b.get(*name))),
        None => unlike.first().map_or_else(String::new, |name| format!("their {name} differ")),
    }
}

/// The run's value of a metric: the median over its rounds that count of the rounds' statistic.
pub(crate) fn value(arm: &Arm<Any>, metric: &str, statistic: Statistic) -> Option<f64> {
    median(&rounds(arm, metric, statistic).collect::<Vec<_>>())
}

fn rounds<'a>(arm: &'a Arm<Any>, metric: &str, statistic: Statistic) -> impl Iterator<Item = f64> + use<'a> {
    paired::counting(arm, metric, statistic).map(|(_, value)| value)
}

/// Every arm and metric of a pair, in the documents' order.
pub(super) fn samples<'a>(pair: &Pair<'a>, request: &CompareSpec, notes: &mut Vec<String>) -> Vec<Sample> {
    let mut found = Vec::new();
    // Metrics that are known over all rounds only, and the arms that have them.
    let mut without: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let reference = pair.reference();
    let spoilt = reference.as_ref().and_then(|name| {
        let why = comparable::of_arm(&pair.base, &pair.new, name)?;
        Some(format!("{name}, which it is divided by: {why}"))
    });
    for name in arms(pair) {
        if !request.arms.is_empty() && !request.arms.contains(&name) {
            continue;
        }
        let of = |records: &[&'a Record]| -> Vec<Beside<'a>> {
            let of = |(document, record): (usize, &&'a Record)| {
                let arm = record.arm(&name)?;
                let reference = reference.as_ref().and_then(|name| record.arm(name));
                Some(Beside { document, started: record.started_unix, arm, reference })
            };
            records.iter().enumerate().filter_map(of).collect()
        };
        let (base, new) = (of(&pair.base), of(&pair.new));
        for (which, arms, records) in [("BASE", &base, &pair.base), ("NEW", &new, &pair.new)] {
            note_gaps(&name, which, &arms.iter().map(|one| one.arm).collect::<Vec<_>>(), records.len(), notes);
        }
        let both = || base.iter().chain(&new).map(|one| one.arm);
        let metrics: BTreeSet<&str> = both().flat_map(|arm| arm.metrics.keys()).map(String::as_str).collect();
        if metrics.is_empty() {
            let why = both().find_map(|arm| arm.not_available.as_deref()).unwrap_or("it has no figures");
            notes.push(format!("{name}: not compared: {why}"));
        }
        let is_reference = reference.as_ref() == Some(&name);
        let not_whole = comparable::of_arm(&pair.base, &pair.new, &name).or_else(|| spoilt.clone());
        let asked = |metric: &&str| request.metrics.is_empty() || request.metrics.iter().any(|asked| asked == metric);
        let metrics: Vec<&str> = metrics.into_iter().filter(asked).collect();
        let runs = |metric: &str, arms: &[Beside<'_>]| -> Vec<Run> {
            arms.iter().filter_map(|one| run(one, metric, request.statistic)).collect()
        };
        let of_metric = |metric: &&'a str| (*metric, runs(metric, &base), runs(metric, &new));
        let by_metric: Vec<(&str, Vec<Run>, Vec<Run>)> = metrics.par_iter().map(of_metric).collect();
        for (metric, base, new) in by_metric {
            if base.is_empty() && new.is_empty() {
                without.entry(metric.to_owned()).or_default().push(name.clone());
                continue;
            }
            let (arm, metric, not_whole) = (name.clone(), metric.to_owned(), not_whole.clone());
            found.push(Sample { arm, metric, base, new, is_reference, not_whole });
        }
    }
    // A line for all metrics that the same arms lack.
    let mut by_arms: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for (metric, arms) in without {
        by_arms.entry(arms).or_default().push(metric);
    }
    for (arms, metrics) in by_arms {
        let (arms, metrics, statistic) = (arms.join(", "), metrics.join(", "), request.statistic.name());
        notes.push(format!("{arms}: not compared, as no {statistic} is known by round: {metrics}"));
    }
    found
}

/// A run of an arm; `None` without rounds that count of the metric.
fn run(of: &Beside<'_>, metric: &str, statistic: Statistic) -> Option<Run> {
    let Beside { document, started, arm, reference } = of;
    let counting: Vec<(Round, f64)> = paired::counting(arm, metric, statistic).collect();
    let values: Vec<f64> = counting.iter().map(|(_, value)| *value).collect();
    let beside = |base| paired::of_counting(counting.iter().copied(), paired::counting(base, metric, statistic));
    let pairs = reference.map_or_else(Vec::new, beside);
    let zero = |(_, ns): (Round, f64)| (ns <= 0.0).then_some(ns);
    let zeros =
        reference.map_or_else(Vec::new, |base| paired::counting(base, metric, statistic).filter_map(zero).collect());
    (!values.is_empty()).then_some(Run { document: *document, started: *started, pairs, zeros, values })
}

/// The arms of both sides, in the order of the documents.
fn arms(pair: &Pair<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for arm in pair.base.iter().chain(&pair.new).flat_map(|record| &record.arms) {
        if !names.contains(&arm.name) {
            names.push(arm.name.clone());
        }
    }
    names
}

fn note_gaps(name: &str, which: &str, arms: &[&Arm<Any>], documents: usize, notes: &mut Vec<String>) {
    let lacking = documents - arms.len();
    if arms.is_empty() {
        let other = if which == "BASE" { "NEW" } else { "BASE" };
        notes.push(format!("{ONLY_IN}{other}: arm {name}; --arm LIST compares only what both have"));
    } else if lacking > 0 {
        notes.push(format!("{name}: {lacking} of {documents} documents of {which} lack it"));
    }
    let partial: usize = arms.iter().flat_map(|arm| &arm.rounds.complete).filter(|complete| !**complete).count();
    if partial > 0 {
        notes.push(format!("{name}: {which}: {} not whole, left out", plural(partial, "round")));
    }
    note_short(name, which, arms, notes);
}

/// Says which rounds do not count for their few samples.
pub(super) fn note_short(name: &str, which: &str, arms: &[&Arm<Any>], notes: &mut Vec<String>) {
    let metrics: BTreeSet<&str> = arms.iter().flat_map(|arm| arm.metrics.keys()).map(String::as_str).collect();
    let metrics: Vec<&str> = metrics.into_iter().collect();
    let short = |metric: &&str| arms.iter().map(|arm| paired::short(arm, metric)).sum();
    let short: Vec<usize> = metrics.par_iter().map(short).collect();
    for (metric, short) in metrics.into_iter().zip(short) {
        if short > 0 {
            let rounds = plural(short, "round");
            notes.push(format!("{name}, {metric}: {rounds} of {which} left out: fewer than half of the usual samples"));
        }
    }
}

/// Checks that everything asked for by name is there: a slip of the pen must not pass as "no regression".
///
/// # Errors
/// Exit 2, with what there is.
pub(super) fn check_asked(samples: &[(usize, Sample)], pairs: &[Pair<'_>], request: &CompareSpec) -> Result<(), Error> {
    let arms: BTreeSet<&String> = samples.iter().map(|(_, sample)| &sample.arm).collect();
    let metrics: BTreeSet<&String> = samples.iter().map(|(_, sample)| &sample.metric).collect();
    // Existing arms and metrics, asked for or not.
    let records = || pairs.iter().flat_map(|pair| pair.base.iter().chain(&pair.new));
    let measured = || records().flat_map(|record| &record.arms).filter(|arm| !arm.rounds.is_empty());
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let there = || list(measured().flat_map(|arm| arm.metrics.keys()).map(String::as_str).collect());
    let known = |name: &String| measured().any(|arm| arm.name == *name);
    if let Some(name) = request.arms.iter().find(|name| !arms.contains(name) && !known(name)) {
        let all = list(measured().map(|arm| arm.name.as_str()).collect());
        return Err(Error::usage(format!("no figures of arm {name}"), "", format!("there are {all}")));
    }
    let named = request.metrics.iter().chain(request.rules.named());
    if let Some(name) = named.into_iter().find(|name| !metrics.contains(name)) {
        return Err(Error::usage(format!("no figures of metric {name}"), "", format!("there are {}", there())));
    }
    Ok(())
}
