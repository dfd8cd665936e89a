//! An analysis for a terminal.

use std::fmt::Write as _;

use super::tables::{self, Cells};
use crate::statistics::{Analysis, MIN_CLASS};
use results::error::Exit;
use results::table::fold::{Table, wrapped};
use results::table::layout::plural;

/// First head of the table of changes.
const CHANGE: &str = "no.";
/// Most rows of a table; the page and the JSON have all.
const ROWS: usize = 60;

fn table(cells: &Cells, width: usize) -> String {
    let mut table =
        cells.left.iter().fold(Table::new(cells.head.clone()).keys(cells.keys), |table, left| table.left(*left));
    for row in cells.rows.iter().take(ROWS) {
        table.add_row(row.iter().cloned());
    }
    let more = cells.rows.len().saturating_sub(ROWS);
    let more = if more > 0 { format!("{more} more: see the page or the JSON\n") } else { String::new() };
    format!("{}\n{}\n{more}\n", wrapped(&cells.caption, width, "  "), table.text(width))
}

/// The analysis in tables of so many columns.
#[must_use]
pub fn text(analysis: &Analysis, width: usize) -> String {
    let mut out = tables::summary(analysis).join("\n") + "\n";
    for line in tables::legend(analysis) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "{}", wrapped(&line, width, "  "));
    }
    out.push('\n');
    // Nothing found and nothing judged are two things.
    let none = |what: &str, found: &str| match Exit::from_code(analysis.exit) {
        Exit::Inconclusive => {
            format!("{what}: not judged ({}, it takes {MIN_CLASS} of a class)", plural(analysis.hosts, "host"))
        }
        _ => found.to_owned(),
    };
    for (cells, none) in [
        (tables::odd(analysis), none("odd hosts", "No odd host")),
        (tables::changes(analysis), none("changes", "No change")),
        (tables::levels(analysis, false), String::new()),
        (tables::variance(analysis, false), String::new()),
    ] {
        if cells.head[0] == CHANGE {
            for line in tables::change_lines(analysis) {
                let _ = writeln!(out, "{}", wrapped(&format!("change {line}"), width, "  "));
            }
        }
        if !cells.rows.is_empty() {
            out.push_str(&table(&cells, width));
        } else if !none.is_empty() {
            let _ = writeln!(out, "{none}\n");
        }
    }
    for line in tables::remarks(analysis) {
        let _ = writeln!(out, "{}", wrapped(&line, width, "  "));
    }
    let _ = writeln!(out, "{}", wrapped(&analysis.verdict, width, "  "));
    out
}
