//! The perf backend and the monitor on this host's kernel. Tests without their prerequisite are listed as ignored.
#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not recognise")]

mod events;
mod hardware;

use std::process::ExitCode;

use host_pmu::backend::monitor::Monitor;
use host_pmu::backend::perf::PerfBackend;
use host_pmu::backend::{BackendKey, HostError};
use host_pmu::strategy::Strategy;
use trials::Case;

/// TSC frequency given to the backends: one guest cycle per ns.
const TSC_KHZ: u64 = 1_000_000;

/// Opens a backend whose events do as `preset` asks.
fn for_preset(key: &BackendKey, preset: &str) -> Result<PerfBackend, HostError> {
    PerfBackend::new(key, TSC_KHZ, Some(&Strategy::preset(preset).expect("a preset")))
}

/// Opens a clock backend for `preset`, where perf events open.
fn clock(preset: &str) -> PerfBackend {
    for_preset(&BackendKey::CpuClock, preset).expect("the prerequisite is a clock event that opens")
}

/// Returns why no clock event opens.
fn no_clock() -> Option<String> {
    host_pmu::open::probe(&BackendKey::CpuClock).err().map(|error| error.to_string())
}

/// Returns why the monitor has no rings: events do not open, or the limit of locked memory is reached.
fn no_rings() -> Option<String> {
    no_clock()
        .or_else(|| (!Monitor::open().sees_records()).then(|| "perf rings exceed the locked-memory limit".to_owned()))
}

/// Returns why a tracepoint has no backend.
fn no_tracepoint(key: &BackendKey) -> Option<String> {
    for_preset(key, "deferred").err().map(|error| error.to_string())
}

fn main() -> ExitCode {
    host_pmu::kick::block().unwrap();
    let clock = no_clock();
    let on_clock: [(&str, fn()); 2] = [
        ("a_clock_event_counts_pauses_and_resumes", events::counts_pauses_and_resumes),
        ("a_shut_gate_stops_all_events_and_reports_their_counts", events::gate),
    ];
    let on_rings: [(&str, fn()); 4] = [
        ("a_full_ring_is_noticed_without_a_later_record", events::full_ring),
        ("a_clocks_count_is_known_without_a_call", events::peek),
        ("a_resume_is_no_slice", events::a_resume_is_no_slice),
        ("the_ring_of_switches_notices_that_the_thread_slept", events::ring_notices_a_sleep),
    ];
    let rings = no_rings();
    let mut cases: Vec<Case> = on_clock.map(|(name, run)| Case::new(name, clock.clone(), run)).into();
    cases.extend(on_rings.map(|(name, run)| Case::new(name, rings.clone(), run)));
    cases.push(Case::new("switch_counts_notice_that_the_thread_slept", None, events::counts_notice_a_sleep));
    let calls = no_tracepoint(&events::every_system_call());
    cases.push(Case::new("an_event_counts_when_its_signal_and_ring_are_set", calls, events::counts_when_all_is_set));
    let pmu = hardware::no_pmu();
    let on_pmu: [(&str, fn()); 6] = [
        ("hardware_events_count_pause_and_resume", hardware::counts_pauses_and_resumes),
        ("hardware_events_of_guest_mode_count_no_host", hardware::guest_only_counts_no_host),
        ("a_pinned_hardware_event_without_a_counter_is_an_error", hardware::pinned_without_a_counter),
        ("hardware_events_overflow_by_period", hardware::overflows_by_period),
        ("a_gate_stops_and_starts_hardware_events", hardware::gate),
        ("a_hardware_event_counts_its_thread_alone", hardware::counts_its_thread_alone),
    ];
    cases.extend(on_pmu.map(|(name, run)| Case::new(name, pmu.clone(), run).expected(false)));
    trials::run(cases)
}
