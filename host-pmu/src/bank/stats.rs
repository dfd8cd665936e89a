//! The account of a bank.

use counts::Counts;

use crate::backend::HostError;
use crate::stats::{HeldTime, OpStats, SignalTimes};

/// Counts of a bank's operations and failures.
#[derive(Clone, Debug, Default)]
pub struct BankStats {
    /// Host operations.
    pub ops: OpStats,
    /// Latencies of overflows' signals.
    pub signals: SignalTimes,
    /// What is counted beside operations and times.
    pub counts: Counts,
    /// Events held, over time.
    pub held_time: HeldTime,
    /// End of the last host operation.
    pub last_op_ns: u64,
    /// Start of the account.
    pub since_ns: u64,
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
        let Self { ops, signals, counts, held_time, last_op_ns, since_ns, throttled_before, last_error } = self;
        ops.reset();
        signals.reset();
        *counts = Counts { held_max: held, ..Counts::default() };
        (*throttled_before, *last_error) = (throttled, None);
        (*last_op_ns, *since_ns) = (now, now);
        *held_time = HeldTime::from(now);
        held_time.changes(now, held);
    }
}
