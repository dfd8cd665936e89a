//! A comparison as a table for a terminal and as Markdown for a pull request.

use std::fmt::Write as _;

use super::judge::{Comparison, Group};
use super::row::{Row, SideLevel, Verdict};
use crate::stats::interval::Interval;
use crate::table::fold::{Table, wrapped};
use crate::table::layout::{self, dash, plural, time};

const HEADER: [&str; 8] = ["arm", "metric", "BASE", "NEW", "change", "p (adj.)", "delta", "verdict"];

/// A side of a row: its ratio to the reference arm, or its time.
fn level(level: Option<&SideLevel>) -> String {
    level.map_or_else(dash, |level| match level.ratio {
        Some(ratio) => format!("× {ratio:.3}"),
        None => time(level.median_ns),
    })
}

/// A relative change in per cent, signed.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", layout::signed(share * 100.0, 1))
}

fn change(row: &Row) -> String {
    let Some(change) = row.change else { return dash() };
    let interval = row.change_interval.map_or_else(String::new, |Interval { low, high }| {
        format!(" [{}, {}]", layout::signed(low * 100.0, 1), layout::signed(high * 100.0, 1))
    });
    percent(change) + &interval
}

fn p(row: &Row) -> String {
    row.p_value_adjusted.or(row.p_value).map_or_else(dash, layout::p)
}

pub(super) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Regression => "SLOWER",
        Verdict::Improvement => "faster",
        Verdict::NoChange => "no change",
        Verdict::TooFew => "too few rounds",
        Verdict::TooNoisy => "inconclusive",
        Verdict::NotWhole => "not whole",
        Verdict::OneSided => "one-sided",
        Verdict::NotJudged | Verdict::ReportOnly => "(not judged)",
    }
}

fn cells(row: &Row) -> [String; 8] {
    [
        row.arm.clone(),
        row.metric.clone(),
        level(row.base.as_ref()),
        level(row.new.as_ref()),
        change(row),
        p(row),
        row.cliffs_delta.map_or_else(dash, |delta| format!("{delta:+.2}")),
        word(row.verdict).to_owned(),
    ]
}

fn heading(group: &Group, comparison: &Comparison) -> String {
    let [base, new] = group.documents;
    let rounds = |pick: fn(&Row) -> Option<&SideLevel>| group.rows.iter().filter_map(pick).map(|level| level.n).max();
    let (a, b) = (rounds(|row| row.base.as_ref()).unwrap_or(0), rounds(|row| row.new.as_ref()).unwrap_or(0));
    let statistic = comparison.statistic.name();
    let files = if base + new > 2 { format!(" of {base} and {new} runs") } else { String::new() };
    let blocks = group.rows.iter().map(|row| row.blocks).max().filter(|blocks| *blocks > 0);
    let blocks = blocks.map_or_else(String::new, |blocks| format!(" in {blocks} blocks"));
    let (label, reference) = (&group.label, &group.reference);
    format!("{label}: {statistic} against {reference}, {a} and {b} rounds{files}{blocks}, 95 % intervals")
}

/// The comparison as a table of so many columns, with everything that limits it.
#[must_use]
pub fn text(comparison: &Comparison, width: usize) -> String {
    let mut out = String::new();
    for group in &comparison.groups {
        let mut table = Table::new(HEADER).keys(2).left(7);
        for row in &group.rows {
            table.add_row(cells(row));
        }
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "{}\n{}", wrapped(&heading(group, comparison), width, "  "), table.text(width));
    }
    let legend = "delta: Cliff's delta over rounds, -1 to 1; p: t-test over guests or runs, Holm-adjusted".to_owned();
    for line in remarks(comparison).into_iter().chain([legend, comparison.verdict.clone()]) {
        let _ = writeln!(out, "{}", wrapped(&line, width, "  "));
    }
    out
}

/// Lines about what is open, differs, or is missing.
fn remarks(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    // Rows that are open for the same reason, in the order of the first of each.
    let mut open: Vec<(&Row, usize)> = Vec::new();
    for row in comparison.rows().filter(|row| !row.why.is_empty()) {
        match open.iter_mut().find(|(first, _)| first.why == row.why && first.verdict == row.verdict) {
            Some((_, more)) => *more += 1,
            None => open.push((row, 0)),
        }
    }
    for (row, more) in open {
        let more = if more > 0 { format!(" and {}", plural(more, "other row")) } else { String::new() };
        lines.push(format!("{}, {}{more}: {}: {}", row.arm, row.metric, word(row.verdict), row.why));
    }
    lines.extend(comparison.unlike.iter().map(|line| format!("unlike: {line}")));
    lines.extend(comparison.notes.iter().map(|line| format!("note: {line}")));
    lines
}

/// Keeps a text in its cell.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('`', "\\`")
}

/// The comparison as Markdown.
#[must_use]
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = String::new();
    let mark = match comparison.exit {
        0 => "✅",
        1 => "❌",
        _ => "⚠️",
    };
    let _ = writeln!(out, "### {mark} vpmu: {}\n", escaped(&comparison.verdict));
    for group in &comparison.groups {
        let _ = writeln!(out, "{}\n", escaped(&heading(group, comparison)));
        let _ = writeln!(out, "| {} |\n|---|---|---:|---:|---:|---:|---:|---|", HEADER.join(" | "));
        for row in &group.rows {
            let mut texts = cells(row).map(|text| escaped(&text));
            if row.verdict == Verdict::Regression {
                texts[7] = format!("**{}**", texts[7]);
            }
            let _ = writeln!(out, "| {} |", texts.join(" | "));
        }
        out.push('\n');
    }
    for line in remarks(comparison) {
        let _ = writeln!(out, "- {}", escaped(&line));
    }
    let revisions = |side: &super::Side| escaped(&side.revisions.join(", "));
    let _ = writeln!(
        out,
        "\nBASE {} ({}), NEW {} ({}), host: {}. delta is Cliff's delta; p is Holm-adjusted.",
        escaped(&comparison.base.source),
        revisions(&comparison.base),
        escaped(&comparison.new.source),
        revisions(&comparison.new),
        escaped(&comparison.new.host),
    );
    out
}
