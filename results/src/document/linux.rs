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
    /// Samples of each event in these files, in the order of the parameters' events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_samples: Vec<u64>,
    /// Entries that did not fit the guest's trace buffer.
    pub trace_lost: u64,
    /// RDPMCs of the kernel that were answered.
    pub rdpmcs: u64,
    /// Lines of the guests' consoles that complain about NMIs, the PMU or lock-ups.
    pub complaints: u64,
    /// Kinds of these, with their counts, of the last guest that complained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complained: Vec<String>,
}

impl LinuxArm {
    /// Records of a kind in the perf.data files.
    pub fn records(&self, kind: &str) -> u64 {
        self.perf_records.get(kind).copied().unwrap_or(0)
    }

    /// Adds another guest's.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.perf_records {
            let sum = self.perf_records.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.event_samples.resize(self.event_samples.len().max(other.event_samples.len()), 0);
        let counts = self.event_samples.iter_mut().zip(other.event_samples.iter().copied());
        let own = [&mut self.trace_lost, &mut self.rdpmcs, &mut self.complaints];
        for (sum, more) in counts.chain(own.into_iter().zip([other.trace_lost, other.rdpmcs, other.complaints])) {
            *sum = sum.saturating_add(more);
        }
        if !other.complained.is_empty() {
            self.complained.clone_from(&other.complained);
        }
    }
}
