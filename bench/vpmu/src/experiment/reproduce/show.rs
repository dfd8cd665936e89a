//! The reproduction as a report.

use results::paired::Level;
use results::published::{Fitted, Here, Measured, Number, Origin, Reproduction, Row};
use results::stats::interval::Interval;
use results::table::layout::{self, dash, level, signed};
use results::table::{Report, Table};
use results::verdict::Agreement;

/// Unit of a number that is a percentage itself.
const PERCENT: &str = "percent";

fn value(row: &Row, value: f64) -> String {
    match row.number {
        Number::Change => format!("{value:.2} %"),
        Number::Ratio if value < 100.0 => format!("{value:.2} ×"),
        Number::Ratio => format!("{value:.0} ×"),
        Number::Before | Number::After if row.unit == PERCENT => format!("{value:.2} %"),
        Number::Before | Number::After if row.unit == "s" => format!("{value:.3} s"),
        Number::Before | Number::After => format!("{value:.0} {}", row.unit),
    }
}

fn error(row: &Row) -> String {
    match (row.error, row.number) {
        (None, _) => dash(),
        (Some(error), Number::Before | Number::After) if row.unit == PERCENT => format!("{} points", signed(error, 2)),
        (Some(error), Number::Change) => format!("{} points", signed(error, 2)),
        (Some(error), _) => format!("{} %", signed(error, 1)),
    }
}

fn origin(row: &Row) -> String {
    match &row.origin {
        Origin::Fitted(constants) => format!("fitted ({})", constants.join(", ")),
        Origin::OfFitted => "of fitted".to_owned(),
        Origin::Transferred(from) => format!("transferred ({from})"),
        Origin::Predicted => "predicted".to_owned(),
    }
}

/// Returns whether some figure has a measured counterpart; without one there is no column of them.
fn has_measured(reproduction: &Reproduction) -> bool {
    reproduction.rows.iter().any(|row| row.measured.is_some())
}

fn columns(reproduction: &Reproduction) -> Vec<&'static str> {
    let mut columns = vec!["figure", "number", "published"];
    if reproduction.here.is_some() {
        columns.extend(["predicted", "measured", "to published", "to predicted"]);
        return columns;
    }
    columns.extend(["simulated", "error", "origin"]);
    columns.extend(has_measured(reproduction).then_some("measured"));
    columns
}

/// Formats the numbers of a range.
fn range(row: &Row, numbers: &[f64]) -> String {
    let shown: Vec<String> = numbers.iter().map(|&number| short(row, number)).collect();
    if shown.is_empty() { dash() } else { shown.join(" to ") }
}

fn cells(row: &Row, (here, with_measured): (bool, bool)) -> Vec<String> {
    let value = if here { short } else { value };
    let published = row.published.map_or_else(dash, |published| value(row, published));
    let figure = row.figure.strip_prefix("vpmu-reuse.").filter(|_| here).unwrap_or(&row.figure);
    let mut cells = vec![figure.to_owned(), row.number.key().to_owned(), published];
    let measured = row.measured.as_ref();
    if here {
        let verdict = |one: &Option<Agreement>| one.as_ref().map_or_else(dash, ToString::to_string);
        let with_interval = |one: &Measured| {
            let interval = one.interval.filter(|interval| interval.low < interval.high);
            match (interval, row.unit.as_str()) {
                (None, _) => short(row, one.value),
                (interval, "ns") => level(&Level { ns: one.value, interval, rounds: 0, constant: false }),
                (Some(Interval { low, high }), _) => {
                    format!("{} [{}, {}]", short(row, one.value), layout::ratio(low), layout::ratio(high))
                }
            }
        };
        cells.extend([range(row, &row.predicted), measured.map_or_else(dash, with_interval)]);
        cells.extend([verdict(&row.against_published), verdict(&row.against_predicted)]);
        return cells;
    }
    cells.extend([row.simulated.map_or_else(dash, |simulated| value(row, simulated)), error(row), origin(row)]);
    if with_measured {
        cells.push(
            measured.map_or_else(dash, |one| format!("{} ({}, {})", value(row, one.value), one.backend, one.host)),
        );
    }
    cells
}

/// Formats a number of a run here, in three digits.
fn short(row: &Row, number: f64) -> String {
    match (row.number, row.unit.as_str()) {
        (Number::Ratio, _) => format!("{} ×", layout::ratio(number)),
        (Number::Before | Number::After, "ns") => layout::time(number),
        (Number::Before | Number::After, "s") => layout::time(number * 1e9),
        _ => value(row, number),
    }
}

/// Describes a run on this host: the host, and why numbers cannot be compared.
fn of_run(reproduction: &Reproduction, here: &Here, report: &mut Report) {
    let mut reasons: Vec<String> = Vec::new();
    for agreement in reproduction.rows.iter().flat_map(|row| [&row.against_published, &row.against_predicted]).flatten()
    {
        let reason = agreement.why.as_ref().map(|why| format!("{agreement}: {why}"));
        reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
    }
    report.heading("The host and the run:");
    report.notes(here.notes.iter().chain(&reasons).cloned());
    report.note(
        "to published, to predicted: the measured number less that one; they agree within 10 %. Predicted before it was measured, by a \
         model of this host that no strategy's latency was fitted to. Intervals are of 95 %.",
    );
    report.gap();
    report.note(here.conclusion.clone());
}

/// Descriptions of the figures, a line each.
fn figures(reproduction: &Reproduction) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut last = "";
    for row in &reproduction.rows {
        if row.figure != last {
            let why = row.not_explained.map_or_else(String::new, |why| format!("; not explained: {why}"));
            let model = if reproduction.here.is_some() { String::new() } else { format!(" (model {})", row.model) };
            lines.push(format!("{}: {}{model}{why}", row.figure, row.what));
            last = &row.figure;
        }
    }
    lines
}

/// Returns all rows, followed by a description of the figures, as they are shown.
#[must_use]
pub fn report(reproduction: &Reproduction) -> Report {
    let here = reproduction.here.as_ref();
    let table = Table::new(columns(reproduction)).keys(2);
    let mut table = if here.is_some() { table } else { table.left(5).left(6) };
    let form = (here.is_some(), has_measured(reproduction));
    reproduction.rows.iter().for_each(|row| table.add_row(cells(row, form)));
    let mut report = Report::new("vpmu reproduce");
    report.table(table);
    report.gap();
    report.notes(figures(reproduction));
    if let Some(here) = here {
        report.gap();
        of_run(reproduction, here, &mut report);
        return report;
    }
    if !reproduction.fitted.is_empty() {
        report.gap();
        report.heading("Constants fitted for perf-stat-setup:");
        let constant = |one: &Fitted| format!("{}: {:.3} {} (to {})", one.constant, one.value, one.unit, one.to);
        report.notes(reproduction.fitted.iter().map(constant));
    }
    report.gap();
    report.note(format!(
        "Simulated with seed {}. Constants and their sources: docs/simulator.md, docs/stat-setup.md.",
        reproduction.seed
    ));
    report
}
