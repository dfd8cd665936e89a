//! A guest's `perf stat` set-ups as tables.

use std::fmt::Write;

use super::layout::{ratio, time};
use super::{cells, dash, name, table};
use crate::result::Document;
use crate::result::agreement::Agreement;
use crate::result::arm::{ArmKind, ArmResult};
use crate::result::phases::{PhaseResult, SET_UP};
use crate::result::summary::Summary;

/// What the guest's `perf stat` waits for: medians of a phase's calls together.
const TIMES: [&str; 8] = ["arm", "program", "enable", "read", "disable", "set-up", "p99", "× floor"];
/// What it takes, per set-up, and what one call costs.
const COST: [&str; 8] = ["arm", "opens", "perf ops", "exits", "enable/call", "p99", "rotation", "held max"];

fn total<'a>(arm: &'a ArmResult, phase: &str) -> Option<&'a Summary> {
    arm.phases.get(phase).and_then(|phase| phase.total_ns.as_ref())
}

fn times_row(arm: &ArmResult, floor: Option<u64>) -> [String; 8] {
    let p50 = |phase| total(arm, phase).map_or_else(dash, |s| time(s.p50 as f64));
    let set_up = total(arm, SET_UP);
    [
        name(arm),
        p50("program"),
        p50("enable"),
        p50("read"),
        p50("disable"),
        p50(SET_UP),
        set_up.map_or_else(dash, |s| time(s.p99 as f64)),
        match (set_up, floor) {
            (Some(s), Some(floor)) if floor > 0 => ratio(s.p50 as f64 / floor as f64),
            _ => dash(),
        },
    ]
}

fn cost_row(arm: &ArmResult) -> [String; 8] {
    let set_up = arm.phases.get(SET_UP);
    let per = |of: fn(&PhaseResult) -> u64| match set_up {
        Some(phase) if phase.begun > 0 => ratio(of(phase) as f64 / phase.begun as f64),
        _ => dash(),
    };
    let call = arm.phases.get("enable").and_then(|phase| phase.call_ns.as_ref());
    [
        name(arm),
        per(|phase| phase.host_ops.get("open").copied().unwrap_or(0)),
        per(|phase| phase.host_ops.values().sum()),
        per(|phase| phase.msr_reads + phase.msr_writes),
        call.map_or_else(dash, |s| time(s.p50 as f64)),
        call.map_or_else(dash, |s| time(s.p99 as f64)),
        total(arm, "rotate").map_or_else(dash, |s| time(s.p50 as f64)),
        arm.events_held.max.to_string(),
    ]
}

/// How well scaled counts agree.
fn counts(document: &Document) -> String {
    let found = Agreement::of(document);
    let percent = |share: Option<f64>| share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0));
    let mut out = format!("scaled counts: an event's differ by {} at most between arms", percent(found.between_arms));
    if found.between_events.is_some() {
        let _ = write!(out, ",\nevents that count the same by {} at most within one", percent(found.between_events));
    }
    out.push('\n');
    if found.never_counted > 0 {
        let _ = writeln!(out, "{} events never had a counter: raise --window", found.never_counted);
    }
    out
}

/// The tables, and how the counts agree.
pub(super) fn text(document: &Document) -> String {
    let parameters = &document.parameters;
    let floor =
        document.arms.iter().find(|arm| arm.kind == ArmKind::Floor).and_then(|arm| total(arm, SET_UP).map(|s| s.p50));
    let (mut times, mut costs, mut absent) = (table(TIMES), table(COST), String::new());
    for arm in &document.arms {
        if let Some(why) = &arm.not_available {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(absent, "{}: not available because {why}", arm.strategy);
            continue;
        }
        times.add_row(cells(times_row(arm, floor)));
        costs.add_row(cells(cost_row(arm)));
    }
    let mut out = String::new();
    let how = parameters.set_up.as_ref().map_or("each", |set_up| set_up.enable.as_str());
    let _ = writeln!(out, "perf stat in the guest, {}, enabled {how}, {} vCPU", parameters.workload, parameters.vcpus);
    let _ = writeln!(out, "{}", times.trim_fmt());
    out.push_str("medians of a phase's calls together; set-up: all four phases\n\n");
    out.push_str("Host work: opens, perf ops and MSR exits per set-up\n");
    let _ = writeln!(out, "{}", costs.trim_fmt());
    out + &absent + &counts(document)
}
