//! Request to a workload, and its answer.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Most threads of a workload.
pub const MOST_THREADS: usize = 256;

/// A workload's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Threads.
    pub threads: usize,
    /// Time that they work.
    pub duration: Duration,
    /// The variant without the bottleneck.
    pub apart: bool,
    /// This tool, for workloads of several processes.
    pub program: PathBuf,
}

/// Answer of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Its name.
    pub workload: String,
    /// It was the variant without the bottleneck.
    pub apart: bool,
    /// Threads.
    pub threads: usize,
    /// Operations of all threads.
    pub operations: u64,
    /// From the common start of the threads to the end of the last.
    pub seconds: f64,
    /// Times that a thread gave up its CPU by itself: it slept, or waited.
    pub voluntary_switches: u64,
}

impl Done {
    /// Operations a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }
}
