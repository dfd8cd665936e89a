//! A folder of results as a series in time: where did it change, and with which revision?

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;

use crate::compare::{Statistic, definitions, differences, group_key, group_label, value};
use crate::document::{ArmKind, Record};
use crate::error::{Error, Exit};
use crate::paired;
use crate::stats::change_points::{self, ChangePoint, Rules, Trend};
use crate::table::layout::{self, dash, plural, time};
use crate::table::{Report, Table};
use crate::write::time_stamp;

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
    /// Changes that were found; beside a trend only those that its line does not explain.
    pub changes: Vec<Change>,
    /// It goes up or down all the time.
    pub trend: Option<Trend>,
    /// Relative change of a last run that is like none before it: one run is no change point.
    pub one_run: Option<f64>,
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
            let ratio = paired::centre(&pairs)?.exp();
            Some((*record, time, Some(ratio)))
        })
        .collect();
    let first = runs.first()?.0;
    let values: Vec<f64> = runs.iter().map(|(_, time, ratio)| ratio.unwrap_or(*time)).collect();
    let too_short = values.len() < change_points::MIN_VALUES;
    let found = change_points::find(&values, &request.rules, family);
    let (trend, found) = change_points::trend(&values, &request.rules, family, found);
    let usual = change_points::last_alone(&values, &request.rules);
    let one_run = values.last().zip(usual).map(|(last, usual)| last / usual - 1.0);
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
                also_changed: [differences(&[before], &[after]), definitions(&[before], &[after])].concat(),
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
    Some(Series { label, arm, metric, against, points, changes, trend, one_run, too_short })
}

const HEADER: [&str; 8] = ["arm", "metric", "before", "after", "change", "p", "first changed", "at"];

/// Shortens a revision as people quote it.
fn short(revision: &str) -> String {
    let (hash, rest) = revision.split_at(revision.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(revision.len()));
    if hash.is_empty() { revision.to_owned() } else { format!("{}{rest}", &hash[..hash.len().min(12)]) }
}

/// Formats a value of a series: a ratio or a time.
fn shown(series: &Series, value: f64) -> String {
    if series.against.is_some() { format!("× {value:.3}") } else { time(value) }
}

/// Says what is no change point of a series.
fn others(series: &Series) -> impl Iterator<Item = String> {
    let (arm, metric, runs) = (&series.arm, &series.metric, series.points.len());
    let trend = series.trend.map(|Trend { before, after, p, step }| {
        let (before, after, p) = (shown(series, before), shown(series, after), layout::p(p));
        let which = step.map_or_else(
            || "no one revision".to_owned(),
            |at| {
                format!("or one step, at run {} ({}): the runs do not tell", at + 1, short(&series.points[at].revision))
            },
        );
        format!("{arm}, {metric}: a trend, {before} → {after} over {runs} runs, p {p}: {which}")
    });
    let one_run = series.one_run.map(|share| {
        format!("{arm}, {metric}: the last run alone is {} off: one run, no change point", layout::change(share, None))
    });
    [trend, one_run].into_iter().flatten()
}

/// Returns the history as it is shown.
pub fn report(history: &History) -> Report {
    let mut report = Report::new("vpmu history");
    let mut labels: Vec<&str> = history.series.iter().map(|series| series.label.as_str()).collect();
    labels.dedup();
    for label in labels {
        let of_label = || history.series.iter().filter(|series| series.label == label);
        let runs = plural(of_label().map(|series| series.points.len()).max().unwrap_or(0), "run");
        let statistic = history.statistic.name();
        let against = of_label().find_map(|series| series.against.as_deref());
        let what = against.map_or_else(
            || "median over each run's rounds".to_owned(),
            |floor| format!("against {floor} (--times: by times)"),
        );
        let caption = format!("{label}: {runs}, {statistic} {what}");
        let others = of_label().flat_map(others);
        if of_label().all(|series| series.changes.is_empty()) {
            report.note(caption);
            report.line(if of_label().all(|series| series.too_short) {
                format!("too few runs: change points need {}", change_points::MIN_VALUES)
            } else {
                let arms: BTreeSet<&str> = of_label().map(|series| series.arm.as_str()).collect();
                let arms = arms.into_iter().collect::<Vec<_>>().join(", ");
                format!("no change point in {} series of {arms}", of_label().count())
            });
            report.notes(others);
            continue;
        }
        let mut table = Table::new(HEADER).keys(2).left(6).left(7).caption(caption);
        let mut also = Vec::new();
        for (series, change) in of_label().flat_map(|series| series.changes.iter().map(move |change| (series, change)))
        {
            table.add_row([
                series.arm.clone(),
                series.metric.clone(),
                shown(series, change.point.before),
                shown(series, change.point.after),
                change.change.map_or_else(dash, |share| layout::change(share, None)),
                layout::p(change.point.p),
                short(&change.first_changed_revision),
                match change.started_unix {
                    0 => format!("run {}", change.point.index + 1),
                    unix => format!("{} (run {})", time_stamp(unix), change.point.index + 1),
                },
            ]);
            let (arm, metric) = (&series.arm, &series.metric);
            also.extend(
                change.also_changed.iter().map(|line| format!("{arm}, {metric}: changed at the same time: {line}")),
            );
        }
        report.table(table);
        report.notes(also);
        report.notes(others);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Statistic;
    use crate::document::Record;
    use crate::fixture::{changed, value};
    use crate::stats::change_points::Rules;
    use serde_json::json;

    fn request() -> HistorySpec {
        HistorySpec {
            rules: Rules::default(),
            statistic: Statistic::P50,
            arms: Vec::new(),
            metrics: Vec::new(),
            times: false,
        }
    }

    /// 20 runs, a revision each; from the 13th on `reuse` is a fifth slower.
    fn runs() -> Vec<Record> {
        (0..20_u64)
            .map(|n| {
                let slow = n >= 12;
                let mut value = value(3, 1_000_000 + n, |arm, round| {
                    let ns = 70_000 + n * 37 % 8 * 100 + round;
                    if slow && arm == "reuse" { ns * 6 / 5 } else { ns }
                });
                value["tool"]["git_revision"] = json!(format!("{n:040x}"));
                if slow {
                    value["host"]["kernel"] = json!("7.0");
                }
                changed(value)
            })
            .collect()
    }

    #[test]
    fn the_first_changed_revision_is_named_with_what_else_changed() {
        let found = history("dir", &runs(), &request()).unwrap();
        // Three strategies against the floor, by three metrics.
        assert_eq!((found.exit().code(), found.series.len()), (0, 9));
        assert!(found.series.iter().all(|series| series.against.as_deref() == Some("floor")));
        let times = history("dir", &runs(), &HistorySpec { times: true, ..request() }).unwrap();
        assert_eq!(times.series.len(), 12);
        for series in &found.series {
            let indices: Vec<usize> = series.changes.iter().map(|change| change.point.index).collect();
            assert_eq!(
                indices,
                if series.arm == "reuse" { vec![12] } else { vec![] },
                "{} {}",
                series.arm,
                series.metric
            );
        }
        let change = found.series.iter().find_map(|series| series.changes.first()).unwrap();
        assert_eq!(change.last_good_revision, format!("{:040x}", 11));
        assert_eq!(change.first_changed_revision, format!("{:040x}", 12));
        assert!((change.change.unwrap() - 0.2).abs() < 0.01);
        assert_eq!(change.also_changed, ["kernel: unknown / 7.0"]);
        let text = report(&found).text(60);
        assert!(
            text.contains("+20.0 %") && text.contains("(run 13)") && text.contains("changed at the same time"),
            "{text}"
        );
    }
}
