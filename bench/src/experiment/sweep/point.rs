//! One experiment of a grid, and the line it becomes.

use std::collections::BTreeMap;
use std::hash::Hasher;

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};

use crate::console::internal;
use crate::error::Error;

/// Version of a line.
pub const SCHEMA: &str = "vpmu-sweep/1";
/// The tool whose simulator a result is of. Another revision may simulate differently, so its results are others.
const TOOL: &str = concat!("vpmu ", env!("CARGO_PKG_VERSION"), " ", env!("VPMU_GIT_REVISION"));

/// Everything that a result depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The strategy's name.
    pub strategy: String,
    /// It as TOML, with `release_slices` put in.
    pub definition: String,
    /// `release = { slices = N }` in place of the strategy's own; `None` if the grid leaves it alone.
    pub release_slices: Option<u32>,
    /// The model's name or path.
    pub model: String,
    /// Hash of its text.
    pub model_hash: String,
    /// Factors of its costs.
    pub costs: BTreeMap<String, f64>,
    /// Event set and guest work.
    pub workload: String,
    /// vCPUs of the host.
    pub vcpus: u64,
    /// Host CPUs they share.
    pub cpus: u64,
    /// Turn of a vCPU on a shared CPU, ns.
    pub slice_ns: u64,
    /// The seed.
    pub seed: u64,
    /// Events between two overflows.
    pub period: u64,
    /// Sampling frequency that the guest adjusts the period to.
    pub freq_hz: Option<u64>,
    /// The guest's tick, ns.
    pub mux_interval_ns: u64,
    /// The guest's timer: `periodic` or `forwarded`.
    pub timer: String,
    /// NMIs per vCPU (rotations, if the workload only counts).
    pub samples: u64,
    /// The guest ends its measured phase after so many ns.
    pub time_limit_ns: u64,
    /// The guest idles for so long afterwards, ns.
    pub tail_ns: u64,
    /// Hosts of this kind that were simulated.
    pub hosts: u64,
}

impl Point {
    /// Names this point, this model's content and this tool's revision: 16 hexadecimal digits.
    #[must_use]
    pub fn key(&self) -> String {
        // A map with text keys, numbers and texts cannot fail to serialize.
        let json = serde_json::to_vec(self).unwrap_or_default();
        hash([SCHEMA.as_bytes(), TOOL.as_bytes(), &json])
    }

    /// The strategy's name with what the grid changed in it.
    #[must_use]
    pub fn arm(&self) -> String {
        self.release_slices.map_or_else(|| self.strategy.clone(), |n| format!("{} slices={n}", self.strategy))
    }
}

/// FNV-1a of the parts with their lengths, in hexadecimal: the same on every machine.
pub(super) fn hash<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hasher = FnvHasher::default();
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    format!("{:016x}", hasher.finish())
}

/// Nanoseconds of many events.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// Median, to two significant digits as the other quantiles.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// Arithmetic mean, exact.
    pub mean: f64,
}

/// Host operations and MSR accesses for each NMI (each rotation, if the workload only counts).
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
    /// Reads.
    pub read: f64,
    /// MSR accesses that exited.
    pub msr_accesses: f64,
}

/// What a point came to: sums and quantiles over its guests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Guests.
    pub guests: u64,
    /// Guests that were ended from outside.
    pub timed_out: u64,
    /// NMIs taken.
    pub nmis: u64,
    /// NMIs handed over that no handler took.
    pub lost: i64,
    /// Overflows the vPMU saw that no driver handled.
    pub overflows_lost: i64,
    /// NMI handler, entry to exit; `None` without NMIs.
    pub nmi_handler_ns: Option<Latency>,
    /// From the overflow being seen to the handler's entry.
    pub pmi_delivery_ns: Option<Latency>,
    /// Rotations and task switches.
    pub rotation_ns: Option<Latency>,
    /// The median of the same guest without host events: of the handler or, without NMIs, of the rotation.
    pub floor_p50_ns: Option<u64>,
    /// The median by the floor's.
    pub x_floor: Option<f64>,
    /// Work per sample.
    pub per_sample: PerSample,
    /// Events created behind general-purpose counters.
    pub creates_gp: u64,
    /// Events created behind fixed counters.
    pub creates_fixed: u64,
    /// Events a vCPU held, in the mean over time.
    pub held_mean: f64,
    /// The most a vCPU held.
    pub held_max: u64,
    /// Sched slices that began while events were held.
    pub sched_ins: u64,
    /// Pinned events that lost their counter.
    pub pinned_errors: u64,
    /// Opens that failed.
    pub failed_opens: u64,
    /// Virtual time of all guests together.
    pub virtual_ns: u64,
}

impl PointResult {
    /// What the guest's user feels: the handler or, without NMIs, the rotation.
    #[must_use]
    pub fn latency(&self) -> Option<&Latency> {
        self.nmi_handler_ns.as_ref().or(self.rotation_ns.as_ref())
    }
}

/// A point and, once it is done, its result.
pub type Entry = (Point, Option<PointResult>);

/// A line of `sweep.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`Point::key`].
    pub key: String,
    /// The tool and its revision.
    pub tool: String,
    /// The point.
    pub point: Point,
    /// What it came to.
    pub result: PointResult,
}

impl Line {
    /// This tool's line.
    #[must_use]
    pub fn new(point: Point, result: PointResult) -> Self {
        Self { schema: SCHEMA.to_owned(), key: point.key(), tool: TOOL.to_owned(), point, result }
    }

    /// A line of this schema; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|line: &Self| line.schema == SCHEMA)
    }

    /// Its text, without the line feed.
    ///
    /// # Errors
    /// A bug: a value that JSON cannot hold.
    pub fn text(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| internal("cannot show a result", error))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn point() -> Point {
        Point {
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
    fn every_parameter_is_part_of_the_key() {
        let base = point();
        let mut keys = vec![base.key()];
        let change = |change: &dyn Fn(&mut Point)| {
            let mut other = base.clone();
            change(&mut other);
            other.key()
        };
        keys.push(change(&|p| p.model_hash = hash([b"texu"])));
        keys.push(change(&|p| p.costs = BTreeMap::from([("open".to_owned(), 0.1)])));
        keys.push(change(&|p| p.costs = BTreeMap::from([("exit".to_owned(), 0.1)])));
        keys.push(change(&|p| p.seed = 2));
        keys.push(change(&|p| p.release_slices = Some(1)));
        keys.push(change(&|p| p.freq_hz = Some(1)));
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(base.key(), point().key());
    }

    #[test]
    fn a_hash_knows_where_a_part_ends_and_is_fnv() {
        assert_ne!(hash([b"ab", b"c"]), hash([b"a", b"bc"]));
        // FNV-1a of eight zero bytes, from its definition.
        let expected = (0..8).fold(0xcbf2_9ce4_8422_2325_u64, |hash, _| hash.wrapping_mul(0x0100_0000_01b3));
        assert_eq!(hash([b""]), format!("{expected:016x}"));
    }
}
