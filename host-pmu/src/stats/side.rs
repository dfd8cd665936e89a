//! The account of one vCPU's host side.

use super::ops::OpStats;
use super::recorder::Recorder;

/// Counts of the operations of the host side of a vCPU, and of its failures.
#[derive(Clone, Debug, Default)]
pub struct HostSide {
    /// Operations by kind.
    pub ops: OpStats,
    /// Settings of the floor's timer.
    pub timer_calls: u64,
    /// Overflow signals that reached the vCPU thread.
    pub signals: u64,
    /// Time from the host's record of an overflow (without a host event, the time its timer was due) to the VMM seeing it, ns.
    pub signal_ns: Recorder,
    /// Kicks that found no overflow (merged, stale or early signals).
    pub empty_kicks: u64,
    /// Most host events held at once.
    pub held_max: u64,
    /// Host events held × ns, over `time_ns`.
    pub held_ns: u64,
    /// Time of this account, ns.
    pub time_ns: u64,
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
    /// Records of some event did not reach the VMM: throttling was not seen, and no event stopped itself at its overflow.
    pub blind: bool,
    /// Last error text of a failed host operation.
    pub last_error: Option<String>,
}
