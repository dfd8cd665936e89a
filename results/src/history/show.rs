//! A history as a report: a row for each change.

use super::series::{History, MIN_DOCUMENTS, Series};
use crate::table::layout::{self, dash, plural, time};
use crate::table::{Report, Table};
use crate::write::time_stamp;

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

/// Returns the history as it is shown.
#[must_use]
pub fn report(history: &History) -> Report {
    let mut report = Report::new("vpmu history");
    let mut labels: Vec<&str> = history.series.iter().map(|series| series.label.as_str()).collect();
    labels.dedup();
    for label in labels {
        let of_label = || history.series.iter().filter(|series| series.label == label);
        let runs = plural(of_label().map(|series| series.points.len()).max().unwrap_or(0), "run");
        let statistic = history.statistic.name();
        let against = of_label().find_map(|series| series.against.as_deref());
        let what =
            against.map_or_else(|| "median over each run's rounds".to_owned(), |floor| format!("against {floor}"));
        let caption = format!("{label}: {runs}, {statistic} {what}");
        if of_label().all(|series| series.changes.is_empty()) {
            report.note(caption);
            report.line(if of_label().all(|series| series.too_short) {
                format!("too few runs: change points need {MIN_DOCUMENTS}")
            } else {
                format!("no change point in {} series", of_label().count())
            });
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
    }
    report
}
