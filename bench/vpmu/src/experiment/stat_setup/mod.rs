//! `stat-setup`: setting up N events on M CPUs of this host, by strategy and beside stock perf.

pub mod document;
mod measure;
pub mod once;
pub(crate) mod peer;
pub(crate) mod prepare;
mod ratios;
mod rounds;
pub mod run;
pub mod show;
pub mod spec;
