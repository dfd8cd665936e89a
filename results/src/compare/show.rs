//! A comparison as a report: tables for a terminal or a pull request, with everything that limits them, and a case for each row.

use super::change::Order;
use super::judge::{Comparison, Group};
use super::row::{Row, SideLevel};
use crate::junit::Case;
use crate::table::layout::{self, change, dash, plural, time};
use crate::table::{Part, Report, Table};

/// The verdict is beside the change, so that a narrow terminal does not part them.
const HEADER: [&str; 7] = ["arm", "metric", "change", "verdict", "BASE", "NEW", "p (adj.)"];
const LEGEND: &str = "p: t-test over guests or runs, Holm-adjusted";

/// Formats a side of a row: its ratio to the reference arm, or its time.
fn level(level: Option<&SideLevel>) -> String {
    level.map_or_else(dash, |level| match level.ratio {
        Some(ratio) => format!("× {ratio:.3}"),
        None => time(level.median_ns),
    })
}

fn cells(row: &Row) -> [String; 7] {
    [
        row.arm.clone(),
        row.metric.clone(),
        row.change.map_or_else(dash, |share| change(share, row.change_interval)),
        row.verdict.word().to_owned(),
        level(row.base.as_ref()),
        level(row.new.as_ref()),
        row.p_value_adjusted.or(row.p_value).map_or_else(dash, layout::p),
    ]
}

fn case(row: &Row) -> Case {
    let change = row.change.map_or_else(String::new, |share| change(share, None));
    let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
    Case {
        name: format!("{} {}", row.arm, row.metric),
        class: format!("vpmu.{}", row.arm),
        verdict: row.verdict,
        message: format!("{} {change}{why}", row.verdict.word()),
    }
}

fn heading(group: &Group, comparison: &Comparison) -> String {
    let [base, new] = group.documents;
    let rounds = |pick: fn(&Row) -> Option<&SideLevel>| group.rows.iter().filter_map(pick).map(|level| level.n).max();
    let (a, b) = (rounds(|row| row.base.as_ref()).unwrap_or(0), rounds(|row| row.new.as_ref()).unwrap_or(0));
    let statistic = comparison.statistic.name();
    let runs = |order: Order| format!(" of {base} and {new} runs, {}", order.about());
    let (label, reference, runs) = (&group.label, &group.reference, group.order.map_or_else(String::new, runs));
    format!("{label}: {statistic} against {reference}, {a} and {b} rounds{runs}; 95 % intervals")
}

/// Returns the comparison as it is shown.
pub fn report(comparison: &Comparison) -> Report {
    let mut report = Report::new("vpmu compare");
    for group in &comparison.groups {
        let mut table = Table::new(HEADER).keys(2).left(3).caption(heading(group, comparison));
        // Of an arm of one side there is nothing to show but that, which a note says.
        let both = group.rows.iter().filter(|row| row.base.is_some() && row.new.is_some());
        both.for_each(|row| table.add_row(cells(row)));
        report.table(table);
        report.suite(group.label.clone(), group.rows.iter().map(case).collect());
    }
    report.notes(remarks(comparison));
    report.note(LEGEND);
    let (base, new) = (&comparison.base, &comparison.new);
    report.parts.push(Part::Sources(format!(
        "BASE {} ({}), NEW {} ({}), host: {}.",
        base.source,
        base.revisions.join(", "),
        new.source,
        new.revisions.join(", "),
        new.host
    )));
    report.verdict = Some((comparison.exit(), comparison.verdict.clone()));
    report
}

/// Returns lines about rows that are open, sides that differ, and figures that are missing.
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
        lines.push(format!("{}, {}{more}: {}: {}", row.arm, row.metric, row.verdict.word(), row.why));
    }
    lines.extend(comparison.unlike.iter().map(|line| format!("unlike: {line}")));
    lines.extend(comparison.notes.iter().map(|line| format!("note: {line}")));
    lines
}
