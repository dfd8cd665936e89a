//! A folder of results as a series: where did it change, and with which revision or kernel?

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{CompareSpec, asked, definitions, differences, group_label, grouped, reference};
use crate::document::{ArmKind, Record};
use crate::error::{Error, Exit};
use crate::paired;
use crate::stats::change_points::{self, ChangePoint, MIN_VALUES, Trend};
use crate::table::layout::{self, dash, plural, time};
use crate::table::{Report, Table};
use crate::write::time_stamp;

/// Order of the runs of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// By their start.
    Time,
    /// By the host's kernel, then by their start.
    Kernel,
    /// By these revisions, the oldest first, then by their start.
    Revisions(Vec<String>),
}

/// A run within a series.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Start, seconds since 1970.
    pub started_unix: u64,
    /// Revision of the tool; of `ab` that of NEW.
    pub revision: String,
    /// The host's kernel.
    pub kernel: Option<String>,
    /// The file.
    pub file: String,
    /// The run's time, ns.
    pub value_ns: f64,
    /// Its ratio to the reference arm, in paired rounds; `None` where the series is of times.
    pub ratio: Option<f64>,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: String,
    /// Place and size of the change.
    #[serde(flatten)]
    pub point: ChangePoint,
    /// The last revision before.
    pub last_good_revision: String,
    /// The first changed revision.
    pub first_changed_revision: String,
    /// Other things that changed between the two runs: host and build.
    pub also_changed: Vec<String>,
}

/// One arm and metric of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Series {
    /// Experiment and parameters, for people.
    pub label: String,
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: String,
    /// The arm it is divided by; `None`: the series is of times.
    pub against: Option<String>,
    /// Its runs, in order.
    pub points: Vec<Point>,
    /// Changes that were found; beside a trend only those that its line does not explain.
    pub changes: Vec<Change>,
    /// It goes up or down all the time.
    pub trend: Option<Trend>,
}

/// A history.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct History {
    /// As given on the command line.
    pub source: String,
    /// Documents.
    pub documents: usize,
    /// What the runs are in the order of.
    pub order: &'static str,
    /// Runs that are left out, and orders that are mixed.
    pub notes: Vec<String>,
    /// The series.
    pub series: Vec<Series>,
    /// The changes of all of them.
    pub answer: Vec<Change>,
}

impl History {
    /// Returns the exit: done, or inconclusive if every series is too short.
    pub fn exit(&self) -> Exit {
        if are_short(&self.series) { Exit::Inconclusive } else { Exit::Done }
    }
}

/// Returns whether all of these are too short for changes to be found.
fn are_short(series: &[Series]) -> bool {
    series.iter().all(|series| series.points.len() < MIN_VALUES)
}

/// Returns the revision that a run is of: the tool's, of `ab` that of NEW.
fn revision(record: &Record) -> &str {
    let new = record.parameters.get("new").and_then(|new| new["tool"]["git_revision"].as_str());
    new.unwrap_or(&record.tool.git_revision)
}

/// Returns the hexadecimal digits that a revision begins with, and what is behind them.
fn hash(revision: &str) -> (&str, &str) {
    revision.split_at(revision.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(revision.len()))
}

impl Order {
    const fn name(&self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Kernel => "kernel",
            Self::Revisions(_) => "revision",
        }
    }

    /// Puts records, which are in order of their start, in this order; says what is left out, or out of order.
    fn of<'a>(&self, records: &'a [Record]) -> (Vec<&'a Record>, Option<String>) {
        let mut found: Vec<&Record> = records.iter().collect();
        let all: BTreeSet<&str> = records.iter().map(revision).collect();
        let note = match self {
            Self::Time => {
                let turns = records.chunk_by(|one, next| revision(one) == revision(next)).count();
                let note = "revisions are interleaved in time, and a change is of none of them; --by revision puts them in order";
                (turns > all.len()).then(|| note.to_owned())
            }
            Self::Kernel => {
                // 6.9 is before 6.10.
                found.sort_by_cached_key(|record| -> Vec<u64> {
                    let release = record.host.kernel.as_deref().unwrap_or_default();
                    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
                });
                None
            }
            Self::Revisions(list) => {
                let place = |revision: &str| {
                    let own = hash(revision).0;
                    let is_own = |one: &String| one.starts_with(own) || own.starts_with(one.as_str());
                    list.iter().position(|one| !own.is_empty() && is_own(one))
                };
                let places: BTreeMap<&str, usize> = all.iter().filter_map(|one| Some((*one, place(one)?))).collect();
                found.retain(|record| places.contains_key(revision(record)));
                found.sort_by_key(|record| places[revision(record)]);
                let unknown: Vec<String> = all.into_iter().filter(|one| !places.contains_key(one)).map(short).collect();
                let runs = plural(records.len() - found.len(), "run");
                let note = format!("{runs} left out, of revisions that are not in the list: {}", unknown.join(", "));
                (!unknown.is_empty()).then_some(note)
            }
        };
        (found, note)
    }
}

