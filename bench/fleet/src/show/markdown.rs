//! An analysis as Markdown, for a mail or a job's summary.

use std::fmt::Write as _;

use super::elements::{ElementEnd, ElementLine, HEAD};
use super::tables::{self, Cells};
use crate::statistics::Analysis;
use results::shown;

/// Most rows of a table.
const ROWS: usize = 40;

fn table(out: &mut String, cells: &Cells) {
    let align = |column: usize| if column < cells.keys || cells.left.contains(&column) { "---" } else { "---:" };
    let line = (0..cells.head.len()).map(align).collect::<Vec<_>>().join("|");
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(out, "{}\n\n| {} |\n|{line}|", shown::markdown(&cells.caption), cells.head.join(" | "));
    for row in cells.rows.iter().take(ROWS) {
        let _ = writeln!(out, "| {} |", row.iter().map(|text| shown::markdown(text)).collect::<Vec<_>>().join(" | "));
    }
    let more = cells.rows.len().saturating_sub(ROWS);
    if more > 0 {
        let _ = writeln!(out, "\n{more} more: see the page or the JSON");
    }
    out.push('\n');
}

/// The analysis; elements that failed come first.
#[must_use]
pub fn markdown(analysis: &Analysis, elements: &[ElementLine]) -> String {
    let bad = ElementLine::with_a_problem(elements);
    let mark = match analysis.exit {
        _ if bad.iter().any(|element| element.end == ElementEnd::Failed) => "❌",
        1 => "❌",
        0 if bad.is_empty() => "✅",
        _ => "⚠️",
    };
    let mut out = format!(
        "### {mark} vpmu fleet: {}\n\n{}\n\n",
        shown::markdown(&analysis.verdict),
        shown::markdown(&tables::summary(analysis).join(", "))
    );
    for line in tables::legend(analysis) {
        let _ = writeln!(out, "- {}", shown::markdown(&line));
    }
    out.push('\n');
    if !bad.is_empty() {
        let rows = bad.iter().map(|element| element.cells().to_vec()).collect();
        let caption = ElementLine::caption(elements);
        table(&mut out, &Cells { caption, head: HEAD.to_vec(), rows, keys: 3, left: vec![4, 5] });
    }
    for cells in [
        tables::odd(analysis),
        tables::changes(analysis),
        tables::levels(analysis, false),
        tables::variance(analysis, false),
    ] {
        if cells.head[0] == "no." {
            for line in tables::change_lines(analysis) {
                let _ = writeln!(out, "- change {}", shown::markdown(&line));
            }
            out.push('\n');
        }
        if !cells.rows.is_empty() {
            table(&mut out, &cells);
        }
    }
    for line in tables::remarks(analysis) {
        let _ = writeln!(out, "- {}", shown::markdown(&line));
    }
    out
}
