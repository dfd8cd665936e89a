//! Values of options: strategies, workloads, backends; and the abilities of this host.

pub mod backend;
pub mod options;
pub mod parse;
pub mod pin;
pub mod process;
pub mod strategy;
pub mod tool;
pub mod workload;
