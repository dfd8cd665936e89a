//! The only place of this crate that calls libc: SIGINT, resource limits, file locks.
#![expect(unsafe_code, reason = "libc calls without a safe wrapper")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_signal: libc::c_int) {
    // Async-signal-safe: one store. With SA_RESETHAND a second Ctrl-C kills the process as usual,
    // so a hang in the first clean end does not trap the user.
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Set once the user pressed Ctrl-C or the process was asked to terminate.
#[must_use]
pub fn interrupted() -> &'static AtomicBool {
    &INTERRUPTED
}

/// Makes SIGINT and SIGTERM set [`interrupted`] instead of killing the process. System calls are not
/// restarted, so a blocking one returns EINTR and its loop can look at the flag.
///
/// # Errors
/// The errno of `sigaction`.
pub fn catch_interrupts() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero bytes are a valid sigaction (no flags, empty mask, SIG_DFL).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_interrupt as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: `action` is initialised and outlives the call; the handler only stores to an atomic.
        let failed = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A resource limit this tool depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open files: each host event is one.
    OpenFiles,
    /// Queued signals of this user: each overflow queues one until it is taken.
    PendingSignals,
}

impl Limit {
    const fn resource(self) -> libc::__rlimit_resource_t {
        match self {
            Self::OpenFiles => libc::RLIMIT_NOFILE,
            Self::PendingSignals => libc::RLIMIT_SIGPENDING,
        }
    }
}

/// Soft limit of `limit`; `None` if unlimited or if it cannot be read.
#[must_use]
pub fn soft_limit(limit: Limit) -> Option<u64> {
    let resource = limit.resource();
    let mut value = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `value` is a valid rlimit for the kernel to fill.
    let failed = unsafe { libc::getrlimit(resource, &raw mut value) };
    (failed == 0 && value.rlim_cur != libc::RLIM_INFINITY).then_some(value.rlim_cur)
}

/// Raises the soft limit to `wanted` if the hard limit allows it.
///
/// # Errors
/// The limit in force, if it is lower than `wanted` and cannot be raised that far.
pub fn ensure_limit(limit: Limit, wanted: u64) -> Result<(), u64> {
    let resource = limit.resource();
    let mut value = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `value` is a valid rlimit for the kernel to fill.
    if unsafe { libc::getrlimit(resource, &raw mut value) } != 0 || value.rlim_cur >= wanted {
        return Ok(());
    }
    let raised = libc::rlimit { rlim_cur: wanted, rlim_max: value.rlim_max };
    // SAFETY: `raised` is a valid rlimit that outlives the call.
    if value.rlim_max >= wanted && unsafe { libc::setrlimit(resource, &raw const raised) } == 0 {
        return Ok(());
    }
    Err(value.rlim_cur)
}

/// Takes the advisory lock of an open file or folder until that is closed; whether nobody else had it.
///
/// # Errors
/// The errno of `flock`, but for EWOULDBLOCK.
pub fn try_lock(file: &File) -> std::io::Result<bool> {
    // SAFETY: flock takes any descriptor and touches no memory of this process.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = std::io::Error::last_os_error();
    if error.kind() == std::io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) }
}

/// Effective user id; 0 is root.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_sets_the_flag_and_the_process_lives_on() {
        catch_interrupts().unwrap();
        // SAFETY: raise has no preconditions; SIGTERM's handler was installed just now.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        assert!(interrupted().load(Ordering::Relaxed));
        INTERRUPTED.store(false, Ordering::Relaxed);
    }

    #[test]
    fn limits_can_be_read() {
        // A process with open files has a limit of at least the three standard ones, or none.
        assert!(soft_limit(Limit::OpenFiles).is_none_or(|n| n >= 3));
    }
}
