//! Experiments, a folder or file each: the plain specification, the run, and how its result is shown.

pub mod ab;
pub mod calibrate;
pub mod conformance;
pub mod guest_stat;
pub mod nmi_latency;
pub mod reproduce;
pub mod stat_setup;
pub mod sweep;
pub mod triage;
