//! A point of a grid, its result, and their line in the store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::terminal::console::internal;
use fleet::hash::sha256;
use results::error::Error;

/// Schema of a line.
pub const SCHEMA: &str = "vpmu-sweep/1";
/// Tool and revision. Another revision may simulate differently, so the revision is part of the key.
const TOOL: &str = concat!("vpmu ", env!("CARGO_PKG_VERSION"), " ", env!("VPMU_GIT_REVISION"));

/// All parameters of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GridPoint {
    /// Name of the strategy.
    pub strategy: String,
    /// The strategy as TOML, with `release_slices` applied; empty for a mediated PMU, which has none.
    pub definition: String,
    /// N of `release = { slices = N }` set by the grid; `None` = the strategy's own.
    pub release_slices: Option<u32>,
    /// Name or path of the model.
    pub model: String,
    /// Hash of the model's text.
    pub model_hash: String,
    /// Factors by cost of the model.
    pub costs: BTreeMap<String, f64>,
    /// Event set and guest work, or `trace:` and the name of a trace.
    pub workload: String,
    /// Hash of what the trace's JSON says; `None` without a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_hash: Option<String>,
    /// vCPUs of the host.
    pub vcpus: u64,
    /// Host CPUs they share.
    pub cpus: u64,
    /// Sched slice of a vCPU on a shared CPU, ns.
    pub slice_ns: u64,
    /// Seed of the simulation.
    pub seed: u64,
    /// Events between two overflows.
    pub period: u64,
    /// Sampling frequency that the guest adjusts the period to, Hz.
    pub freq_hz: Option<u64>,
    /// The guest's tick, ns.
    pub mux_interval_ns: u64,
    /// The guest's timer: `periodic` or `forwarded`.
    pub timer: String,
    /// NMIs per vCPU (rotations, if the workload only counts).
    pub samples: u64,
    /// Bound on the measured phase, ns.
    pub time_limit_ns: u64,
    /// Idle time after the measured phase, ns.
    pub tail_ns: u64,
    /// Number of hosts to simulate.
    pub hosts: u64,
}

impl GridPoint {
    /// Identifies the point, the content of its model and the tool's revision: 32 hexadecimal digits.
    pub fn key(&self) -> String {
        // Serialization of numbers, texts and a map with text keys cannot fail.
        let json = serde_json::to_vec(self).unwrap_or_default();
        hash([SCHEMA.as_bytes(), TOOL.as_bytes(), &json])
    }

    /// Returns the name of the strategy, with the grid's `release_slices`.
    pub fn arm(&self) -> String {
        self.release_slices.map_or_else(|| self.strategy.clone(), |n| format!("{} slices={n}", self.strategy))
    }
}

/// Digits of a key: 128 bits.
const KEY_DIGITS: usize = 32;

/// Computes the first 128 bits of SHA-256 over the parts with their lengths, in hexadecimal; the same on every machine.
pub(super) fn hash<const N: usize>(parts: [&[u8]; N]) -> String {
    let parts = parts.map(|part| [&(part.len() as u64).to_le_bytes(), part].concat());
    let mut digits = sha256(&parts.concat());
    digits.truncate(KEY_DIGITS);
    digits
}

/// Latencies of many events, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of events.
    pub count: u64,
    /// Minimum.
    pub min: u64,
    /// Median; quantiles have two significant digits.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
    /// Arithmetic mean, exact.
    pub mean: f64,
}

/// Host operations and MSR accesses per NMI (per rotation, if the workload only counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerSample {
    /// Events opened.
    pub open: f64,
    /// Events closed.
    pub release: f64,
    /// Pauses.
    pub pause: f64,
    /// Resumes.
    pub resume: f64,
    /// New periods.
    pub period: f64,
    /// Reads of counts.
    pub read: f64,
    /// MSR accesses that exited.
    pub msr_accesses: f64,
}

