//! The reproduction as a report.

use results::published::{Fitted, Number, Origin, Reproduction, Row};
use results::table::layout::{dash, signed};
use results::table::{Report, Table};

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
    let mut columns = vec!["figure", "number", "published", "simulated", "error", "origin"];
    columns.extend(has_measured(reproduction).then_some("measured"));
    columns
}

fn cells(row: &Row, with_measured: bool) -> Vec<String> {
    let mut cells = vec![
        row.figure.clone(),
        row.number.key().to_owned(),
        row.published.map_or_else(dash, |published| value(row, published)),
        row.simulated.map_or_else(dash, |simulated| value(row, simulated)),
        error(row),
        origin(row),
    ];
    if with_measured {
        let measured = row.measured.as_ref();
        cells.push(
            measured.map_or_else(dash, |one| format!("{} ({}, {})", value(row, one.value), one.backend, one.host)),
        );
    }
    cells
}

/// Descriptions of the figures, a line each.
fn figures(reproduction: &Reproduction) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut last = "";
    for row in &reproduction.rows {
        if row.figure != last {
            let why = row.not_explained.map_or_else(String::new, |why| format!("; not explained: {why}"));
            lines.push(format!("{}: {} (model {}){why}", row.figure, row.what, row.model));
            last = &row.figure;
        }
    }
    lines
}

/// Returns all rows, followed by a description of the figures, as they are shown.
#[must_use]
pub fn report(reproduction: &Reproduction) -> Report {
    let mut table = Table::new(columns(reproduction)).keys(2).left(5).left(6);
    let with_measured = has_measured(reproduction);
    reproduction.rows.iter().for_each(|row| table.add_row(cells(row, with_measured)));
    let mut report = Report::new("vpmu reproduce");
    report.table(table);
    report.gap();
    report.notes(figures(reproduction));
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
