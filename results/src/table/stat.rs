//! A guest's `perf stat` set-ups as tables.

use super::column::{self, Place};
use super::layout::{dash, plural};
use super::report::Report;
use super::{latency, summary};
use crate::document::Document;
use crate::document::agreement::Agreement;
use crate::metric;

/// Describes how well scaled counts agree, where they can.
fn counts(document: &Document, report: &mut Report) {
    let found = Agreement::of(document);
    let percent = |share: Option<f64>| share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0));
    if found.between_arms.is_some() {
        let events = found.between_events.map_or_else(String::new, |_| {
            format!(", events that count the same by {} at most within one", percent(found.between_events))
        });
        let arms = percent(found.between_arms);
        report.note(format!("scaled counts: an event's differ by {arms} at most between arms{events}"));
    }
    let never = found.never_counted;
    if never > 0 {
        report.line(format!("{} never had a counter: raise --window", plural(never, "event")));
    }
}

/// Adds the tables, and how the counts agree.
pub(super) fn report(document: &Document, report: &mut Report) {
    let parameters = &document.parameters;
    let how = parameters.set_up.as_ref().map_or("each", |set_up| set_up.enable.as_str());
    report.line(format!("perf stat in the guest, {}", parameters.workload));
    let cpu = parameters.other_cpu().map(|cpu| format!(", {cpu}")).unwrap_or_default();
    report.line(format!("enabled {how}, {} vCPU{cpu}", parameters.vcpus));
    summary::report(document, &metric::SET_UP, report);
    let arms = latency::figures(document, &metric::SET_UP);
    report.gap();
    report.heading("All set-ups of all rounds together");
    column::table(report, Place::SetUp, &arms);
    report.notes(column::legend(Place::SetUp));
    report.gap();
    report.heading("Host work");
    column::table(report, Place::SetUpWork, &arms);
    report.notes(column::legend(Place::SetUpWork));
    report.gap();
    latency::absent(document, report);
    counts(document, report);
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use crate::document::{
        Column, Document, EventCount, PhaseResult, SET_UP, SetUpParameters, Summary, latency_histogram,
    };
    use crate::fixture;
    use crate::metric;

    fn document() -> Document {
        let mut document = fixture::of_strategies(10, &["recreate", "reuse"]);
        let set_up = SetUpParameters { enable: "each".to_owned(), window_ticks: 2, gap_ticks: 1 };
        document.parameters.set_up = Some(set_up);
        document.parameters.workload = "64 counting events/ftest".to_owned();
        for (arm, ns) in document.arms.iter_mut().zip([43_163_000, 2_000, 1_000]) {
            let mut histogram = latency_histogram();
            histogram.saturating_record(ns);
            let summary = Summary::of(&histogram).unwrap();
            let rounds = arm.rounds.len();
            let column = Column { count: vec![1; rounds], p50: vec![summary.p50; rounds], ..Column::default() };
            arm.rounds.metrics.insert(metric::SET_UP.key.to_owned(), column);
            arm.metrics.insert(metric::SET_UP.key.to_owned(), summary.clone());
            let ops = [("open".to_owned(), 140), ("pause".to_owned(), 2)];
            let phase = PhaseResult {
                begun: 10,
                msr_reads: 20,
                msr_writes: 22,
                host_ops: ops.into_iter().collect(),
                host_ops_ns: 9,
            };
            for key in ["program", "enable", "read", "disable", "rotate", SET_UP] {
                arm.own.phases.insert(key.to_owned(), phase.clone());
                for time in ["call_ns", "total_ns"] {
                    arm.metrics.insert(format!("phases/{key}/{time}"), summary.clone());
                }
            }
            let event = |count| EventCount { count, enabled_ns: 200, running_ns: 100, scaled: None };
            arm.own.counts = vec![event(100), event(90), EventCount::default()];
        }
        document
    }

    #[test]
    fn phases_and_costs_stand_in_their_columns_and_fit_60() {
        let text = report(&document()).text(60);
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("reuse")).collect();
        let columns: Vec<Vec<&str>> = rows.iter().map(|row| row.split_whitespace().collect()).collect();
        let found =
            |expected: &[&str]| columns.iter().any(|row| row.windows(expected.len()).any(|part| part == expected));
        assert!(
            found(&["µs", "[no", "spread]", "2.000", "[no", "spread]"]),
            "p50 and × floor with intervals in {text}"
        );
        assert!(found(&["reuse", "14.0", "14.2", "4.20"]), "opens, perf ops and exits per set-up in {text}");
        let tables = text.split("backend: ").next().unwrap();
        let wide = tables.lines().find(|line| line.chars().count() > 60 && !line.contains("not available"));
        assert_eq!(wide, None, "{text}");
    }

    #[test]
    fn how_well_counts_agree_is_said() {
        let text = report(&document()).text(60);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("an event's differ by 0.0 % at most between arms"), "{text}");
        assert!(text.contains("by 10.0 % at most within one"), "{text}");
        assert!(text.contains("1 event never had a counter: raise --window"), "{text}");
        assert!(text.contains("a stand-in for hardware events"), "{text}");
    }
}
