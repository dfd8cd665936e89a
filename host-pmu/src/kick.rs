//! The signal by which a host event or timer asks the vCPU thread to look.

use crate::sys;

/// A real-time signal: queued, and told apart from everything else in the process.
///
/// Where the queue is full (RLIMIT_SIGPENDING) the kernel sends SIGIO instead, so a vCPU thread handles both alike.
#[must_use]
pub fn signal() -> i32 {
    sys::rtmin() + 1
}
