//! The `vpmu` tool: experiments on what stands behind a guest's performance counters.
//!
//! From the bottom: [`arm`] runs one guest, on this host or simulated. [`rounds`] runs arms round by round and writes the
//! document. [`experiment`] has a folder for each experiment, with its plain specification. [`commands`] and [`cli`] are the
//! top floor: they turn options into a specification; nothing below imports them.

pub mod arm;
pub mod backend;
pub mod cli;
pub mod commands;
pub mod conformance;
pub mod console;
pub mod doctor;
pub mod experiment;
pub mod fold;
pub mod probe;
pub mod progress;
pub mod rounds;
pub mod run;
pub mod strategy;
pub mod sys;
pub mod tool;
pub mod workload;

// Modules that were this crate's own.
pub use results::document as result;
pub use results::read as load;
pub use results::{compare, error, export, history, host, report, stats, table};
