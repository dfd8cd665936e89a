//! Parts of documents of guest runs: experiments `nmi-latency` and `guest-stat`.

use std::collections::BTreeMap;

use counts::Counts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::linux::LinuxArm;
use crate::stats::interval::Interval;

/// Level of an arm as in the first table: over its rounds that count, paired with the floor's or the first arm's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The arm.
    pub arm: String,
    /// Key of the metric.
    pub metric: String,
    /// Rounds that count.
    pub rounds: u64,
    /// The arm ended each of its turns as it should, and none of its counts raises doubts.
    pub whole: bool,
    /// Median over rounds of each round's median (p50), of a replay the mean over its parts. Those of
    /// [`Arm::metrics`](super::Arm::metrics) are of all samples together.
    pub level: f64,
    /// Its 95 % interval; `None` with fewer than five rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level_interval: Option<Interval>,
    /// The arm that it is compared with: the floor, of stat-setup `auto`, else the first; `None` of that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Ratio to it, over paired rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Its 95 % interval; `None` with fewer than five rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_interval: Option<Interval>,
    /// It is the choice of the main job, beside the strategy that its first line names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub choice: bool,
}

/// One kind of host operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostOp {
    /// Number of operations.
    pub count: u64,
    /// Median cost; 0 if it never ran, or if the kernel module summed the costs.
    pub p50_ns: u64,
    /// Exact sum of costs; 0 if the kernel module was not asked for them (`timed=1`).
    pub total_ns: u64,
}

/// Exits of one MSR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MsrCount {
    /// RDMSR exits.
    pub reads: u64,
    /// WRMSR exits.
    pub writes: u64,
    /// Accesses of both kinds that were answered by #GP.
    pub faults: u64,
}

/// Host events held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventsHeld {
    /// Mean over the vCPUs' time, per vCPU; `None` of KVM's own vPMU and in documents that have a mean over guest entries (`mean`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_mean: Option<f64>,
    /// Most at once on one vCPU.
    pub max: u64,
    /// Most still held by a round's vCPUs together when it ended.
    pub at_end: u64,
    /// Held by a round's vCPUs together at each tail tick (counters off, vCPU halted): the most over rounds.
    pub tail: Vec<u64>,
}

/// Cost of the guest's work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadCost {
    /// ns per unit of work without any counter.
    pub unit_ns_without: f64,
    /// ns per unit of work in the measured phase.
    pub unit_ns_with: f64,
    /// The second over the first.
    pub slowdown: f64,
}

/// A count of an arm that makes its figures doubtful if it is not 0, and the explanation that follows the number.
type Doubt = (fn(&GuestArm) -> u64, &'static str);

/// All of them: a run with one of them is inconclusive, and no comparison judges its arm.
const DOUBTS: [Doubt; 7] = [
    (|arm| arm.lost.unwrap_or(0), "NMIs delivered and not taken, or the reverse"),
    (|arm| arm.overflows_lost.unwrap_or(0), "overflows lost"),
    (|arm| arm.counts.failed_opens, "host events that did not open"),
    (|arm| arm.counts.pinned_errors, "times that a pinned event had no counter"),
    (|arm| arm.counts.ungated, "runs of a vCPU whose gate fell apart to single events"),
    (|arm| arm.counts.throttled, "times that the host throttled sampling"),
    (GuestArm::mostly_missed, "periods without an overflow of their own, nine of ten or more"),
];

impl GuestArm {
    /// Returns the periods that passed without an overflow of their own, if they are nine of ten: the arm then measured something else
    /// than was asked for. The times of overflows beside fewer are whole.
    pub(super) fn mostly_missed(&self) -> u64 {
        let missed = self.counts.periods_missed;
        if missed / 9 >= self.counts.guest_overflows { missed } else { 0 }
    }

    /// Lists the counts that make its figures doubtful.
    pub fn doubtful(&self) -> impl Iterator<Item = (u64, &'static str)> {
        DOUBTS.into_iter().map(|(of, about)| (of(self), about)).filter(|(count, _)| *count > 0)
    }

    /// Says each of them.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        self.doubtful().map(|(count, about)| format!("{count} {about}"))
    }
}

/// Part of an arm beside its metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GuestArm {
    /// Its counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// NMIs handed to KVM; `None` where KVM makes them itself.
    pub nmis_delivered: Option<u64>,
    /// NMIs delivered and not taken, or the reverse: the difference of each vCPU and round without its sign, summed. `None` where
    /// it cannot be known.
    pub lost: Option<u64>,
    /// Overflows of counters with INT seen by the VMM and not by the guest's driver, or the reverse, in the same way.
    /// `None` where the VMM sees none.
    pub overflows_lost: Option<u64>,
    /// Host operations by kind; none where nothing counted them, as below KVM's own vPMU.
    pub host_ops: BTreeMap<String, HostOp>,
    /// MSR exits by register, in hex.
    pub msr_exits: BTreeMap<String, MsrCount>,
    /// Host events held.
    pub events_held: EventsHeld,
    /// Last error of a host operation.
    pub last_error: Option<String>,
    /// Guest time of all measured phases together.
    pub workload_ns: u64,
    /// Cost of the guest's work with and without counters.
    pub workload: Option<WorkloadCost>,
    /// Finished set-ups and tear-downs.
    #[serde(skip_serializing_if = "counts::none")]
    pub cycles: u64,
    /// Time of each phase of a set-up; "set-up" is program, enable, read and disable together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, PhaseResult>,
    /// Counts of the events while they were set up, in the guest's order.
    #[serde(rename = "counts", skip_serializing_if = "Vec::is_empty")]
    pub event_counts: Vec<EventCount>,
    /// Figures that only a Linux guest has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxArm>,
}

impl GuestArm {
    /// Returns the number of times that a host operation ran.
    pub fn op_count(&self, key: &str) -> u64 {
        self.host_ops.get(key).map_or(0, |op| op.count)
    }

    /// Counts the host operations of every kind.
    pub fn all_ops(&self) -> u64 {
        self.host_ops.values().fold(0, |sum, op| sum.saturating_add(op.count))
    }

    /// Counts the MSR exits of every register, over the whole run.
    pub fn all_exits(&self) -> u64 {
        self.msr_exits.values().fold(0, |sum, n| sum.saturating_add(n.reads).saturating_add(n.writes))
    }
}

/// The key of all phases of a set-up together.
pub const SET_UP: &str = "set-up";

/// One phase of an arm's set-ups. How long it took are the arm's metrics `phases/NAME/call_ns`, of one call, and
/// `phases/NAME/total_ns`, of all calls of one set-up together; of "rotate" of one rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
