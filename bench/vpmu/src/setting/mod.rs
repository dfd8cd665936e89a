//! Values of options: strategies, workloads, backends; and what this host, its programs and this process can do.

pub mod backend;
pub mod options;
pub mod parse;
pub mod pin;
pub mod process;
pub mod program;
pub mod strategy;
pub mod workload;
