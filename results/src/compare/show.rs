//! A comparison as a report: tables for a terminal or a pull request, with everything that limits them, and a case for each row.

use super::judge::{Comparison, Group, Side};
use super::row::{Question, Row};
use crate::junit::Case;
use crate::table::layout::{self, change, dash, plural};
use crate::table::{Part, Report, Table};
use crate::verdict::Verdict;

/// The verdict is beside the change, so that a narrow terminal does not part them.
const HEADER: [&str; 7] = ["arm", "metric", "change", "verdict", "BASE", "NEW", "p (adj.)"];
const LEGEND: &str = "p: t-test over guests or runs, Holm-adjusted";

fn shown_change(row: &Row) -> String {
    row.change.map_or_else(dash, |share| change(share, row.change_interval))
}

fn cells(row: &Row) -> [String; 7] {
    let [base, new] = row.sides();
    [
        row.arm.clone(),
        row.metric.clone(),
        shown_change(row),
        row.word().to_owned(),
        base,
        new,
        row.p_value_adjusted.or(row.p_value).map_or_else(dash, layout::p),
    ]
}

fn case(row: &Row) -> Case {
    let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
    Case {
        name: format!("{} {}", row.arm, row.metric),
        class: format!("vpmu.{}", row.arm),
        verdict: Some(row.verdict),
        message: format!("{} {}{why}", row.word(), shown_change(row)),
    }
}

fn heading(group: &Group) -> String {
    let (label, [base, new]) = (&group.label, group.documents);
    let most = |of: fn(&Row) -> usize| {
        group.rows.iter().filter(|row| row.question != Question::Counts).map(of).max().unwrap_or(0)
    };
    let [blocks, a, b] = [|row: &Row| row.blocks, |row: &Row| row.base.n, |row: &Row| row.new.n].map(most);
    if group.unit == "host" {
        let hosts = plural(blocks, "host");
        return format!("{label}: {hosts}, {base} and {new} runs, each host with itself; 95 % intervals");
    }
    let blocks = if blocks > 0 { format!(", in turns ({blocks} pairs)") } else { String::new() };
    let runs = if base + new > 2 { format!(" of {base} and {new} runs{blocks}") } else { String::new() };
    let against = if group.reference.is_empty() { String::new() } else { format!(" against {}", group.reference) };
    format!("{label}: p50{against}, {a} and {b} rounds{runs}; 95 % intervals")
}

/// Adds these rows to a report, as a table and as cases; `all`: with the rows that are not judged, and with counts that are the same.
fn add(report: &mut Report, heading: &str, suite: &str, rows: &[Row], all: bool) {
    let mut table = Table::new(HEADER).keys(2).left(3).caption(heading);
    // Of an arm of one side there is nothing to show but that, which a note says.
    let both = |row: &&Row| row.base.n > 0 && row.new.n > 0 && (all || row.is_news());
    rows.iter().filter(both).for_each(|row| table.add_row(cells(row)));
    report.table(table);
    let judged = rows.iter().filter(|row| all || row.verdict != Verdict::NotJudged);
    report.suite(suite, judged.map(case).collect());
}

/// Returns the comparison as it is shown; `all`: with the rows that are not judged, and with counts that are the same.
pub fn report(comparison: &Comparison, all: bool) -> Report {
    let mut report = Report::new("vpmu compare");
    for group in &comparison.groups {
        add(&mut report, &heading(group), &group.label, &group.rows, all);
    }
    let rows: Vec<&Row> = comparison.rows().collect();
    report.notes(remarks(&rows));
    report.notes(comparison.unlike.iter().map(|line| format!("unlike: {line}")));
    report.notes(comparison.notes.iter().map(|line| format!("note: {line}")));
    report.note(LEGEND);
    let of = |side: &Side| format!("{} ({})", side.source, side.revisions.join(", "));
    let (base, new) = (&comparison.base, &comparison.new);
    report.parts.push(Part::Sources(format!("BASE {}, NEW {}, host: {}.", of(base), of(new), new.host)));
    report.verdict = Some((comparison.exit(), comparison.verdict.clone()));
    report
}

/// Returns lines about rows that are inconclusive, those of one reason together, and about counts that are not shown.
fn remarks(rows: &[&Row]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: Vec<(&Row, usize)> = Vec::new();
    for row in rows.iter().filter(|row| !row.why.is_empty()) {
        match open.iter_mut().find(|(first, _)| first.why == row.why && first.verdict == row.verdict) {
            Some((_, more)) => *more += 1,
            None => open.push((row, 0)),
        }
    }
    for (row, more) in open {
        let more = if more > 0 { format!(" and {}", plural(more, "other row")) } else { String::new() };
        lines.push(format!("{}, {}{more}: {}: {}", row.arm, row.metric, row.word(), row.why));
    }
    let counts = || rows.iter().filter(|row| row.question == Question::Counts);
    let same = counts().filter(|row| row.verdict == Verdict::NoChange).count();
    if same > 0 {
        lines.push(format!("counts of a PMI: {same} of {} repeat, and are the same on both sides", counts().count()));
    } else if counts().any(|row| row.verdict == Verdict::NotJudged) {
        lines.push("counts of a PMI follow the host's load here; --all-metrics shows them".to_owned());
    }
    lines
}
