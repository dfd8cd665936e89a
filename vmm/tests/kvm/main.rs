//! Real guests on this host's KVM, one at a time: the allocation count is the process's.

mod guests;
mod runs;
mod simulated;
mod sys;
mod turns;

use std::process::ExitCode;

use trials::Case;

/// A trial and what it needs beside KVM.
type Entry = (&'static str, fn(), Need);

/// Prerequisite of a trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Kvm,
    /// Software perf events, too.
    Perf,
    /// Tracepoints, too.
    Tracefs,
}

const TRIALS: &[Entry] = &[
    ("a_pmi_costs_the_guest_the_published_mix_of_exits", runs::mix_of_exits, Need::Kvm),
    ("the_simulated_handlers_accesses_are_the_payloads", simulated::handlers, Need::Kvm),
    ("the_floors_timer_is_set_once_per_pmi_and_where_counters_start", runs::floor_timer, Need::Kvm),
    ("lazy_release_leaves_nothing_one_slice_after_sampling", runs::lazy_release, Need::Perf),
    ("no_overflow_is_lost_by_any_strategy_or_vcpu", runs::nothing_is_lost, Need::Perf),
    ("no_overflow_is_lost_by_an_amds_drivers", runs::nothing_is_lost_on_amd, Need::Perf),
    ("a_tracepoint_stands_in", runs::tracepoint, Need::Tracefs),
    ("an_overflows_signal_has_a_latency", runs::signals_have_latencies, Need::Perf),
    ("counting_takes_no_nmi_and_counts_what_ran", runs::counting, Need::Perf),
    ("frequency_mode_moves_the_period", runs::frequency_mode, Need::Perf),
    ("a_full_log_stops_logging_not_the_guest", runs::full_log, Need::Kvm),
    ("the_exit_path_does_not_allocate", runs::no_allocation, Need::Perf),
    ("a_turn_is_whole_and_has_its_own_figures", turns::whole, Need::Perf),
    ("every_turn_takes_its_samples_and_no_counter_stops_between_them", turns::every_turn_samples, Need::Kvm),
    ("no_time_between_turns_is_in_any_figure_and_no_tick_comes_early", turns::time_between, Need::Kvm),
    ("a_guest_that_hangs_in_its_turn_is_ended_by_its_limit", turns::time_limit, Need::Kvm),
    ("an_interrupted_turn_ends_at_once", turns::interruption, Need::Kvm),
    ("a_guest_with_svm_runs_where_tracepoints_do_not_open", runs::svm_without_tracepoints, Need::Kvm),
    ("too_many_vcpus_are_refused", runs::too_many_vcpus, Need::Kvm),
];

fn main() -> ExitCode {
    let kvm = vmm::kvm::Host::open().map(drop).map_err(|error| error.to_string());
    let cases = TRIALS.iter().map(|&(name, run, need)| {
        let missing = kvm.clone().and_then(|()| prerequisite(need)).err();
        Case::new(name, missing, run)
    });
    trials::run(cases.collect::<Vec<_>>())
}

fn prerequisite(need: Need) -> Result<(), String> {
    use host_pmu::backend::BackendKey;
    let probe = |key: &BackendKey| host_pmu::open::probe(key).map_err(|error| error.to_string());
    match need {
        Need::Kvm => Ok(()),
        Need::Perf => probe(&BackendKey::CpuClock),
        Need::Tracefs => probe(&runs::userspace_exit()),
    }
}
