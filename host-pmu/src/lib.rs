//! What may stand behind a virtual performance counter (vPMC).
//!
//! A vPMC counts because some host event counts for it, or because nothing does and a timer pretends.
//!
//! - [`strategy`]: the choices, as data; [`bank`]: the host events of one vCPU, kept by a strategy.
//! - [`backend`]: what carries out "open, pause, resume, set period, release" and counts.
//! - [`floor`]: no host event at all.
//! - [`side`]: either of them, as a VMM or a simulator sees it. The PMU sees it as an [`arch_pmu::HostCounters`].
//!
//! Nothing here knows KVM or the width of a counter.

pub mod backend;
pub mod bank;
pub mod floor;
pub mod kick;
pub mod open;
pub mod side;
pub mod stats;
pub mod strategy;
mod sys;
