//! Arms with Linux in the guest: each turn boots a kernel, runs perf in it, and brings out what the guest recorded.
//!
//! [`spec`] says which kernel and which perf, [`task`] what perf does, `session` does it by the guest's agent, `trace`
//! and `perf` read what comes out, and [`runner`] makes of it the outcome that a payload's run has.

pub mod job;
pub mod runner;
mod session;
pub mod spec;
pub mod task;
mod trace;
