//! What is measured, with what, and on which host: values of options, strategies, workloads, backends, what this host can do.

pub mod abilities;
pub mod backend;
pub mod claim;
pub mod parse;
pub mod process;
pub mod strategy;
pub mod tool;
pub mod workload;
