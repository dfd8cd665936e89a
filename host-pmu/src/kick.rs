//! The signal of host events and timers to the vCPU thread.
//!
//! SIGIO ends a process that neither handles nor blocks it. A vCPU thread has a handler that makes KVM_RUN return (it
//! sets `immediate_exit`), or [blocks](block) it and has KVM_RUN unblock it (KVM_SET_SIGNAL_MASK). Either way
//! `Vpmu::kick` follows.

use std::io;

use thiserror::Error;

use crate::sys;
pub use crate::sys::{Owner, ThreadTimer as Timer, block_signal as block, take_signal as take};

/// Returns SIGIO, which perf sends of itself: a standard signal, of which one pends at most. It is a hint, so a second
/// one would say nothing more; queued ones would use up the limit of all processes of the user.
pub const fn signal() -> i32 {
    sys::SIGIO
}

/// Each timer has a place in the queue of signals, which all processes of a user share.
const QUEUE_FULL: &str = "this user's queue of signals is full (RLIMIT_SIGPENDING): raise the limit with ulimit -i, or end the process whose \
     signals fill it (SigQ in /proc/PID/status is their number and the limit)";

/// Reason why there is no timer.
#[derive(Debug, Error)]
#[error("timer_create: {}", if .0.raw_os_error() == Some(sys::EAGAIN) { QUEUE_FULL.to_owned() } else { .0.to_string() })]
pub struct TimerError(#[from] io::Error);

impl Timer {
    /// Creates a timer that kicks the calling thread.
    pub fn new() -> Result<Self, TimerError> {
        Ok(Self::by(signal())?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_blocked_kick_ends_nothing_and_is_taken_once() {
        let kicks = std::thread::spawn(|| {
            block().unwrap();
            let timer = Timer::new().unwrap();
            timer.arm(1_000_000, 0);
            std::thread::sleep(Duration::from_millis(50));
            [take(), take()].map(Result::unwrap)
        });
        assert_eq!(kicks.join().unwrap(), [true, false]);
    }
}
