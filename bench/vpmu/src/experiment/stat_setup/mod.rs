//! `stat-setup`: setting up N events on M CPUs of this host, by strategy and beside stock perf.

pub(crate) mod arms;
pub(crate) mod events;
pub(crate) mod peer;
pub(crate) mod show;
pub mod spec;
