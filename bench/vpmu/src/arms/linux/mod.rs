//! Arms with Linux in the guest: each turn boots a kernel, runs perf in it, and brings out what the guest recorded.
//!
//! [`spec`] says which kernel and which perf, [`job`] what a plan becomes by it. `boot` has the guests, `task` what perf does
//! there, `session` does it by the guest's agent, `trace` reads its NMIs, and `runner` makes of it the outcome that a payload's
//! run has.

mod boot;
pub mod job;
mod runner;
mod session;
pub mod spec;
mod task;
mod trace;
