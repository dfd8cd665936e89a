//! The signal of host events and timers to the vCPU thread.
//!
//! SIGIO ends a process that neither handles nor blocks it. A vCPU thread has a handler that makes KVM_RUN return (it
//! sets `immediate_exit`), or [blocks](block) it and has KVM_RUN unblock it (KVM_SET_SIGNAL_MASK). Either way
//! `Vpmu::kick` follows.

use std::io;

use vmm_sys_util::signal::{self, block_signal};

use crate::backend::HostError;
use crate::backend::perf::os;
pub use crate::sys::{Owner, ThreadTimer, take_signal as take};

/// Returns SIGIO, which perf sends of itself: a standard signal, of which one pends at most. It is a hint, so a second
/// one would say nothing more; queued ones would use up the limit of all processes of the user.
pub const fn signal() -> i32 {
    libc::SIGIO
}

/// Blocks the signal on the calling thread and the threads that it starts, for callers without a handler of their own:
/// its default action ends the process. To be called before the first event; [`take`] takes the signals.
///
/// # Errors
/// pthread_sigmask(3) fails.
pub fn block() -> io::Result<()> {
    match block_signal(signal()) {
        Ok(()) | Err(signal::Error::SignalAlreadyBlocked(_)) => Ok(()),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

impl ThreadTimer {
    /// Creates a timer that kicks the calling thread.
    pub fn new() -> Result<Self, HostError> {
        Self::by(signal()).map_err(|error| os("timer_create", &error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_blocked_kick_ends_nothing_and_is_taken_once() {
        let kicks = std::thread::spawn(|| {
            block().and_then(|()| block()).unwrap();
            let timer = ThreadTimer::new().unwrap();
            timer.arm(1_000_000, 0);
            std::thread::sleep(Duration::from_millis(50));
            [take(), take()].map(Result::unwrap)
        });
        assert_eq!(kicks.join().unwrap(), [true, false]);
    }
}
