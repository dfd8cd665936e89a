//! A comparison as a report: tables for a terminal or a pull request, with everything that limits them, and a case for each row.

use super::judge::{Comparison, Group, Side};
use super::row::{Question, Row, WIDE};
use crate::junit::Case;
use crate::table::layout::{change, dash, plural};
use crate::table::ranking::by_reason;
use crate::table::{Report, Table};
use crate::verdict::Verdict;

/// The verdict is beside the change, so that a narrow terminal does not part them.
const HEADER: [&str; 6] = ["arm", "metric", "change", "verdict", "BASE", "NEW"];
/// Most notes, unless all are asked for.
const NOTES: usize = 10;

fn shown_change(row: &Row) -> String {
    row.change.map_or_else(dash, |share| change(share, row.change_interval))
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

/// Returns the comparison as it is shown; `all`: with the rows that are not judged, counts that are the same, and every note.
pub fn report(comparison: &Comparison, all: bool) -> Report {
    let mut report = Report::new("vpmu compare");
    for group in &comparison.groups {
        let mut table = Table::new(HEADER).keys(2).left(3);
        // That an arm is on one side only is all that there is to say of it, and a note says it.
        let both = |row: &&Row| row.base.n > 0 && row.new.n > 0 && (all || row.is_news());
        for row in group.rows.iter().filter(both) {
            let [base, new] = row.sides();
            table.add_row([row.arm.clone(), row.metric.clone(), shown_change(row), row.word().to_owned(), base, new]);
        }
        report.heading(heading(group));
        report.table(table);
        let judged = group.rows.iter().filter(|row| all || row.verdict != Verdict::NotJudged);
        report.suites.push((group.label.clone(), judged.map(case).collect()));
    }
    report.notes(remarks(&comparison.rows().collect::<Vec<_>>(), all));
    report.notes(comparison.unlike.iter().map(|line| format!("unlike: {line}")));
    let pairs = comparison.notes.iter().map(|note| note.split_once(": ").unwrap_or(("", note)));
    let mut notes = by_reason(pairs, all);
    if !all && notes.len() > NOTES {
        // What of the figures is left out is never among those that are not shown.
        notes.sort_by_key(|note| !note.contains("left out"));
        let more = notes.split_off(NOTES - 1).len();
        notes.push(format!("{more} more notes: -v"));
    }
    report.notes(notes.iter().map(|line| format!("note: {line}")));
    let of = |side: &Side| match &side.revisions[..] {
        [one] => format!("{} ({})", side.source, one.chars().take(12).collect::<String>()),
        many => format!("{} ({})", side.source, plural(many.len(), "revision")),
    };
    let (base, new) = (&comparison.base, &comparison.new);
    report.note(format!("BASE {}, NEW {}, host: {}", of(base), of(new), new.host));
    report.verdict = Some((comparison.exit(), comparison.verdict.clone()));
    report
}

/// Returns lines about rows that are inconclusive, those of one reason together, and about counts that are not shown.
fn remarks(rows: &[&Row], all: bool) -> Vec<String> {
    let open = || rows.iter().filter(|row| !row.why.is_empty());
    // Where several intervals are too wide, the table shows each, and what is said is said of the widest.
    let high = |row: &&&Row| row.change_interval.map_or(0.0, |interval| interval.high);
    let wide = || open().filter(|row| !all && row.why.starts_with(WIDE));
    let widest = wide().max_by(|a, b| high(a).total_cmp(&high(b))).filter(|_| wide().count() > 1);
    let pair = |row: &&Row| {
        let widest = widest.filter(|_| row.why.starts_with(WIDE)).map(|widest| format!("the widest: {}", widest.why));
        let why = widest.as_ref().unwrap_or(&row.why);
        (format!("{} {}", row.arm, row.metric), format!("{}: {why}", row.word()))
    };
    let mut lines = by_reason(open().map(pair), all);
    let counts = || rows.iter().filter(|row| row.question == Question::Counts);
    let same = counts().filter(|row| row.verdict == Verdict::NoChange).count();
    if same > 0 {
        lines.push(format!("counts of a PMI: {same} of {} are the same on both sides", counts().count()));
    } else if counts().any(|row| row.verdict == Verdict::NotJudged) {
        lines.push("counts per PMI vary here; -v shows them".to_owned());
    }
    lines
}
