//! The `vpmu` tool: experiments on what stands behind a guest's performance counters.
//!
//! From the bottom: [`arm`] runs one guest, on this host or simulated. [`rounds`] runs arms round by round and writes the
//! document. [`experiment`] has a folder for each experiment, with its plain specification. [`fleet`] runs many
//! of them on many hosts. [`record`] writes samples of a guest, and [`top`] shows them while it runs; [`sampled`] is what both share.
//! [`cli`] is the top floor: it turns options into a specification, runs it and shows the result; nothing below imports it.

pub mod abilities;
pub mod arm;
pub mod backend;
pub mod catalog;
pub mod claim;
pub mod cli;
pub mod console;
pub mod doctor;
pub mod experiment;
mod filter;
pub mod fleet;
pub mod fold;
pub mod hash;
pub mod linux;
pub mod linux_arms;
pub mod machine;
pub mod output;
pub mod parse;
pub mod process;
pub mod progress;
pub mod record;
pub mod rounds;
pub mod run;
pub mod sampled;
pub mod strategy;
mod summary;
pub mod sys;
pub mod tool;
pub mod top;
pub mod workload;
