//! The signal of host events and timers to the vCPU thread.
//!
//! SIGIO ends a process that neither handles nor blocks it. A vCPU thread has a handler that makes KVM_RUN return (it
//! sets `immediate_exit`), or [blocks](block) it and has KVM_RUN unblock it (KVM_SET_SIGNAL_MASK). Either way
//! `Vpmu::kick` follows.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::sys;

/// Returns SIGIO, which perf sends of itself: a standard signal, of which one pends at most. It is a hint, so a second
/// one would say nothing more; queued ones would use up the limit of all processes of the user.
pub const fn signal() -> i32 {
    sys::SIGIO
}

/// Blocks the signal on the calling thread and the threads that it starts, for callers without a handler of their own:
/// its default action ends the process. To be called before the first event; [`wait`] takes the signals.
///
/// # Errors
/// pthread_sigmask(3) fails.
pub fn block() -> io::Result<()> {
    sys::block_signal()
}

/// Takes a pending kick of the calling thread, on which the signal is [blocked](block), or waits up to `limit` for one.
/// False: there was none.
///
/// # Errors
/// sigtimedwait(2) fails, other than by its limit.
pub fn wait(limit: Duration) -> io::Result<bool> {
    sys::wait_for_signal(limit)
}

/// Disables every perf event of this process, for a thread that comes to nothing but their signals. Returns how many.
///
/// # Errors
/// /proc cannot be read.
pub fn silence_all() -> io::Result<usize> {
    sys::disable_all()
}

/// Reason why there is no timer.
#[derive(Debug, Error)]
pub enum TimerError {
    /// Each timer has a place in the queue of signals, which all processes of a user share.
    #[error(
        "timer_create: this user's queue of signals is full (RLIMIT_SIGPENDING): raise the limit with ulimit -i, or end the process whose \
         signals fill it (SigQ in /proc/PID/status is their number and the limit)"
    )]
    QueueFull,
    /// Another reason.
    #[error("timer_create: {0}")]
    Refused(io::Error),
}

impl From<io::Error> for TimerError {
    fn from(error: io::Error) -> Self {
        if error.raw_os_error() == Some(sys::EAGAIN) { Self::QueueFull } else { Self::Refused(error) }
    }
}

/// The calling thread as the owner of the events that it opens from now on, in memory that a thread under a filter cannot change.
///
/// The signal of an event goes to its owner, whom F_SETOWN_EX takes from memory, and a filter sees registers alone. So
/// the filter admits one address, at which nothing can be written, and no call that would put other memory there.
#[derive(Debug)]
pub struct Owner(sys::OwnerPage);

impl Owner {
    /// The command of fcntl that sets it.
    pub const COMMAND: i32 = sys::F_SETOWN_EX;

    /// Owners are below this address. Calls that change mappings must stay above.
    pub const END: usize = sys::OWNER_PAGES.end;

    /// Makes the calling thread, which has no such owner yet, the owner of its events.
    ///
    /// # Errors
    /// No memory at a low address: `vm.mmap_min_addr` is above it, or too many threads have owners.
    pub fn this_thread() -> io::Result<Self> {
        sys::OwnerPage::new().map(Self)
    }

    /// Returns the address of its `struct f_owner_ex`.
    pub fn address(&self) -> usize {
        self.0.address()
    }
}

/// Kicks the thread that made it after a time.
#[derive(Debug)]
pub struct Timer(sys::ThreadTimer);

impl Timer {
    /// Creates a timer for the calling thread.
    pub fn new() -> Result<Self, TimerError> {
        Ok(Self(sys::ThreadTimer::new(signal())?))
    }

    /// Sets one kick after `ns`, in the place of one that is due; 0 for none.
    pub fn set(&self, ns: u64) {
        // No value is refused, and the timer lives as long as this.
        let _ = self.0.arm(ns, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_kick_ends_nothing_and_is_taken_once() {
        let kicks = std::thread::spawn(|| {
            block().unwrap();
            let timer = Timer::new().unwrap();
            timer.set(1_000_000);
            [wait(Duration::MAX), wait(Duration::ZERO)].map(Result::unwrap)
        });
        assert_eq!(kicks.join().unwrap(), [true, false]);
    }
}
