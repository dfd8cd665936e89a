//! The only place of this crate that calls libc: SIGINT, SIGTERM and SIGHUP set a flag, SIGXFSZ does nothing; freed
//! memory.
#![expect(unsafe_code, reason = "sigaction and mallopt have no safe wrapper")]

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::time::ClockId;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static SIGINTS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_interrupt(signal: libc::c_int) {
    // A third Ctrl-C kills the process as usual, so that a hang in the clean end does not trap the user. One request may come
    // twice, as timeout(1) sends it to the process and to its group. A batch system may send several SIGTERMs.
    INTERRUPTED.store(true, Ordering::Relaxed);
    if signal == libc::SIGINT && SIGINTS.fetch_add(1, Ordering::Relaxed) > 0 {
        // SAFETY: SIG_DFL is a disposition, and signal is async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes the allocator keep what is freed, up to 256 MiB: threads that make histograms by the thousand otherwise give pages back and take
/// them again, which costs more than what is recorded in them.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [(libc::M_TRIM_THRESHOLD, 256 << 20), (libc::M_MMAP_THRESHOLD, 32 << 20)] {
        // SAFETY: both options take any number, and one that the allocator refuses changes nothing.
        unsafe { libc::mallopt(option, bytes) };
    }
}

/// Returns the flag that is set once the user pressed Ctrl-C or the process was asked to terminate.
pub fn interrupted() -> &'static AtomicBool {
    &INTERRUPTED
}

/// Returns whether that flag is set.
pub fn stopped() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Makes SIGINT, SIGTERM and, unless nohup(1) has it ignored, SIGHUP set [`interrupted`] instead of killing the process.
/// System calls are not restarted, so a blocking one returns EINTR and its loop can look at the flag.
///
/// # Errors
/// The errno of `sigaction`.
pub fn catch_interrupts() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all-zero bytes are a valid sigaction (no flags, empty mask, SIG_DFL).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let mut before = action;
        action.sa_sigaction = on_interrupt as *const () as libc::sighandler_t;
        // SAFETY: `action` is initialised and outlives the call; the handler is async-signal-safe.
        let mut failed = unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
        if failed == 0 && signal == libc::SIGHUP && before.sa_sigaction == libc::SIG_IGN {
            // SAFETY: as above; the kernel wrote `before`.
            failed = unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
        }
        if failed != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Lets a write beyond `ulimit -f` fail as on a full disk, in place of SIGXFSZ's end of the process. A program that is started has the
/// signal as it was.
pub fn fail_large_writes() {
    extern "C" fn pass(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, pass as *const () as libc::sighandler_t) };
}

/// Takes stdout away for this program's own use: from now on everything written to it goes to stderr.
///
/// # Errors
/// Returns the errors of `dup` and `dup2`.
pub fn take_stdout() -> std::io::Result<OwnedFd> {
    let taken = std::io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    Ok(taken)
}

/// Reads `clock`, ns.
pub fn clock_ns(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_set_the_flag_and_the_process_lives_on() {
        let raise = |signal| {
            // SAFETY: raise has no preconditions, and each signal has a handler or is ignored by now.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
            INTERRUPTED.swap(false, Ordering::Relaxed)
        };
        // SAFETY: SIG_DFL is a disposition; no other test looks at SIGHUP.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
        catch_interrupts().unwrap();
        let signals = [libc::SIGTERM, libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGINT];
        assert_eq!(signals.map(raise), [true; 5]);
        // SAFETY: SIG_IGN is a disposition, which nohup sets.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        catch_interrupts().unwrap();
        assert!(!raise(libc::SIGHUP), "it stays ignored");
    }
}
