//! The reproduction as Markdown.

use std::fmt::Write;

use results::published::{Number, Origin, Reproduction, Row};

fn value(row: &Row, value: f64) -> String {
    match row.number {
        Number::Change => format!("{value:.2} %"),
        Number::Ratio if value < 100.0 => format!("{value:.2} ×"),
        Number::Ratio => format!("{value:.0} ×"),
        Number::Before | Number::After if row.unit == "s" => format!("{value:.3} s"),
        Number::Before | Number::After => format!("{value:.0} {}", row.unit),
    }
}

fn error(row: &Row) -> String {
    match (row.error, row.number) {
        (None, _) => "–".to_owned(),
        (Some(error), Number::Change) => format!("{error:+.2} points"),
        (Some(error), _) => format!("{error:+.1} %"),
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

/// Table of all rows, followed by a description of the figures.
#[must_use]
pub fn markdown(reproduction: &Reproduction) -> String {
    let mut out = String::from(
        "| figure | number | published | simulated | error | | measured |\n|---|---|---|---|---|---|---|\n",
    );
    for row in &reproduction.rows {
        let simulated = row.simulated.map_or_else(|| "–".to_owned(), |simulated| value(row, simulated));
        let measured = row.measured.as_ref().map_or_else(
            || "not measured here".to_owned(),
            |measured| format!("{} ({}, {})", value(row, measured.value), measured.backend, measured.host),
        );
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {simulated} | {} | {} | {measured} |",
            row.figure,
            row.number.key(),
            value(row, row.published),
            error(row),
            origin(row)
        );
    }
    out.push('\n');
    let mut last = "";
    for row in &reproduction.rows {
        if row.figure != last {
            let _ = writeln!(out, "- `{}`: {} (model {})", row.figure, row.what, row.model);
            last = &row.figure;
        }
    }
    if !reproduction.fitted.is_empty() {
        out.push_str("\nConstants fitted for perf-stat-setup:\n\n");
    }
    for fitted in &reproduction.fitted {
        let _ = writeln!(out, "- {}: {:.3} {} (to {})", fitted.constant, fitted.value, fitted.unit, fitted.to);
    }
    let _ = writeln!(
        out,
        "\nSimulated with seed {}. Constants and their sources: docs/simulator.md, docs/stat-setup.md.",
        reproduction.seed
    );
    out
}