/// Computes the history of `records`, which are in order of their start, in this order.
///
/// # Errors
/// Exit 2 if nothing that was asked for is there.
pub fn history(source: &str, records: &[Record], request: &CompareSpec, order: &Order) -> Result<History, Error> {
    let (ordered, note) = order.of(records);
    // The sides of `ab` met one host, whichever that was.
    let groups = grouped(ordered, |one| if one.parameters.contains_key("new") { "" } else { &one.host.class });
    let mut wanted = Vec::new();
    for group in groups.values() {
        let mut seen = BTreeSet::new();
        for arm in group.iter().flat_map(|record| &record.arms).filter(|arm| asked(&request.arms, &arm.name)) {
            let metrics = arm.metrics.keys().filter(|metric| asked(&request.metrics, metric));
            let others = metrics.filter(|metric| seen.insert((&arm.name, *metric)));
            wanted.extend(others.map(|metric| (group, &arm.name, metric)).collect::<Vec<_>>());
        }
    }
    let family = wanted.len();
    let of = |(group, arm, metric): &(&Vec<&Record>, &String, &String)| series(group, arm, metric, request, family);
    let series: Vec<Series> = wanted.par_iter().filter_map(of).collect();
    if series.is_empty() {
        let why = "no arm, metric or revision that was asked for, but for the arm that others are divided by";
        return Err(Error::usage(format!("no series in {source}"), why, "leave out --arm, --metric and --by"));
    }
    let answer = series.iter().flat_map(|series| series.changes.iter().cloned()).collect();
    let (source, documents, order) = (source.to_owned(), records.len(), order.name());
    Ok(History { source, documents, order, notes: note.into_iter().collect(), series, answer })
}

fn series(group: &[&Record], arm: &str, metric: &str, request: &CompareSpec, family: usize) -> Option<Series> {
    // Without a floor there are times; the sides of `ab` are compared with each other.
    let against = reference(group)
        .filter(|name| group[0].arm(name).is_some_and(|arm| arm.kind == ArmKind::Floor || arm.name == "BASE"));
    if against.is_some_and(|name| name == arm) {
        return None;
    }
    let run = |record: &Record| {
        let own = record.arm(arm)?;
        let value_ns = paired::p50(own, metric)?;
        // The ratio alone: an interval of each run takes longer than all the rest.
        let ratio = match against {
            Some(base) => Some(paired::log_ratio(own, record.arm(base)?, metric)?.exp()),
            None => None,
        };
        let (started_unix, file) = (record.started_unix, record.path.display().to_string());
        let (revision, kernel) = (revision(record).to_owned(), record.host.kernel.clone());
        Some(Point { started_unix, revision, kernel, file, value_ns, ratio })
    };
    let (runs, points): (Vec<&Record>, Vec<Point>) = group.iter().filter_map(|one| Some((*one, run(one)?))).unzip();
    let values: Vec<f64> = points.iter().map(|point| point.ratio.unwrap_or(point.value_ns)).collect();
    let found = change_points::find(&values, &request.limits, family);
    let (trend, found) = change_points::trend(&values, &request.limits, family, found);
    let change = |point: ChangePoint| {
        let [before, after] = [point.index - 1, point.index];
        let (base, new) = ([runs[before]], [runs[after]]);
        Change {
            arm: arm.to_owned(),
            metric: metric.to_owned(),
            point,
            last_good_revision: points[before].revision.clone(),
            first_changed_revision: points[after].revision.clone(),
            also_changed: [differences(&base, &new), definitions(&base, &new)].concat(),
        }
    };
    Some(Series {
        label: group_label(runs.first()?),
        arm: arm.to_owned(),
        metric: metric.to_owned(),
        against: against.cloned(),
        changes: found.into_iter().map(change).collect(),
        trend,
        points,
    })
}

