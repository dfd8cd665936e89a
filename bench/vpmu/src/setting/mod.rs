//! Values of options: strategies, workloads, backends; this process and the programs that it runs.

pub mod backend;
pub mod options;
pub mod parse;
pub mod pin;
pub mod process;
pub mod program;
pub mod strategy;
pub mod workload;
