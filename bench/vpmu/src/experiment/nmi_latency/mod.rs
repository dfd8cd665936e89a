//! `nmi-latency`: how long a guest's NMI handler takes, by strategy.

pub mod simulated;
pub mod spec;
