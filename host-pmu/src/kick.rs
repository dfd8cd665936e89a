//! The signal of host events and timers to the vCPU thread.

use crate::sys;

/// A real-time signal: queued, and used for nothing else in the process.
///
/// With a full queue (RLIMIT_SIGPENDING) the kernel sends SIGIO instead; a vCPU thread handles both alike.
#[must_use]
pub fn signal() -> i32 {
    sys::rtmin() + 1
}
