//! The table of any experiment: each arm by its metrics, and beside the first arm.

use super::fold::Table;
use super::layout::{self, dash, plural, time};
use super::report::Report;
use crate::document::{Any, Arm, Record, Status};
use crate::metric;
use crate::paired::{self, Statistic};

/// Returns a value of a metric with its unit, which the end of its key names.
fn value(key: &str, value: f64) -> String {
    if key.ends_with("_ns") { time(value) } else { format!("{value:.0}") }
}

/// Returns the document as it is shown: the experiment's own metric with intervals, and the medians of the others.
pub fn plain(document: &Record) -> Report {
    let mut report = Report::new(format!("vpmu {}", document.experiment));
    let rounds = document.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    report.heading(format!("{}, {}", document.experiment, plural(rounds, "round")));
    if let (Some(key), Some(first)) = (document.metric(), document.arms.first()) {
        let base = format!("× {} [95 %]", first.name);
        let mut table = Table::new(["arm", "p50 [95 %]", &base]);
        for arm in &document.arms {
            let level = paired::level(arm, key, Statistic::P50).map_or_else(dash, |level| layout::level(&level));
            let over = paired::ratio(arm, first, key, Statistic::P50).filter(|_| arm.name != first.name);
            table.add_row([arm.name.clone(), level, over.map_or_else(dash, |found| layout::ratio_with(&found))]);
        }
        report.table(table);
        report.note(format!(
            "p50: median over rounds of each round's median of the {}; ×: of paired rounds",
            metric::name(key)
        ));
        others(document, key, &mut report);
    }
    state(document, &mut report);
    report
}

/// Adds the medians of the other metrics.
fn others(document: &Record, own: &str, report: &mut Report) {
    let mut keys: Vec<&str> = Vec::new();
    for key in document.arms.iter().flat_map(|arm| arm.metrics.keys()) {
        if key != own && !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return;
    }
    let mut table = Table::new(std::iter::once("arm".to_owned()).chain(keys.iter().map(|key| metric::name(key))));
    for arm in &document.arms {
        let median = |key: &&str| arm.metrics.get(*key).map_or_else(dash, |found| value(key, found.median()));
        table.add_row(std::iter::once(arm.name.clone()).chain(keys.iter().map(median)));
    }
    report.gap();
    report.heading("Medians of all values of all rounds together");
    report.table(table);
}

/// Adds what is to be said of the arms, the host, and how the run ended.
pub fn state(document: &Record, report: &mut Report) {
    for Arm::<Any> { name, notes, incomplete, .. } in &document.arms {
        report.notes(notes.iter().map(|note| format!("{name}: {note}")));
        report.notes(incomplete.iter().map(|why| format!("{name}: {why}")));
    }
    report.line(format!("host: {}", document.host.class));
    let ended = match document.status {
        Status::Running => "still running",
        Status::Complete => "complete",
        Status::Incomplete => "incomplete",
        Status::Interrupted => "interrupted: finished rounds only",
    };
    report.line(format!("{ended} in {}, seed {}", time(document.wall_ns as f64), document.seed));
}
