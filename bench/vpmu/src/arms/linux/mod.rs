//! Arms with Linux in the guest: each turn boots a kernel, runs perf in it, and brings out what the guest recorded.
//!
//! [`spec`] says which kernel and which perf, and what a plan becomes by it. `perf` finds the program, `session` lets it
//! record by the guest's agent, `trace` reads its NMIs, and [`runner`] makes of it the outcome that a payload's run has.

mod perf;
pub mod runner;
mod session;
pub mod spec;
mod trace;
