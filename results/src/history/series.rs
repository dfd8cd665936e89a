//! Series of ratios to the floor, and where they change.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;

use super::robust;
use crate::compare::{Statistic, differences, group_key, group_label, value};
use crate::document::{ArmKind, Record};
use crate::error::{Error, Exit};
use crate::paired;
use crate::stats::change_points::{ChangePoint, Rules};

/// Fewer documents than this have no history: a t-test needs some on both sides.
pub const MIN_DOCUMENTS: usize = 6;

/// A run within a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Start, seconds since 1970.
    pub started_unix: u64,
    /// Revision of the tool.
    pub revision: String,
    /// The file.
    pub file: String,
    /// The run's time, ns.
    pub value_ns: f64,
    /// Its ratio to the reference arm, in paired rounds; `None` where the series is of times.
    pub ratio: Option<f64>,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Place and size of the change.
    #[serde(flatten)]
    pub point: ChangePoint,
    /// Relative change; `None` from 0.
    pub change: Option<f64>,
    /// The last revision before.
    pub last_good_revision: String,
    /// The first changed revision.
    pub first_changed_revision: String,
    /// Its first run's start.
    pub started_unix: u64,
    /// Its first run's file.
    pub file: String,
    /// Other things that changed between the two runs: host and build.
    pub also_changed: Vec<String>,
}

/// One arm and metric of one experiment over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Experiment and parameters, for people.
    pub label: String,
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: String,
    /// The arm it is divided by; `None`: the series is of times.
    pub against: Option<String>,
    /// Its runs, in order of their start.
    pub points: Vec<Point>,
    /// Changes that were found.
    pub changes: Vec<Change>,
    /// True if it is too short for changes to be found.
    pub too_short: bool,
}

/// A history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// As given on the command line.
    pub source: String,
    /// Documents.
    pub documents: usize,
    /// The quantile of a round behind each value.
    pub statistic: Statistic,
    /// The series.
    pub series: Vec<Series>,
}

impl History {
    /// Returns the exit: done, or inconclusive if every series is too short.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.series.iter().all(|series| series.too_short) { Exit::Inconclusive } else { Exit::Done }
    }
}

/// Request of a caller.
#[derive(Clone, Debug)]
pub struct HistorySpec {
    /// Rules for accepting a change.
    pub rules: Rules,
    /// Quantile of a round.
    pub statistic: Statistic,
    /// Only these arms; empty: all.
    pub arms: Vec<String>,
    /// Only these metrics; empty: all.
    pub metrics: Vec<String>,
    /// Times instead of ratios to the floor.
    pub times: bool,
}

/// Computes the history of `records`, which are in order of their start.
///
/// # Errors Exit 2 if nothing that was asked for is there.
pub fn history(source: &str, records: &[Record], request: &HistorySpec) -> Result<History, Error> {
    let mut groups: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for record in records {
        let key = serde_json::to_string(&(group_key(record), &record.host.class)).unwrap_or_default();
        groups.entry(key).or_default().push(record);
    }
    let mut wanted: Vec<(&[&Record], &str, &str)> = Vec::new();
    for group in groups.values() {
        let mut seen = BTreeSet::new();
        for arm in group.iter().flat_map(|record| &record.arms) {
            for metric in arm.metrics.keys() {
                let asked = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one == name);
                let name = arm.name.as_str();
                if asked(&request.arms, name) && asked(&request.metrics, metric) && seen.insert((name, metric)) {
                    wanted.push((group, name, metric));
                }
            }
        }
    }
    if wanted.is_empty() {
        return Err(Error::usage(
            format!("no series in {source}"),
            "no such arm or metric",
            "leave out --arm and --metric",
        ));
    }
    let family = wanted.len();
    let series = wanted.par_iter().filter_map(|(group, arm, metric)| series(group, arm, metric, request, family));
    let series: Vec<Series> = series.collect();
    if series.is_empty() {
        return Err(Error::usage(
            format!("no series of ratios in {source}"),
            "the other arms are divided by the arm that was asked for",
            "--times follows its times",
        ));
    }
    Ok(History { source: source.to_owned(), documents: records.len(), statistic: request.statistic, series })
}

/// Returns the arm that a group's series are divided by: the floor, where every document has one.
fn reference<'a>(group: &[&'a Record]) -> Option<&'a str> {
    let floor = group.first()?.arms.iter().find(|arm| arm.kind == ArmKind::Floor)?;
    let everywhere = group.iter().all(|record| record.arm(&floor.name).is_some_and(|arm| !arm.rounds.is_empty()));
    everywhere.then_some(floor.name.as_str())
}

fn series(group: &[&Record], arm: &str, metric: &str, request: &HistorySpec, family: usize) -> Option<Series> {
    let against = if request.times { None } else { reference(group) };
    if against == Some(arm) {
        return None;
    }
    let runs: Vec<(&Record, f64, Option<f64>)> = group
        .iter()
        .filter_map(|record| {
            let own = record.arm(arm)?;
            let time = value(own, metric, request.statistic)?;
            let Some(against) = against else { return Some((*record, time, None)) };
            // The ratio alone: an interval of each run takes longer than all the rest.
            let pairs = paired::pairs(own, record.arm(against)?, metric, request.statistic);
            let ratio = paired::Method::of(&pairs).centre(&pairs)?.exp();
            Some((*record, time, Some(ratio)))
        })
        .collect();
    let first = runs.first()?.0;
    let values: Vec<f64> = runs.iter().map(|(_, time, ratio)| ratio.unwrap_or(*time)).collect();
    let too_short = values.len() < MIN_DOCUMENTS;
    let found = if too_short { Vec::new() } else { robust::find(&values, &request.rules, family) };
    let changes = found
        .into_iter()
        .map(|point| {
            let (before, after) = (runs[point.index - 1].0, runs[point.index].0);
            Change {
                point,
                change: point.change(),
                last_good_revision: before.tool.git_revision.clone(),
                first_changed_revision: after.tool.git_revision.clone(),
                started_unix: after.started_unix,
                file: after.path.display().to_string(),
                also_changed: differences(&[before], &[after]),
            }
        })
        .collect();
    let points = runs
        .iter()
        .map(|(record, value_ns, ratio)| Point {
            started_unix: record.started_unix,
            revision: record.tool.git_revision.clone(),
            file: record.path.display().to_string(),
            value_ns: *value_ns,
            ratio: *ratio,
        })
        .collect();
    let (label, arm, metric) = (group_label(first), arm.to_owned(), metric.to_owned());
    let against = against.map(str::to_owned);
    Some(Series { label, arm, metric, against, points, changes, too_short })
}
