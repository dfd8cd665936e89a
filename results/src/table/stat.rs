//! A guest's `perf stat` set-ups as tables.

use std::fmt::Write;

use super::fold::{Table, wrapped};
use super::layout::{dash, name, ns, plural, ratio, time};
use super::summary;
use crate::document::agreement::Agreement;
use crate::document::{Arm, Document, PhaseResult, SET_UP, Summary};
use crate::metric;

/// Columns of the time for which the guest's `perf stat` waits: medians of a phase's calls together.
const TIMES: [&str; 7] = ["arm", "set-up", "p99", "program", "enable", "read", "disable"];
/// Columns of the cost per set-up, and of one call.
const COST: [&str; 8] = ["arm", "opens", "perf ops", "exits", "held max", "call", "call p99", "rotation"];

const TIMES_LEGEND: [&str; 2] = [
    "set-up, p99: median and 99th percentile of a whole set-up, program, enable, read and disable together",
    "others: median of the phase's calls together",
];
const COST_LEGEND: [&str; 3] = [
    "opens, perf ops, exits: host events opened, calls on them and MSR exits per set-up; held max: most events at once",
    "call, call p99: enabling one event",
    "rotation: median of a tick that rotates the events",
];

fn legend(lines: &[&str], width: usize) -> String {
    lines.iter().map(|line| wrapped(line, width, "  ") + "\n").collect()
}

fn total<'a>(arm: &'a Arm, phase: &str) -> Option<&'a Summary> {
    arm.metrics.get(&format!("phases/{phase}/total_ns"))
}

fn times_row(arm: &Arm) -> [String; 7] {
    let p50 = |phase| total(arm, phase).map_or_else(dash, |s| time(s.p50 as f64));
    let set_up = arm.metric(&metric::SET_UP);
    [
        name(arm),
        set_up.map_or_else(dash, |s| time(s.p50 as f64)),
        set_up.map_or_else(dash, |s| ns(s.p99)),
        p50("program"),
        p50("enable"),
        p50("read"),
        p50("disable"),
    ]
}

fn cost_row(arm: &Arm) -> [String; 8] {
    let set_up = arm.own.phases.get(SET_UP);
    let per = |of: fn(&PhaseResult) -> u64| match set_up {
        Some(phase) if phase.begun > 0 => ratio(of(phase) as f64 / phase.begun as f64),
        _ => dash(),
    };
    let call = arm.metrics.get("phases/enable/call_ns");
    [
        name(arm),
        per(|phase| phase.host_ops.get("open").copied().unwrap_or(0)),
        per(|phase| phase.host_ops.values().sum()),
        per(|phase| phase.msr_reads + phase.msr_writes),
        arm.own.events_held.max.to_string(),
        call.map_or_else(dash, |s| time(s.p50 as f64)),
        call.map_or_else(dash, |s| ns(s.p99)),
        total(arm, "rotate").map_or_else(dash, |s| time(s.p50 as f64)),
    ]
}

/// Describes how well scaled counts agree, where they can.
fn counts(document: &Document, width: usize) -> String {
    let found = Agreement::of(document);
    let percent = |share: Option<f64>| share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0));
    let mut out = String::new();
    if found.between_arms.is_some() {
        let mut line =
            format!("scaled counts: an event's differ by {} at most between arms", percent(found.between_arms));
        if found.between_events.is_some() {
            let _ =
                write!(line, ", events that count the same by {} at most within one", percent(found.between_events));
        }
        let _ = writeln!(out, "{}", wrapped(&line, width, "  "));
    }
    let never = found.never_counted;
    if never > 0 {
        let _ = writeln!(out, "{} never had a counter: raise --window", plural(never, "event"));
    }
    out
}

/// Returns the tables, and how the counts agree.
pub(super) fn text(document: &Document, width: usize) -> String {
    let parameters = &document.parameters;
    let (mut times, mut costs, mut absent) = (Table::new(TIMES), Table::new(COST), String::new());
    for arm in &document.arms {
        if let Some(why) = &arm.not_available {
            // Writing to a String cannot fail, here and below.
            let line = format!("{}: not available because {why}", arm.name);
            let _ = writeln!(absent, "{}", wrapped(&line, width, "  "));
            continue;
        }
        times.add_row(times_row(arm));
        costs.add_row(cost_row(arm));
    }
    let mut out = String::new();
    let how = parameters.set_up.as_ref().map_or("each", |set_up| set_up.enable.as_str());
    let _ = writeln!(out, "perf stat in the guest, {}", parameters.workload);
    let cpu = parameters.other_cpu().map(|cpu| format!(", {cpu}")).unwrap_or_default();
    let _ = writeln!(out, "enabled {how}, {} vCPU{cpu}", parameters.vcpus);
    out.push_str(&summary::text(document, &metric::SET_UP, width));
    let _ = writeln!(out, "\nAll set-ups of all rounds together");
    let _ = writeln!(out, "{}\n{}", times.text(width), legend(&TIMES_LEGEND, width));
    let _ = writeln!(out, "Host work\n{}\n{}", costs.text(width), legend(&COST_LEGEND, width));
    out + &absent + &counts(document, width)
}

#[cfg(test)]
mod tests {
    use super::super::text;
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
            arm.own.event_counts = vec![event(100), event(90), EventCount::default()];
        }
        document
    }

    #[test]
    fn phases_and_costs_stand_in_their_columns_and_fit_60() {
        let text = text(&document(), 60);
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
        let text = text(&document(), 60);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("an event's differ by 0.0 % at most between arms"), "{text}");
        assert!(text.contains("by 10.0 % at most within one"), "{text}");
        assert!(text.contains("1 event never had a counter: raise --window"), "{text}");
        assert!(text.contains("a stand-in for hardware events"), "{text}");
    }
}
