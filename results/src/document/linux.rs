//! Parts of documents whose guest is Linux.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Linux guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinuxParameters {
    /// The kernel's release, as its file says it.
    pub release: Option<String>,
    /// The guest's processor.
    pub cpu: String,
    /// Version of perf in the guest, by itself.
    pub perf: String,
    /// Guest memory, bytes.
    pub memory: u64,
    /// Shell command that runs perf.
    pub command: String,
}

/// Figures that an arm's Linux guests left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinuxArm {
    /// Records in the guests' perf.data files: `SAMPLE`, `LOST`, `THROTTLE`, and what else perf counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub perf_records: BTreeMap<String, u64>,
    /// Entries that did not fit the guest's trace buffer.
    pub trace_lost: u64,
    /// Lines of the guests' consoles that complain about NMIs, the PMU or lock-ups.
    pub complaints: u64,
    /// Kinds of these, with their counts, of the last guest that complained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complained: Vec<String>,
}

impl LinuxArm {
    /// Adds another guest's.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.perf_records {
            let sum = self.perf_records.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.trace_lost = self.trace_lost.saturating_add(other.trace_lost);
        self.complaints = self.complaints.saturating_add(other.complaints);
        if !other.complained.is_empty() {
            self.complained.clone_from(&other.complained);
        }
    }
}
