//! Traces: [`record`] writes what a guest did to its PMU, [`import`] what a stock KVM told perf of one.

pub mod import;
pub mod record;
