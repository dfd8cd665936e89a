//! Traces: [`record`] writes what a guest did to its PMU, [`replay`] runs it through other strategies, [`show`] lists and counts it.

pub mod record;
pub mod replay;
pub mod show;
