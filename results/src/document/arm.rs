//! One arm's part of the result document.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::phases::{EventCount, PhaseResult};
use super::summary::Summary;

/// What an arm compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ArmKind {
    /// A strategy on the userspace vPMU.
    Strategy,
    /// The userspace vPMU with no host event; PMIs raised by a timer.
    Floor,
    /// KVM's own vPMU.
    Kvm,
}

/// One kind of host operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct HostOp {
    /// How often.
    pub count: u64,
    /// Median cost; 0 if it never ran.
    pub p50_ns: u64,
    /// Exact sum of costs.
    pub total_ns: u64,
}

/// Exits of one MSR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct MsrCount {
    /// RDMSR exits.
    pub reads: u64,
    /// WRMSR exits.
    pub writes: u64,
    /// Of both, those answered by #GP.
    pub faults: u64,
}

/// Host events held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct EventsHeld {
    /// Mean over guest entries, per vCPU.
    pub mean: f64,
    /// Most at once on one vCPU.
    pub max: u64,
    /// Most still held by a round's vCPUs together when it ended.
    pub at_end: u64,
    /// Held by a round's vCPUs together at each tail tick (counters off, vCPU halted): the most over rounds.
    pub tail: Vec<u64>,
}

/// What the guest's work cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct WorkloadCost {
    /// ns per unit of work without any counter.
    pub unit_ns_without: f64,
    /// ns per unit of work in the measured phase.
    pub unit_ns_with: f64,
    /// The second over the first.
    pub slowdown: f64,
}

/// The quantiles of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct RoundLatency {
    /// Number of values.
    pub count: u64,
    /// Smallest, ns. `None` in older documents, as `p10` and `p90`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// 10th percentile, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p10: Option<u64>,
    /// Median, ns.
    pub p50: u64,
    /// 90th percentile, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<u64>,
    /// 99th percentile, ns.
    pub p99: u64,
    /// Largest, ns.
    pub max: u64,
    /// Mean, ns.
    pub mean: f64,
}

impl RoundLatency {
    /// The quantiles of a histogram; `None` if nothing was recorded.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            min: Some(histogram.min()),
            p10: Some(histogram.value_at_quantile(0.1)),
            p50: histogram.value_at_quantile(0.5),
            p90: Some(histogram.value_at_quantile(0.9)),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
            mean: histogram.mean(),
        })
    }
}

/// One round of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct RoundResult {
    /// Which round, from 0.
    pub round: u64,
    /// Which arm of the round this was, from 0.
    pub position: u64,
    /// How the run ended.
    pub end: String,
    /// Whether what it measured is whole.
    pub complete: bool,
    /// Its start, ns after the experiment's.
    pub started_ns: u64,
    /// From creating the VM to the last vCPU's end.
    pub wall_ns: u64,
    /// From creating the VM to the first guest instruction.
    pub guest_start_ns: u64,
    /// NMI handler latency.
    pub nmi_handler_ns: Option<RoundLatency>,
    /// Delivery latency.
    pub pmi_delivery_ns: Option<RoundLatency>,
    /// Rotations and task switches.
    pub rotation_ns: Option<RoundLatency>,
    /// VMM time per MSR exit. `None` in older documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_path_ns: Option<RoundLatency>,
    /// Whole set-ups: all calls of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up_ns: Option<RoundLatency>,
    /// Host-event overflows seen by the VMM.
    pub overflows: u64,
    /// NMIs the guest took.
    pub nmis: u64,
    /// NMIs delivered less NMIs taken.
    pub lost: Option<i64>,
    /// Host events opened.
    pub opens: u64,
    /// Host events still held at the end.
    pub held_at_end: u64,
}

