//! A history as a table: a line for each change.

use std::fmt::Write as _;

use super::series::{History, MIN_DOCUMENTS, Series};
use crate::table::fold::{Table, wrapped};
use crate::table::layout::{self, dash, plural, time};
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

/// Formats the history as text of so many columns.
#[must_use]
pub fn text(history: &History, width: usize) -> String {
    let mut out = String::new();
    let mut labels: Vec<&str> = history.series.iter().map(|series| series.label.as_str()).collect();
    labels.dedup();
    for label in labels {
        let of_label = || history.series.iter().filter(|series| series.label == label);
        let runs = plural(of_label().map(|series| series.points.len()).max().unwrap_or(0), "run");
        let statistic = history.statistic.name();
        // Writing to a String cannot fail, here and below.
        let against = of_label().find_map(|series| series.against.as_deref());
        let what =
            against.map_or_else(|| "median over each run's rounds".to_owned(), |floor| format!("against {floor}"));
        let _ = writeln!(out, "{}", wrapped(&format!("{label}: {runs}, {statistic} {what}"), width, "  "));
        if of_label().all(|series| series.too_short) {
            let _ = writeln!(out, "too few runs: change points need {MIN_DOCUMENTS}");
            continue;
        }
        if of_label().all(|series| series.changes.is_empty()) {
            let _ = writeln!(out, "no change point in {} series", of_label().count());
            continue;
        }
        let mut table = Table::new(HEADER).keys(2).left(6).left(7);
        for (series, change) in of_label().flat_map(|series| series.changes.iter().map(move |change| (series, change)))
        {
            table.add_row([
                series.arm.clone(),
                series.metric.clone(),
                shown(series, change.point.before),
                shown(series, change.point.after),
                change.change.map_or_else(dash, crate::compare::percent),
                layout::p(change.point.p),
                short(&change.first_changed_revision),
                match change.started_unix {
                    0 => format!("run {}", change.point.index + 1),
                    unix => format!("{} (run {})", time_stamp(unix), change.point.index + 1),
                },
            ]);
        }
        let _ = writeln!(out, "{}", table.text(width));
        for (series, change) in of_label().flat_map(|series| series.changes.iter().map(move |change| (series, change)))
        {
            for line in &change.also_changed {
                let line = format!("{}, {}: changed at the same time: {line}", series.arm, series.metric);
                let _ = writeln!(out, "{}", wrapped(&line, width, "  "));
            }
        }
    }
    out
}
