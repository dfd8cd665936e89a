//! Experiments, a folder each: the plain specification, the run, and how its result is shown.

pub mod nmi_latency;
pub mod stat_guest;
