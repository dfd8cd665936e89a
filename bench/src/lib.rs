//! The `vpmu` tool: experiments on what stands behind a guest's performance counters.
//!
//! From the bottom: [`arm`] runs one guest, on this host or simulated. [`rounds`] runs arms round by round and writes the
//! document. [`experiment`] has a folder for each experiment, with its plain specification. [`commands`] and [`cli`] are the
//! top floor: they turn options into a specification; nothing below imports them.

pub mod arm;
pub mod backend;
pub mod calibrate;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod conformance;
pub mod console;
pub mod doctor;
pub mod error;
pub mod experiment;
pub mod export;
pub mod history;
pub mod host;
pub mod load;
pub mod probe;
pub mod progress;
pub mod report;
pub mod reproduce;
pub mod result;
pub mod rounds;
pub mod run;
pub mod stat_setup;
pub mod stats;
pub mod strategy;
pub mod sweep;
pub mod sys;
pub mod table;
pub mod workload;