const HEADER: [&str; 8] = ["arm", "metric", "before", "after", "change", "p", "first changed", "at"];

/// Shortens a revision as people quote it.
fn short(revision: &str) -> String {
    let (hash, rest) = hash(revision);
    if hash.is_empty() { revision.to_owned() } else { format!("{}{rest}", &hash[..hash.len().min(12)]) }
}

/// Formats a value of a series: a ratio or a time.
fn shown(series: &Series, value: f64) -> String {
    if series.against.is_some() { layout::against(value) } else { time(value) }
}

/// Says that a series has a trend.
fn trend(series: &Series) -> Option<String> {
    let Series { arm, metric, points, trend, .. } = series;
    let Trend { before, after, p } = (*trend)?;
    let (before, after, p, runs) = (shown(series, before), shown(series, after), layout::p(p), points.len());
    Some(format!("{arm}, {metric}: a trend, {before} → {after} over {runs} runs, p {p}: no one revision stands out"))
}

/// Returns the history as it is shown.
pub fn report(history: &History) -> Report {
    let mut report = Report::new("vpmu history");
    report.notes(history.notes.iter().cloned());
    for all in history.series.chunk_by(|one, next| one.label == next.label) {
        let runs = plural(all.iter().map(|series| series.points.len()).max().unwrap_or(0), "run");
        let against = all.iter().find_map(|series| series.against.as_deref());
        let what = against.map_or("median over each run's rounds".to_owned(), |floor| format!("against {floor}"));
        report.heading(format!("{}: {runs} by {}, p50 {what}", all[0].label, history.order));
        let mut table = Table::new(HEADER).keys(2).left(6).left(7);
        let mut notes = Vec::new();
        for (series, change) in all.iter().flat_map(|series| series.changes.iter().map(move |change| (series, change)))
        {
            let (at, Change { arm, metric, .. }) = (change.point.index, change);
            let begun = match &series.points[at] {
                Point { kernel: Some(kernel), .. } if history.order == "kernel" => format!("{kernel} "),
                Point { started_unix: 0, .. } => String::new(),
                Point { started_unix, .. } => format!("{} ", time_stamp(*started_unix)),
            };
            table.add_row([
                arm.clone(),
                metric.clone(),
                shown(series, change.point.before),
                shown(series, change.point.after),
                change.point.change.map_or_else(dash, |share| layout::change(share, None)),
                layout::p(change.point.p),
                short(&change.first_changed_revision),
                format!("{begun}(run {})", at + 1),
            ]);
            let also = change.also_changed.iter();
            notes.extend(also.map(|line| format!("{arm}, {metric}: changed at the same time: {line}")));
        }
        if all.iter().any(|series| !series.changes.is_empty()) {
            report.table(table);
        } else {
            report.note(if are_short(all) {
                format!("too few runs: change points need {MIN_VALUES}")
            } else {
                format!("no change point in {} series", all.len())
            });
        }
        report.notes(notes.into_iter().chain(all.iter().filter_map(trend)));
    }
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{changed, value};

    fn found_in(runs: &[Record], order: &Order) -> History {
        let limits = change_points::USUAL;
        history("dir", runs, &CompareSpec { limits, ..CompareSpec::default() }, order).unwrap()
    }

    fn hash_of(revision: u64) -> String {
        format!("{revision:08x}{revision:032x}")
    }

    /// A run that began at this time, of a revision and a kernel; `reuse` is so much slower, in per cent.
    fn run(at: u64, revision: u64, kernel: &str, slower: u64) -> Record {
        let mut value = value(3, 1_000_000 + at, |arm, round| {
            let ns = 70_000 + at * 37 % 8 * 100 + round;
            if arm == "reuse" { ns * (100 + slower) / 100 } else { ns }
        });
        value["tool"]["git_revision"] = json!(hash_of(revision));
        value["host"]["kernel"] = json!(kernel);
        changed(value)
    }

    /// Returns the arm, the place, the revision and the size of each change.
    fn changes<'a>(found: &'a History) -> Vec<(&'a str, usize, &'a str, f64)> {
        let main = found.series.iter().filter(|series| series.metric == "nmi_handler_ns");
        let all = main.flat_map(|series| series.changes.iter().map(move |change| (series, change.point)));
        let of = |(series, ChangePoint { index, change, .. }): (&'a Series, ChangePoint)| {
            (series.arm.as_str(), index, series.points[index].revision.as_str(), change.unwrap())
        };
        all.map(of).collect()
    }

    #[test]
    fn the_first_changed_revision_is_named_with_what_else_changed() {
        // 20 runs, a revision each; from the 13th on `reuse` is a fifth slower.
        let runs: Vec<Record> =
            (0..20).map(|n| if n >= 12 { run(n, n, "7.0", 20) } else { run(n, n, "6.12", 0) }).collect();
        let found = found_in(&runs, &Order::Time);
        // Three strategies against the floor, by three metrics.
        assert_eq!((found.exit(), found.series.len()), (Exit::Done, 9));
        assert!(found.series.iter().all(|series| series.against.as_deref() == Some("floor")));
        let [("reuse", 12, revision, size)] = changes(&found)[..] else { panic!("{:?}", changes(&found)) };
        assert!(revision == hash_of(12) && (size - 0.2).abs() < 0.01);
        let change = found.series.iter().find_map(|series| series.changes.first()).unwrap();
        assert_eq!(
            (&change.last_good_revision, &change.also_changed),
            (&hash_of(11), &vec!["kernel: 6.12 / 7.0".into()])
        );
        let text = report(&found).text(60);
        assert!(
            text.contains("+20.0 %") && text.contains("(run 13)") && text.contains("changed at the same time"),
            "{text}"
        );
    }

    #[test]
    fn forty_revisions_in_any_order_have_their_first_changed_one_by_revision() {
        // The revision that is measured at a time: 17 has no factor in common with 40.
        let runs: Vec<Record> = (0..40).map(|at| run(at, at * 17 % 40, "6.12", 0)).collect();
        let slower = |one: &Record| one.tool.git_revision >= hash_of(20);
        let runs: Vec<Record> = (0..)
            .zip(runs)
            .map(|(at, one)| if slower(&one) { run(at, at * 17 % 40, "6.12", 18) } else { one })
            .collect();
        let list = (1..40).map(|revision| hash_of(revision)[..12].to_owned()).collect();
        let found = found_in(&runs, &Order::Revisions(list));
        let [("reuse", 19, revision, size)] = changes(&found)[..] else { panic!("{:?}", changes(&found)) };
        assert!(revision == hash_of(20) && (size - 0.18).abs() < 0.01, "{revision} {size}");
        assert_eq!(found.notes, ["1 run left out, of revisions that are not in the list: 000000000000"]);
        let by_time = found_in(&runs, &Order::Time);
        assert!(changes(&by_time).is_empty() && by_time.notes.is_empty(), "each revision has one run");
        let again = [runs.clone(), runs].concat();
        assert!(found_in(&again, &Order::Time).notes[0].starts_with("revisions are interleaved in time"));
    }

    #[test]
    fn runs_are_in_the_order_of_their_kernels_by_number() {
        let of = |at: u64| if at.is_multiple_of(2) { run(at, 1, "6.9.1", 0) } else { run(at, 1, "6.10.0-1", 12) };
        let found = found_in(&(0..20).map(of).collect::<Vec<_>>(), &Order::Kernel);
        assert!(matches!(changes(&found)[..], [("reuse", 10, ..)]), "{:?}", changes(&found));
        assert!(report(&found).text(200).contains("6.10.0-1 (run 11)"));
    }

    #[test]
    fn builds_and_hosts_of_ab_make_one_series_of_new_against_base() {
        let of = |at: u64| {
            let mut record = run(at, 0, "6.12", if at < 10 { 0 } else { 18 });
            for (place, name) in ["BASE", "NEW"].into_iter().enumerate() {
                name.clone_into(&mut record.arms[place].name);
                let side = json!({"args": [], "binary": format!("/b/{at}"), "tool": {"git_revision": hash_of(at)}, "parameters":
                                  {"workload": "single/ftest", "backend_why": format!("on host {at}")}});
                record.parameters.insert(name.to_lowercase(), side);
            }
            record.arms.truncate(2);
            record.host.class = format!("host {}", at % 3);
            record
        };
        let found = found_in(&(0..20).map(of).collect::<Vec<_>>(), &Order::Time);
        assert!(found.series.iter().all(|one| one.points.len() == 20 && one.against.as_deref() == Some("BASE")));
        let [("NEW", 10, revision, size)] = changes(&found)[..] else { panic!("{:?}", changes(&found)) };
        assert!(revision == hash_of(10) && (size - 0.18).abs() < 0.01);
    }
}
