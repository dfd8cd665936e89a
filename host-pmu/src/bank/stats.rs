//! The account of a bank.

use crate::backend::HostError;
use crate::stats::{HeldTime, HostSide, OpStats, SignalTimes};

/// Counts of a bank's operations and failures.
#[derive(Clone, Debug, Default)]
pub struct BankStats {
    /// Host operations.
    pub ops: OpStats,
    /// Latencies of overflows' signals.
    pub signals: SignalTimes,
    /// Starts served by an event that was there.
    pub reused: u64,
    /// Periods the host refused.
    pub refused_periods: u64,
    /// Opens that failed.
    pub failed_opens: u64,
    /// Pinned events found in error state.
    pub pinned_errors: u64,
    /// Most events held at once.
    pub held_max: u64,
    /// Events held, over time.
    pub held_time: HeldTime,
    /// End of the last host operation.
    pub last_op_ns: u64,
    /// Start of the account.
    pub since_ns: u64,
    /// Guest entries.
    pub entries: u64,
    /// Sched slices that began while events were held.
    pub sched_ins: u64,
    /// Throttle records of earlier accounts.
    pub throttled_before: u64,
    /// The last failure.
    pub last_error: Option<HostError>,
}

impl BankStats {
    /// Counts a failure of a host operation.
    #[cold]
    pub(super) fn failed(&mut self, error: &HostError) {
        self.last_error = Some(error.clone());
    }

    /// Begins anew at `now`, with `held` events and after `throttled` throttle records. In place: what follows is measured, and touches
    /// these pages at every operation.
    pub(super) fn restart(&mut self, now: u64, held: u64, throttled: u64) {
        let Self {
            ops,
            signals,
            reused,
            refused_periods,
            failed_opens,
            pinned_errors,
            held_max,
            held_time,
            last_op_ns,
            since_ns,
            entries,
            sched_ins,
            throttled_before,
            last_error,
        } = self;
        ops.reset();
        signals.reset();
        for count in [reused, refused_periods, failed_opens, pinned_errors, entries, sched_ins] {
            *count = 0;
        }
        (*held_max, *throttled_before, *last_error) = (held, throttled, None);
        (*last_op_ns, *since_ns) = (now, now);
        *held_time = HeldTime::from(now);
        held_time.changes(now, held);
    }
}

impl From<&BankStats> for HostSide {
    /// Returns the bank's part without times; signals and kicks are the vCPU loop's.
    fn from(stats: &BankStats) -> Self {
        Self {
            ops: stats.ops.clone(),
            signal_ns: stats.signals.latencies().clone(),
            held_max: stats.held_max,
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
