//! Traces: [`record`] writes what a guest did to its PMU, [`import`] what a stock KVM told perf of one, [`replay`] runs it through other
//! strategies.

pub mod import;
pub mod record;
pub mod replay;