/// Everything about one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct ArmResult {
    /// Strategy name, "floor" or "kvm".
    pub strategy: String,
    /// What it compares.
    pub kind: ArmKind,
    /// Backend key; "none" for the floor, "kvm" for KVM's own vPMU.
    pub backend: String,
    /// Whether the backend only stands in for hardware events.
    pub stand_in: bool,
    /// Why there are no figures, if this arm cannot run here.
    pub not_available: Option<String>,
    /// Why figures are not whole: one line per round and vCPU.
    pub incomplete: Vec<String>,

    /// Guest NMI handler, entry to exit.
    pub nmi_handler_ns: Option<Summary>,
    /// From the VMM seeing an overflow to the handler's entry.
    pub pmi_delivery_ns: Option<Summary>,
    /// The driver's rotation of multiplexed events, or stop and restart at a task switch.
    pub rotation_ns: Option<Summary>,
    /// VMM time from KVM_RUN's return at an MSR exit to the next KVM_RUN.
    pub exit_path_ns: Option<Summary>,

    /// Host-event overflows seen by the VMM.
    pub overflows: u64,
    /// Overflows seen by the guest's driver.
    pub guest_overflows: u64,
    /// Overflows of counters with INT: each asks for a PMI, several may share one.
    pub pmi_requests: u64,
    /// PMIs delivered, in any delivery mode.
    pub pmis: u64,
    /// NMIs handed to KVM; `None` where KVM makes them itself.
    pub nmis_delivered: Option<u64>,
    /// NMIs the guest took.
    pub nmis: u64,
    /// Of those, with no STATUS bit set.
    pub nmis_without_status: u64,
    /// NMIs delivered less NMIs taken; negative: the guest took more. `None` where it cannot be known.
    pub lost: Option<i64>,
    /// NMIs that met the guest's driver switched off and only acknowledged: not in the handler's figures.
    pub nmis_driver_off: u64,
    /// Overflows seen by the VMM less those seen by the guest's driver. `None` where the VMM sees none.
    pub overflows_lost: Option<i64>,
    /// PMIs held back by LVTPC's mask, as on hardware.
    pub masked: u64,
    /// PMIs with an unknown delivery mode.
    pub undeliverable: u64,
    /// Guest log entries that did not fit.
    pub log_dropped: u64,
    /// Guest log entries that make no sense (exit before entry).
    pub log_invalid: u64,
    /// vCPU runs whose deliveries could not be matched to handler entries.
    pub delivery_unmatched: u64,
    /// Handler entries before their delivery by more than the TSC offset's uncertainty.
    pub delivery_negative: u64,
    /// Largest uncertainty of the TSC offset.
    pub tsc_uncertainty_ns: u64,

    /// Host operations by kind.
    pub host_ops: BTreeMap<String, HostOp>,
    /// MSR exits by register, in hex.
    pub msr_exits: BTreeMap<String, MsrCount>,
    /// Host events held.
    pub events_held: EventsHeld,
    /// Guest entries.
    pub entries: u64,
    /// New sched slices noticed at an entry.
    pub sched_ins: u64,
    /// Overflow signals.
    pub signals: u64,
    /// Kicks that found no overflow.
    pub empty_kicks: u64,
    /// Resumes served by a parked event.
    pub reused: u64,
    /// Periods the host refused.
    pub refused_periods: u64,
    /// Opens that failed.
    pub failed_opens: u64,
    /// Pinned events found in error state.
    pub pinned_errors: u64,
    /// Throttle records.
    pub throttled: u64,
    /// Last error of a host operation.
    pub last_error: Option<String>,

    /// Guest time of all measured phases together.
    pub workload_ns: u64,
    /// What the guest's work cost with and without counters.
    pub workload: Option<WorkloadCost>,
    /// Finished set-ups and tear-downs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cycles: u64,
    /// What each phase of a set-up took; "set-up" are program, enable, read and disable together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, PhaseResult>,
    /// What the events counted while they were set up, in the guest's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<EventCount>,
    /// Round by round.
    pub rounds: Vec<RoundResult>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl ArmResult {
    /// How often a host operation ran.
    #[must_use]
    pub fn op_count(&self, key: &str) -> u64 {
        self.host_ops.get(key).map_or(0, |op| op.count)
    }

    /// Host operations of every kind.
    #[must_use]
    pub fn all_ops(&self) -> u64 {
        self.host_ops.values().fold(0, |sum, op| sum.saturating_add(op.count))
    }

    /// MSR exits of every register, over the whole run.
    #[must_use]
    pub fn all_exits(&self) -> u64 {
        self.msr_exits.values().fold(0, |sum, n| sum.saturating_add(n.reads).saturating_add(n.writes))
    }
}
