//! The top floor: a file for each command, with its options, its help and what it does.
//!
//! Options become a plain specification of what lies below; nothing below imports this folder. [`app`] has the whole.

pub mod ab;
pub mod advise;
pub mod app;
mod by_host;
pub mod calibrate;
pub mod compare;
pub mod conformance;
pub mod export;
mod files;
pub mod fleet;
pub mod guest_stat;
pub mod history;
pub(crate) mod measure;
pub mod nmi_latency;
pub mod options;
pub mod report;
pub mod reproduce;
pub mod show;
pub mod stat_setup;
pub mod sweep;
pub mod triage;
mod usage;
pub mod workload;
