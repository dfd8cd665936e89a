//! The verdicts as a report.

use results::compare::{add, conclude, remarks};
use results::document::{Record, Status};
use results::metric;
use results::table::Report;
use results::table::layout::{plural, time};

use super::Outcome;

/// Returns the verdicts, and what was run, as they are shown; `all`: with counts that are the same.
pub fn report(outcome: &Outcome, all: bool) -> Report {
    let Outcome { document, rows, doubts, left_out, .. } = outcome;
    let mut report = Report::new("vpmu ab");
    let name = rows.first().map_or_else(|| "no figures".to_owned(), |row| metric::name(&row.metric));
    let parameter = |name| document.parameter(name).unwrap_or_default();
    let workload = parameter("workload");
    let pairs = plural(document.arms.first().map_or(0, |arm| arm.rounds.len()), "pair");
    let heading = format!("NEW against BASE: {name}, {workload}; {pairs} of turns; 95 % intervals");
    if rows.is_empty() {
        report.note(heading);
    } else {
        add(&mut report, &heading, workload.as_str(), rows, all);
    }
    let rows: Vec<_> = rows.iter().collect();
    report.notes(remarks(&rows));
    report.notes(doubts.iter().map(|why| format!("doubt: {why}")));
    report.notes(left_out.iter().map(|why| format!("left out: {why}")));
    report.note(
        "change: NEW over BASE over pairs; a pair is a turn of both, one right after the other, and a turn a process of six rounds, \
         whose median counts",
    );
    for (side, key) in [("BASE", "base"), ("NEW", "new")] {
        report.note(format!("{side}: {}", describe(document, key)));
    }
    let unlike = document.parameters["unlike"].as_array().into_iter().flatten().filter_map(|line| line.as_str());
    report.notes(unlike.map(|line| format!("unlike: {line}")));
    if document.parameters["same_build"] == true {
        report.note("A/A: both sides are the same build with the same options");
    }
    let stand_in = if document.arms.iter().any(|arm| arm.stand_in) { ", a stand-in" } else { "" };
    report.note(format!("backend: {}{stand_in}", parameter("backend")));
    report.note(format!("host: {}", document.host.class));
    report.note(format!("{}, seed {}", time(document.wall_ns as f64), document.seed));
    let ended = match document.status {
        Status::Running | Status::Complete => None,
        Status::Interrupted => Some("interrupted: whole pairs only"),
        Status::Incomplete => Some("incomplete: a side failed"),
    };
    if let Some(how) = ended {
        report.note(how);
    }
    report.verdict = Some(conclude(&rows, doubts.first().map(String::as_str).or(ended)));
    report
}

fn describe(document: &Record, side: &str) -> String {
    let side = &document.parameters[side];
    let text = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
    let args: Vec<String> = side["args"].as_array().into_iter().flatten().map(text).collect();
    let tool = ["version", "git_revision", "profile"].map(|key| text(&side["tool"][key])).join(", ");
    format!("{} ({tool})", [vec![text(&side["binary"])], args].concat().join(" "))
}
