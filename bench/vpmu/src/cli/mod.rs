//! The command line: [`app`] has all commands, the other files the options of most and what they do, `help.txt` their examples.
//!
//! Options of `run`, `record`, `trace` and `linux` are the specifications in `inspect/` and `machine/linux/`; those of the others
//! become one. Nothing below imports this folder.

pub mod ab;
pub mod advise;
pub mod app;
mod by_host;
pub mod calibrate;
pub mod compare;
pub mod conformance;
mod end;
pub mod export;
mod files;
pub mod fleet;
pub mod guest_stat;
pub mod history;
mod measure;
pub mod nmi_latency;
pub mod options;
mod prepare;
pub mod report;
pub mod reproduce;
pub mod show;
pub mod stat_setup;
pub mod sweep;
pub mod triage;
mod usage;
