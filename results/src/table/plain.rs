//! The table of any experiment: each arm by its metrics, and beside the first arm.

use std::collections::BTreeSet;

use super::fold::{Cell, Table};
use super::layout::{self, plural, time};
use super::report::Report;
use crate::document::{Arm, Document, Experiment, Record};
use crate::metric;
use crate::paired;

/// Returns the document as it is shown: the experiment's own metric with intervals, and the medians of the others.
pub fn plain(document: &Record) -> Report {
    let mut report = Report::new(format!("vpmu {}", document.experiment));
    let rounds = document.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    report.heading(format!("{}, {}", document.experiment, plural(rounds, "round")));
    if let (Some(key), Some(first)) = (document.metric(), document.arms.first()) {
        let base = format!("× {} [95 %]", first.name);
        let mut table = Table::new(["arm", "p50 [95 %]", &base]);
        for arm in &document.arms {
            let level = paired::level(arm, key);
            let over = paired::ratio(arm, first, key).filter(|_| arm.name != first.name);
            table.add_row([arm.name.as_str().into(), Cell::level(key, level.as_ref()), Cell::ratio(over.as_ref())]);
        }
        report.table(table);
        report.note(format!(
            "p50: median over rounds of each round's median of the {}; ×: middle of the rounds' own ratios, not p50 ÷ p50",
            metric::name(key)
        ));
        others(document, key, &mut report);
    }
    state(document, &mut report);
    report
}

/// Adds the medians of the other metrics.
fn others(document: &Record, own: &str, report: &mut Report) {
    // Of an arm of a side what is judged: the document has the others.
    let is_shown = |key: &&String| *key != own && (!key.contains('/') || metric::is_main(key));
    let keys: BTreeSet<&String> = document.arms.iter().flat_map(|arm| arm.metrics.keys()).filter(is_shown).collect();
    if keys.is_empty() {
        return;
    }
    let mut table = Table::new(std::iter::once("arm".to_owned()).chain(keys.iter().map(|key| metric::name(key))));
    for arm in &document.arms {
        let median = |key: &&String| {
            Cell::of(arm.metrics.get(*key).map(|found| found.p50 as f64), |p50| layout::value(key, p50))
        };
        table.add_row(std::iter::once(arm.name.as_str().into()).chain(keys.iter().map(median)));
    }
    report.heading("Medians of all values of all rounds together");
    report.table(table);
}

/// Says what is to be said of the arms, and what they lack.
pub(super) fn lacks<E: Experiment>(document: &Document<E>) -> impl Iterator<Item = String> {
    document.arms.iter().flat_map(|Arm { name, notes, incomplete, left_out, .. }| {
        let left_out = left_out.iter().map(|why| format!("left out: {why}"));
        notes.iter().chain(incomplete).cloned().chain(left_out).map(move |text| format!("{name}: {text}"))
    })
}

/// Adds what is to be said of the arms, the host, and how the run ended.
pub fn state(document: &Record, report: &mut Report) {
    report.notes(lacks(document));
    report.note(format!("host: {}", document.host.class));
    let (ended, wall) = (document.status.words(), time(document.wall_ns as f64));
    report.note(format!("{ended} in {wall}, seed {}", document.seed));
}
