//! This process: its resource limits, its user, its file locks.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A resource limit this tool depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open files: each host event is one.
    OpenFiles,
    /// Queued signals of this user: each timer has a place in their queue.
    PendingSignals,
}

impl Limit {
    const fn resource(self) -> Resource {
        match self {
            Self::OpenFiles => Resource::Nofile,
            Self::PendingSignals => Resource::Sigpending,
        }
    }
}

/// Soft limit of `limit`; `None` if unlimited.
#[must_use]
pub fn soft_limit(limit: Limit) -> Option<u64> {
    getrlimit(limit.resource()).current
}

/// Raises the soft limit to `wanted` if the hard limit allows it.
///
/// # Errors
/// The limit in force, if it is lower than `wanted` and cannot be raised that far.
pub fn ensure_limit(limit: Limit, wanted: u64) -> Result<(), u64> {
    let Rlimit { current, maximum } = getrlimit(limit.resource());
    let Some(now) = current.filter(|&now| now < wanted) else { return Ok(()) };
    let raised = Rlimit { current: Some(wanted), maximum };
    if maximum.is_none_or(|most| most >= wanted) && setrlimit(limit.resource(), raised).is_ok() {
        return Ok(());
    }
    Err(now)
}

/// Takes the advisory lock of an open file or folder until that is closed; false if another process has it. True where the file
/// system has no locks: NFS has none for a folder, Lustre without `flock` has none at all.
///
/// # Errors
/// The errno of `flock`, but for EWOULDBLOCK.
pub fn try_lock(file: &File) -> std::io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::BADF | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether CAP_PERFMON or CAP_SYS_ADMIN is effective: perf events open at any kernel.perf_event_paranoid.
#[must_use]
pub fn has_perfmon() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| allows_perf(&status))
}

/// Signals that are queued for this user, of all its processes; they and this process's share RLIMIT_SIGPENDING. A timer has one for as long as it
/// lives.
#[must_use]
pub fn queued_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| queued(&status))
}

/// "SigQ: queued/limit" of proc_pid_status(5).
fn queued(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigQ:"));
    line.and_then(|line| line.trim().split_once('/')?.0.parse().ok()).unwrap_or(0)
}

/// From proc_pid_status(5).
fn allows_perf(status: &str) -> bool {
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    effective & (1 << SYS_ADMIN | 1 << PERFMON) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_can_be_read() {
        // A process with open files has a limit of at least the three standard ones, or none.
        assert!(soft_limit(Limit::OpenFiles).is_none_or(|n| n >= 3));
    }

    #[test]
    fn a_limit_that_suffices_is_left_alone_and_one_beyond_the_hard_limit_is_refused() {
        assert_eq!(ensure_limit(Limit::OpenFiles, 1), Ok(()));
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if let (Some(now), Some(most)) = (current, maximum) {
            assert_eq!(ensure_limit(Limit::OpenFiles, most + 1), Err(now));
        }
    }

    #[test]
    fn perf_events_are_allowed_by_either_capability() {
        for (mask, allowed) in [
            ("000001ffffffffff", true),
            ("0000004000000000", true),
            ("0000000000200000", true),
            ("0000000000000000", false),
            ("0000000000400000", false),
            ("x", false),
        ] {
            assert_eq!(
                allows_perf(&format!("Name:\tvpmu\nCapPrm:\t000001ffffffffff\nCapEff:\t{mask}\n")),
                allowed,
                "{mask}"
            );
        }
        assert!(!allows_perf(""));
    }

    #[test]
    fn what_a_user_has_queued_is_read_from_its_status() {
        assert_eq!(queued("Name:\tvpmu\nSigQ:\t63/96364\nSigPnd:\t0\n"), 63);
        assert_eq!([queued("SigQ:\tmany\n"), queued("")], [0, 0]);
    }

    #[test]
    fn a_lock_is_held_until_the_file_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let first = open();
        assert!(try_lock(&first).unwrap());
        assert!(!try_lock(&open()).unwrap());
        drop(first);
        assert!(try_lock(&open()).unwrap());
    }
}
