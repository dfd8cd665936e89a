//! The values that the documents of a pair give: each arm's runs by each metric.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::group::{Both, Pair, SIDES};
use super::judge::CompareSpec;
use crate::document::{Arm, Record, Round};
use crate::error::Error;
use crate::paired::{self, Statistic};
use crate::stats::median;
use crate::table::layout::plural;

/// One run of one arm.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Place of its document on its side: arms of one document are one run.
    pub(super) document: usize,
    /// Its start, seconds since 1970; two documents may share it.
    pub(super) started: u64,
    /// Its rounds against the reference arm's.
    pub(super) pairs: Vec<paired::Pair>,
    /// Its rounds' statistic, ns.
    pub(super) values: Vec<f64>,
}

/// One arm's runs by one metric.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) arm: String,
    pub(super) metric: String,
    pub(super) sides: Both<Vec<Run>>,
    /// It is the arm that the others are divided by.
    pub(super) is_reference: bool,
    /// Reason why its figures are not judged as whole.
    pub(super) not_whole: Option<String>,
}

/// The run's value of a metric: the median over its rounds that count of the rounds' statistic.
pub(crate) fn value(arm: &Arm, metric: &str, statistic: Statistic) -> Option<f64> {
    median(&paired::counting(arm, metric, statistic).map(|(_, value)| value).collect::<Vec<_>>())
}

/// Returns every arm and metric of a pair, in the documents' order, and whether an arm is on one side only.
pub(super) fn samples(pair: &Pair<'_>, request: &CompareSpec, notes: &mut Vec<String>) -> (Vec<Sample>, bool) {
    let (reference, statistic) = (pair.reference(), request.statistic);
    let spoilt = reference.and_then(|name| Some(format!("{name}, which it is divided by: {}", pair.doubt(name)?)));
    let mut names: Vec<&String> = Vec::new();
    for arm in pair.all().flat_map(|record| &record.arms) {
        if asked(&request.arms, &arm.name) && !names.contains(&&arm.name) {
            names.push(&arm.name);
        }
    }
    let (mut found, mut is_lone) = (Vec::new(), false);
    for name in names {
        let arms = pair.sides.each_ref().map(|side| side.iter().filter_map(|one| one.arm(name)).collect::<Vec<_>>());
        for (at, which) in SIDES.into_iter().enumerate() {
            if arms[at].is_empty() {
                is_lone = true;
                let other = SIDES[1 - at];
                notes.push(format!("only in {other}: arm {name}; --arm LIST compares only what both have"));
            }
            note_left_out(name, which, &arms[at], notes);
        }
        let all = || arms.iter().flatten();
        let mut metrics: BTreeSet<&String> = all().flat_map(|arm| arm.metrics.keys()).collect();
        if metrics.is_empty() {
            let why = all().find_map(|arm| arm.not_available.as_deref()).unwrap_or("it has no figures");
            notes.push(format!("{name}: not compared: {why}"));
        }
        let not_whole = pair.doubt(name).or_else(|| spoilt.clone());
        metrics.retain(|metric| asked(&request.metrics, metric));
        let of_metric = |metric: &String| {
            let run = |(document, record): (usize, &&Record)| {
                let counting: Vec<(Round, f64)> = paired::counting(record.arm(name)?, metric, statistic).collect();
                let values: Vec<f64> = counting.iter().map(|(_, value)| *value).collect();
                let pairs = reference.and_then(|base| record.arm(base)).map_or_else(Vec::new, |base| {
                    paired::of_counting(counting.into_iter(), paired::counting(base, metric, statistic))
                });
                (!values.is_empty()).then_some(Run { document, started: record.started_unix, pairs, values })
            };
            let sides = pair.sides.each_ref().map(|side| side.iter().enumerate().filter_map(run).collect());
            let is_reference = reference == Some(name);
            Sample { arm: name.clone(), metric: metric.clone(), sides, is_reference, not_whole: not_whole.clone() }
        };
        let of_arm: Vec<Sample> = metrics.into_par_iter().map(of_metric).collect();
        found.extend(of_arm.into_iter().filter(|one| one.sides.iter().any(|side| !side.is_empty())));
    }
    (found, is_lone)
}

/// Returns whether a name is asked for by a list, which is empty for all.
pub(crate) fn asked(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == name)
}

/// Says which rounds do not count: those that are not whole, and those of few samples.
pub(super) fn note_left_out(name: &str, which: &str, arms: &[&Arm], notes: &mut Vec<String>) {
    let partial: usize = arms.iter().flat_map(|arm| &arm.rounds.complete).filter(|complete| !**complete).count();
    if partial > 0 {
        notes.push(format!("{name}: {which}: {} not whole, left out", plural(partial, "round")));
    }
    let metrics: BTreeSet<&String> = arms.iter().flat_map(|arm| arm.metrics.keys()).collect();
    let short = |metric: &String| arms.iter().map(|arm| paired::short(arm, metric)).sum();
    let short: Vec<(&String, usize)> = metrics.into_par_iter().map(|metric| (metric, short(metric))).collect();
    for (metric, short) in short.into_iter().filter(|(_, short)| *short > 0) {
        let rounds = plural(short, "round");
        notes.push(format!("{name}, {metric}: {rounds} of {which} left out: fewer than half of the usual samples"));
    }
}

/// Checks that everything asked for by name is there: a slip of the pen must not pass as "no regression".
///
/// # Errors
/// Exit 2, with what there is.
pub(super) fn check_asked<'a>(
    records: impl Iterator<Item = &'a Record>,
    has_samples: impl Fn(&str) -> bool,
    request: &CompareSpec,
) -> Result<(), Error> {
    let measured: Vec<&Arm> = records.flat_map(|one| &one.arms).filter(|arm| !arm.rounds.is_empty()).collect();
    let refuse = |what: &str, name: &str, there: BTreeSet<&String>| {
        let there = there.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(Error::usage(format!("no figures of {what} {name}"), "", format!("there are {there}")))
    };
    if let Some(name) = request.arms.iter().find(|name| !measured.iter().any(|arm| arm.name == **name)) {
        return refuse("arm", name, measured.iter().map(|arm| &arm.name).collect());
    }
    match request.metrics.iter().find(|name| !has_samples(name)) {
        Some(name) => refuse("metric", name, measured.iter().flat_map(|arm| arm.metrics.keys()).collect()),
        None => Ok(()),
    }
}
