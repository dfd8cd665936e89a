//! Process limits that a run depends on.

use arch_pmu::spec::MAX_COUNTERS;
use host_pmu::strategy::MAX_POOL;

use crate::setting::process::{self, Limit};
use results::error::Error;

/// Files of a vCPU: its own, the monitor's two, an event per counter, a full pool.
const FILES: u64 = 3 + MAX_COUNTERS as u64 + MAX_POOL as u64;
/// Queued signals of a vCPU: those of its two timers.
const SIGNALS: u64 = 2;
/// Both, for the rest of the process.
const SPARE: u64 = 64;

/// Returns the number of files that `vcpus` may have open.
#[must_use]
pub const fn files(vcpus: u64) -> u64 {
    SPARE + vcpus * FILES
}

/// Returns the number of signals that `vcpus` may have queued.
#[must_use]
pub const fn signals(vcpus: u64) -> u64 {
    SPARE + vcpus * SIGNALS
}

/// Raises the limits of open files and queued signals to what `vcpus` need.
///
/// # Errors
/// Exit 4 where a hard limit is too low.
pub fn ensure(vcpus: u64) -> Result<(), Error> {
    // Signals that this user's other processes have queued count, too. If the hard limit has no room for that, the run is tried without.
    let _ = process::ensure_limit(Limit::PendingSignals, signals(vcpus).saturating_add(process::queued_signals()));
    for (limit, wanted, name, flag) in [
        (Limit::OpenFiles, files(vcpus), "RLIMIT_NOFILE", "-n"),
        (Limit::PendingSignals, signals(vcpus), "RLIMIT_SIGPENDING", "-i"),
    ] {
        process::ensure_limit(limit, wanted).map_err(|now| {
            Error::host(
                format!("{name} is too low"),
                format!("it is {now}, and {vcpus} vCPUs may need {wanted}"),
                format!("raise it: ulimit {flag} {wanted}"),
            )
        })?;
    }
    Ok(())
}
