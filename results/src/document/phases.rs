//! Times of a guest's `perf stat` set-ups, phase by phase, and the counts of the events meanwhile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The key of all phases of a set-up together.
pub const SET_UP: &str = "set-up";

/// One phase of an arm's set-ups. How long it took are the arm's metrics `phases/NAME/call_ns`, of one call, and
/// `phases/NAME/total_ns`, of all calls of one set-up together; of "rotate" of one rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PhaseResult {
    /// Times that the VMM saw it begin.
    pub begun: u64,
    /// RDMSR exits in it.
    pub msr_reads: u64,
    /// WRMSR exits in it.
    pub msr_writes: u64,
    /// Host operations in it, by kind.
    pub host_ops: BTreeMap<String, u64>,
    /// Time that they took together.
    pub host_ops_ns: u64,
}

/// Count of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct EventCount {
    /// Counts, over all set-ups and vCPUs.
    pub count: u64,
    /// The time it was enabled.
    pub enabled_ns: u64,
    /// The part of that time with a counter.
    pub running_ns: u64,
    /// count × enabled / running, as perf shows it; `None` if it never had a counter.
    pub scaled: Option<u64>,
}

impl EventCount {
    /// Computes the scaled counts per ns enabled.
    pub fn rate(&self) -> Option<f64> {
        (self.running_ns > 0).then(|| self.count as f64 / self.running_ns as f64)
    }
}
