//! The signal of host events and timers to the vCPU thread.

use std::io;

use crate::sys;

/// A real-time signal: queued, and used for nothing else in the process.
///
/// With a full queue (RLIMIT_SIGPENDING) the kernel sends SIGIO instead; a vCPU thread handles both alike.
#[must_use]
pub fn signal() -> i32 {
    sys::rtmin() + 1
}

/// Kicks the thread that made it after a time.
#[derive(Debug)]
pub struct Timer(sys::ThreadTimer);

impl Timer {
    /// For the calling thread.
    pub fn new() -> io::Result<Self> {
        sys::ThreadTimer::new(signal()).map(Self)
    }

    /// One kick after `ns`, in the place of one that is due; 0 for none.
    pub fn set(&self, ns: u64) {
        // No value is refused, and the timer lives as long as this.
        let _ = self.0.arm(ns, 0);
    }
}
