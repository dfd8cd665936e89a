//! Real guests on this host's KVM.
//!
//! Without `/dev/kvm` the trials are listed as ignored with the reason. Where `CI=true` and the device opens, nothing is
//! skipped silently: a trial whose prerequisite is missing fails.

mod alloc;
mod guests;
mod trials;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A trial and what it needs beside KVM.
type Entry = (&'static str, fn(), Need);

/// What a trial needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Kvm,
    /// Software perf events, too.
    Perf,
    /// Tracepoints, too.
    Tracefs,
}

const TRIALS: &[Entry] = &[
    ("a_pmi_costs_the_guest_the_published_mix_of_exits", trials::mix_of_exits, Need::Kvm),
    ("reuse_opens_once_per_counter_and_configuration", trials::reuse_opens_once, Need::Perf),
    ("recreate_opens_at_least_once_per_pmi", trials::recreate_opens_per_pmi, Need::Perf),
    ("lazy_release_leaves_nothing_one_slice_after_sampling", trials::lazy_release, Need::Perf),
    ("no_overflow_is_lost_by_any_strategy", trials::nothing_is_lost, Need::Perf),
    ("no_overflow_is_lost_on_two_vcpus", trials::nothing_is_lost_on_two_vcpus, Need::Perf),
    ("multiplexed_events_all_get_their_share", trials::multiplexing, Need::Perf),
    ("a_tracepoint_stands_in", trials::tracepoint, Need::Tracefs),
    ("a_fixed_mode_pmi_arrives_by_its_vector", trials::fixed_mode, Need::Kvm),
    ("pitfall_23_a_pmi_wakes_a_halted_vcpu", trials::pmi_wakes_a_halted_vcpu, Need::Kvm),
    ("counting_takes_no_nmi_and_counts_what_ran", trials::counting, Need::Perf),
    ("frequency_mode_moves_the_period", trials::frequency_mode, Need::Perf),
    ("a_full_log_stops_logging_not_the_guest", trials::full_log, Need::Kvm),
    ("a_run_past_its_time_keeps_what_was_measured", trials::time_limit, Need::Kvm),
    ("an_interrupted_run_keeps_what_was_measured", trials::interruption, Need::Kvm),
    ("the_exit_path_does_not_allocate", trials::no_allocation, Need::Perf),
    ("too_many_vcpus_are_refused", trials::too_many_vcpus, Need::Kvm),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One guest at a time: they share this host's CPUs, and the allocation count is the process's.
    arguments.test_threads = Some(1);
    let kvm = vmm::kvm::Host::open().map(drop).map_err(|error| error.to_string());
    let must_run = std::env::var_os("CI").is_some_and(|ci| ci == "true") && kvm.is_ok();
    let trials = TRIALS.iter().map(|&(name, run, need)| {
        let missing = kvm.clone().err().or_else(|| prerequisite(need).err());
        match missing {
            Some(why) if must_run => Trial::test(name, move || Err(Failed::from(format!("skipped in CI: {why}")))),
            Some(why) => {
                eprintln!("SKIP: {name}: {why}");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
            None => Trial::test(name, move || {
                run();
                Ok(())
            }),
        }
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn prerequisite(need: Need) -> Result<(), String> {
    use host_pmu::backend::BackendKey;
    use host_pmu::backend::perf::PerfBackend;
    let probe = |key: &BackendKey| {
        let mut backend = PerfBackend::new(key, 1_000_000).map_err(|error| error.to_string())?;
        backend.probe().map_err(|error| error.to_string())
    };
    match need {
        Need::Kvm => Ok(()),
        Need::Perf => probe(&BackendKey::CpuClock),
        Need::Tracefs => probe(&trials::userspace_exit()),
    }
}
