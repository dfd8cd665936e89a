//! Set-ups in a guest's log, added up phase by phase.
//!
//! The guest logs every call. Calls that end before they begin are counted and left out, and a set-up counts only if all its
//! phases are present.

use std::collections::BTreeMap;

use guest::abi::{CALLS, LOG_PHASE, LogEntry, PHASE_NONE, PHASE_PROGRAM, PHASE_ROTATE, PHASES, Report};
use guest::phases::PhaseTally;
use hdrhistogram::Histogram;
use host_pmu::stats::OpKind;
use results::document::{Arm, EventCount, GuestArm, PhaseResult, SET_UP, latency_histogram};
use vmm::outcome::VcpuOutcome;

/// Latencies of one round, or of all, by the metric's key.
pub(super) type Latencies = BTreeMap<&'static str, Histogram<u64>>;

/// Begin of the keys of the metrics below.
const METRICS: &str = "phases/";
/// The keys of phases, and of their metrics, by `PHASE_*`: of a call, and of all calls of a set-up.
const KEYS: [(&str, [&str; 2]); PHASES] = [
    ("none", [""; 2]),
    ("program", ["phases/program/call_ns", "phases/program/total_ns"]),
    ("enable", ["phases/enable/call_ns", "phases/enable/total_ns"]),
    ("read", ["phases/read/call_ns", "phases/read/total_ns"]),
    ("disable", ["phases/disable/call_ns", "phases/disable/total_ns"]),
    ("rotate", ["phases/rotate/call_ns", "phases/rotate/total_ns"]),
];

/// Returns the phase a line of the log is about.
fn phase_of(entry: &LogEntry) -> Option<usize> {
    let phase = usize::try_from(entry.kind.checked_sub(LOG_PHASE)?).ok()?;
    (PHASE_NONE as usize + 1..PHASES).contains(&phase).then_some(phase)
}

/// Returns whether a line of the log is about a set-up.
pub(super) fn takes(entry: &LogEntry) -> bool {
    phase_of(entry).is_some()
}

/// Adds one vCPU's part to an arm and its latencies, whole set-ups to `set_up`. Returns the number of lines that make no sense.
pub(super) fn add(
    (own, all): (&mut GuestArm, &mut Latencies),
    vcpu: &VcpuOutcome,
    report: &Report,
    mut set_up: impl FnMut(u64),
) -> u64 {
    let khz = vcpu.left.tsc.khz;
    let ns = |ticks| ticks_to_ns(ticks, khz).max(1);
    let mut keep = |phase: usize, whole: usize, ticks| {
        all.entry(KEYS[phase].1[whole]).or_insert_with(latency_histogram).saturating_record(ns(ticks));
    };
    let mut invalid = 0;
    // TSC ticks of each phase, if it is there, by cycle.
    let mut cycles: BTreeMap<u64, [Option<u64>; PHASES]> = BTreeMap::new();
    for entry in &vcpu.left.log {
        let Some(phase) = phase_of(entry) else { continue };
        let Some(ticks) = entry.tsc_exit.checked_sub(entry.tsc_entry) else {
            invalid += 1;
            continue;
        };
        keep(phase, 0, ticks);
        if phase as u64 == PHASE_ROTATE {
            keep(phase, 1, ticks);
        } else {
            let sum = cycles.entry(entry.status / CALLS).or_default()[phase].get_or_insert(0);
            *sum = sum.saturating_add(ticks);
        }
    }
    // A cycle that was not finished has no last phase.
    for phases in cycles.into_values() {
        let parts: Option<Vec<u64>> = phases[1..PHASE_ROTATE as usize].iter().copied().collect();
        let Some(parts) = parts else { continue };
        (1..).zip(&parts).for_each(|(phase, &ticks)| keep(phase, 1, ticks));
        set_up(ns(parts.into_iter().fold(0, u64::saturating_add)));
    }
    own.cycles = own.cycles.saturating_add(report.cycles);
    for (phase, part) in (0..).zip(&vcpu.account.phases).skip(1) {
        let is_of_set_up = (phase as u64) < PHASE_ROTATE;
        for key in [Some(KEYS[phase].0), is_of_set_up.then_some(SET_UP)].into_iter().flatten() {
            add_tally(own.phases.entry(key.to_owned()).or_default(), part);
        }
    }
    let wanted = report.enabled.iter().rposition(|&ticks| ticks > 0).map_or(0, |last| last + 1);
    own.event_counts.resize(own.event_counts.len().max(wanted), EventCount::default());
    for (event, sum) in own.event_counts.iter_mut().enumerate() {
        sum.count = sum.count.saturating_add(report.counts[event]);
        sum.enabled_ns = sum.enabled_ns.saturating_add(ticks_to_ns(report.enabled[event], khz));
        sum.running_ns = sum.running_ns.saturating_add(ticks_to_ns(report.running[event], khz));
    }
    invalid
}

/// Adds another part's exits and operations.
fn add_tally(sum: &mut PhaseResult, part: &PhaseTally) {
    sum.begun += part.begun;
    sum.msr_reads += part.msr_reads;
    sum.msr_writes += part.msr_writes;
    sum.host_ops_ns += part.ops_ns;
    for (kind, n) in OpKind::ALL.iter().zip(part.ops) {
        *sum.host_ops.entry(kind.key().to_owned()).or_default() += n;
    }
}

/// Completes an arm that has its metrics. One without a whole set-up has no phases.
pub(super) fn conclude(arm: &mut Arm) {
    let Arm { own, metrics, .. } = arm;
    if own.cycles == 0 && !metrics.contains_key(KEYS[PHASE_PROGRAM as usize].1[1]) {
        metrics.retain(|key, _| !key.starts_with(METRICS));
        (own.phases, own.event_counts) = <_>::default();
    }
    // Of all together: the most of one.
    let begun = KEYS[1..PHASE_ROTATE as usize].iter().filter_map(|(key, _)| Some(own.phases.get(*key)?.begun)).max();
    if let Some(all) = own.phases.get_mut(SET_UP) {
        all.begun = begun.unwrap_or(0);
    }
    for event in own.event_counts.iter_mut().filter(|event| event.running_ns > 0) {
        let wide = u128::from(event.count) * u128::from(event.enabled_ns) / u128::from(event.running_ns);
        event.scaled = Some(u64::try_from(wide).unwrap_or(u64::MAX));
    }
}

/// Converts TSC ticks to ns; saturates.
pub(super) fn ticks_to_ns(ticks: u64, khz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000 / u128::from(khz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
