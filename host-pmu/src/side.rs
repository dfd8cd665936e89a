//! The host side of a vCPU, as a VMM or a simulator sees it.

use arch_pmu::HostCounters;

use crate::backend::step::StepCounts;
use crate::bank::BankStats;
use crate::stats::OpStats;

/// A host side and its own accounts, beyond what the PMU asks of it.
pub trait HostPmu: HostCounters {
    /// Host events held now.
    fn held(&self) -> u64;

    /// Host operations so far; `None` if there are never any.
    fn ops(&self) -> Option<&OpStats> {
        None
    }

    /// The counts to advance by each retired instruction; `None` if the host side counts by itself.
    fn stepper(&mut self) -> Option<&mut StepCounts> {
        None
    }
}

/// What stood behind the counters, and what went wrong there.
#[derive(Clone, Debug, Default)]
pub struct HostSide {
    /// Operations by kind.
    pub ops: OpStats,
    /// Overflow signals that reached the vCPU thread.
    pub signals: u64,
    /// Kicks that found no overflow (merged, stale or early signals).
    pub empty_kicks: u64,
    /// Most host events held at once.
    pub held_max: u64,
    /// Host events held, summed over guest entries.
    pub held_sum: u64,
    /// Guest entries.
    pub entries: u64,
    /// Host events still held when the run ended.
    pub held_at_end: u64,
    /// New sched slices noticed at an entry.
    pub sched_ins: u64,
    /// Resumes that served a request by a parked event.
    pub reused: u64,
    /// Periods the host refused.
    pub refused_periods: u64,
    /// Opens that failed.
    pub failed_opens: u64,
    /// Pinned events found in error state: the host had no counter for them.
    pub pinned_errors: u64,
    /// Throttle records.
    pub throttled: u64,
    /// Last error text of a failed host operation.
    pub last_error: Option<String>,
}

impl From<&BankStats> for HostSide {
    /// What a bank knows of it; signals and kicks are the vCPU loop's.
    fn from(stats: &BankStats) -> Self {
        Self {
            ops: stats.ops.clone(),
            held_max: stats.held_max,
            held_sum: stats.held_sum,
            entries: stats.entries,
            sched_ins: stats.sched_ins,
            reused: stats.reused,
            refused_periods: stats.refused_periods,
            failed_opens: stats.failed_opens,
            pinned_errors: stats.pinned_errors,
            last_error: stats.last_error.as_ref().map(ToString::to_string),
            ..Self::default()
        }
    }
}
