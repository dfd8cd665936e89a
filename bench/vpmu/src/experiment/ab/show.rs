//! The verdicts as a report.

use results::document::{Record, Status};
use results::junit::Case;
use results::metric;
use results::stats::interval::Interval;
use results::table::layout::{dash, p, percent, plural, time};
use results::table::{Report, Table};
use results::verdict::{Limits, Verdict};

use super::Outcome;
use super::judge::{ALL, Row, overall};

/// Returns the verdicts, the rules, and what was run, as they are shown.
pub fn report(outcome: &Outcome, rules: &Limits) -> Report {
    let Outcome { document, rows, doubts, left_out, .. } = outcome;
    let mut report = Report::new("vpmu ab");
    let name = rows.first().map_or_else(|| "no figures".to_owned(), |row| metric::name(&row.metric));
    let parameter = |name| document.parameter(name).unwrap_or_default();
    let workload = parameter("workload");
    report.line(format!("NEW against BASE: {name}, {workload}"));
    if !rows.is_empty() {
        let mut table = Table::new(["arm", "ratio", "95 % interval", "verdict", "p"]);
        for row in rows {
            table.add_row(cells(row));
        }
        report.table(table);
        report.suite(workload, rows.iter().map(case).collect());
    }
    report.notes(doubts.iter().map(|why| format!("doubt: {why}")));
    report.notes(left_out.iter().map(|why| format!("left out: {why}")));
    report.notes(legend(rules, rows));
    for (side, key) in [("BASE", "base"), ("NEW", "new")] {
        report.note(format!("{side}: {}", describe(document, key)));
    }
    let unlike = document.parameters["unlike"].as_array().into_iter().flatten().filter_map(|line| line.as_str());
    report.notes(unlike.map(|line| format!("unlike: {line}")));
    if document.parameters["same_build"] == true {
        report.line("A/A: both sides are the same build with the same options");
    }
    let stand_in = if document.arms.iter().any(|arm| arm.stand_in) { ", a stand-in" } else { "" };
    report.line(format!("backend: {}{stand_in}", parameter("backend")));
    report.line(format!("host: {}", document.host.class));
    let pairs = plural(document.arms.first().map_or(0, |arm| arm.rounds.len()), "pair");
    report.line(format!("{pairs} of turns, {}, seed {}", time(document.wall_ns as f64), document.seed));
    match document.status {
        Status::Interrupted => report.line("interrupted: whole pairs only"),
        Status::Incomplete => report.line("incomplete: a side failed"),
        Status::Running | Status::Complete => {}
    }
    let verdict = overall(rows, outcome.is_doubtful());
    report.verdict = Some((verdict.exit(), conclusion(verdict, outcome)));
    report
}

fn case(row: &Row) -> Case {
    Case {
        name: format!("{} {}", row.arm, row.metric),
        class: format!("vpmu.ab.{}", row.arm),
        verdict: row.verdict,
        message: format!("{} {:.3} {}", row.verdict.word(), row.ratio.ratio, interval(row)),
    }
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.arm.clone(),
        format!("{:.3}", row.ratio.ratio),
        interval(row),
        row.verdict.word().to_owned(),
        row.p.map_or_else(dash, p),
    ]
}

fn interval(row: &Row) -> String {
    row.ratio.interval.map_or_else(dash, |Interval { low, high }| format!("[{low:.3}, {high:.3}]"))
}

fn legend(rules: &Limits, rows: &[Row]) -> Vec<String> {
    let mut lines = vec![
        "ratio: NEW over BASE, centre of the pairs' ratios; a pair is a turn of both, one right after the other, and a \
         turn a process of six rounds, whose median counts. Interval: over pairs."
            .to_owned(),
    ];
    if rows.iter().any(|row| row.arm == ALL) {
        lines.push(format!("{ALL}: mean of the arms in each pair; what all have in common, such as the exit path."));
    }
    lines.push(format!(
        "slower, faster: p, adjusted over the rows, below {}, and a change of {} % or more; no change: neither, and the \
         interval excludes a slow-down of {} %.",
        rules.alpha,
        percent(rules.threshold),
        percent(rules.bound)
    ));
    lines
}

fn describe(document: &Record, side: &str) -> String {
    let side = &document.parameters[side];
    let text = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
    let words = std::iter::once(&side["binary"]).chain(side["args"].as_array().into_iter().flatten());
    let words: Vec<String> = words.map(text).collect();
    let tool = ["version", "git_revision", "profile"].map(|key| text(&side["tool"][key])).join(", ");
    format!("{} ({tool})", words.join(" "))
}

/// Returns the answer, in a line.
fn conclusion(verdict: Verdict, outcome: &Outcome) -> String {
    let rows = &outcome.rows;
    let names = |verdict: Verdict| {
        let rows = rows.iter().filter(|row| row.verdict == verdict);
        rows.map(|row| format!("{} {:.3} {}", row.arm, row.ratio.ratio, interval(row))).collect::<Vec<_>>().join(", ")
    };
    let doubt = outcome.doubts.first().map_or_else(String::new, |doubt| format!("; {doubt}"));
    match verdict {
        Verdict::Slower => format!("NEW is slower: {}{doubt}", names(Verdict::Slower)),
        Verdict::Faster => format!("NEW is faster: {}", names(Verdict::Faster)),
        Verdict::NoChange => "no change".to_owned(),
        Verdict::Inconclusive | Verdict::NotJudged => {
            let open = || rows.iter().filter(|row| row.verdict == Verdict::Inconclusive);
            let more = open().filter_map(|row| row.more_pairs).max().filter(|more| *more > 0);
            let more = more.map_or_else(String::new, |more| {
                let pairs = plural(usize::try_from(more).unwrap_or(usize::MAX), "more pair");
                if open().any(|row| row.ratio.log.is_none()) {
                    format!("; an interval needs {pairs}, and a verdict more yet")
                } else {
                    format!("; about {pairs} (--pairs, --duration) would decide")
                }
            });
            format!("inconclusive{doubt}{more}")
        }
    }
}