/// Result of a point: sums and quantiles over its guests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Number of guests.
    pub guests: u64,
    /// Guests ended by the hard limit.
    pub timed_out: u64,
    /// NMIs taken.
    pub nmis: u64,
    /// NMIs among them that re-armed no counter, as they met the guest's driver switched off: not in `nmi_handler_ns`.
    pub nmis_driver_off: u64,
    /// NMIs injected and not taken, or the reverse: the difference of each vCPU, without its sign, summed.
    pub lost: u64,
    /// Overflows of the vPMU and overflows handled by the guests: the difference of each vCPU, summed.
    pub overflows_lost: u64,
    /// NMI handler that re-armed a counter, entry to exit; `None` without NMIs.
    pub nmi_handler_ns: Option<Latency>,
    /// Time from the VMM's notice of the overflow to the entry of the handler.
    pub pmi_delivery_ns: Option<Latency>,
    /// Rotations and task switches.
    pub rotation_ns: Option<Latency>,
    /// The host's work between two PMIs of a trace, or between two starts of counters where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_work_ns: Option<Latency>,
    /// Median of the same guest without host events: of the handler or, without NMIs, of the rotation.
    pub floor_p50_ns: Option<u64>,
    /// Median divided by the floor's median; of a trace all work divided by the floor's.
    pub x_floor: Option<f64>,
    /// Work per sample.
    pub per_sample: PerSample,
    /// Events created behind general-purpose counters.
    pub creates_gp: u64,
    /// Events created behind fixed counters.
    pub creates_fixed: u64,
    /// Events held by a vCPU, mean over time.
    pub held_mean: f64,
    /// Maximum of events held by a vCPU.
    pub held_max: u64,
    /// Sched-ins while events were held.
    pub sched_ins: u64,
    /// Pinned events that lost their counter.
    pub pinned_errors: u64,
    /// Opens that failed.
    pub failed_opens: u64,
    /// Virtual time, summed over guests, ns.
    pub virtual_ns: u64,
}

impl PointResult {
    /// Returns the latency that a user of the guest notices: the handler or, of a guest that only counts, the rotation. One that
    /// was to take NMIs and timed no handler has none: it livelocks, and its rotations have no ratio to the floor.
    pub fn latency(&self) -> Option<&Latency> {
        self.nmi_handler_ns
            .as_ref()
            .or(self.host_work_ns.as_ref())
            .or(self.rotation_ns.as_ref().filter(|_| self.x_floor.is_some()))
    }
}

/// A point and, once simulated, its result.
pub type Entry = (GridPoint, Option<PointResult>);

/// A line of `sweep.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`GridPoint::key`].
    pub key: String,
    /// The tool and its revision.
    pub tool: String,
    /// The point.
    pub point: GridPoint,
    /// Its result.
    pub result: PointResult,
}

impl StoredResult {
    /// Creates a line of this tool.
    pub fn new(point: GridPoint, result: PointResult) -> Self {
        Self { schema: SCHEMA.to_owned(), key: point.key(), tool: TOOL.to_owned(), point, result }
    }

    /// Parses a line; `None` for text of another schema.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|line: &Self| line.schema == SCHEMA)
    }

    /// Returns the JSON text without the line feed.
    ///
    /// # Errors
    /// Internal error: a value that JSON cannot represent.
    pub fn text(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| internal("cannot show a result", error))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn point() -> GridPoint {
        GridPoint {
            trace_hash: None,
            strategy: "reuse".to_owned(),
            definition: "name = 'reuse'".to_owned(),
            release_slices: None,
            model: "icx-2021".to_owned(),
            model_hash: hash([b"text"]),
            costs: BTreeMap::new(),
            workload: "single/ftest".to_owned(),
            vcpus: 1,
            cpus: 1,
            slice_ns: 3_000_000,
            seed: 1,
            period: 100,
            freq_hz: None,
            mux_interval_ns: 4_000_000,
            timer: "periodic".to_owned(),
            samples: 10,
            time_limit_ns: 1_000_000_000,
            tail_ns: 16_000_000,
            hosts: 1,
        }
    }

    #[test]
    fn a_hash_separates_its_parts_and_has_128_bits() {
        assert_ne!(hash([b"ab", b"c"]), hash([b"a", b"bc"]));
        // Without parts, the hash is that of no input: the same on every machine and in every version.
        assert_eq!(hash([]), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_eq!(hash([b"x"]).len(), KEY_DIGITS);
    }
}
