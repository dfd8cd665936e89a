//! The backend, with its operations counted and timed.
#![expect(clippy::inline_always, reason = "a simulated operation takes no longer than the call")]

use arch_pmu::spec::Spec;
use counts::Counts;

use super::held::HeldEvent;
use crate::backend::{Backend, HostError};
use crate::stats::{OpKind, OpStats, Recorder};

/// A backend and the counts of what is asked of it.
#[derive(Debug)]
pub(super) struct Measured<B> {
    pub(super) backend: B,
    pub(super) stats: BankStats,
}

impl<B: Backend> Measured<B> {
    pub(super) fn new(backend: B) -> Self {
        let now = backend.now_ns();
        let overflowed_at = Vec::with_capacity(MOST_TIMES);
        Self { backend, stats: BankStats { since_ns: now, held_since: now, overflowed_at, ..BankStats::default() } }
    }

    /// Carries out one host operation.
    #[inline(always)]
    pub(super) fn op<T>(
        &mut self,
        kind: OpKind,
        op: impl FnOnce(&mut B) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let begin = self.backend.now_ns();
        let result = op(&mut self.backend);
        self.did(kind, begin, result)
    }

    #[inline(always)]
    fn did<T>(&mut self, kind: OpKind, begin: u64, result: Result<T, HostError>) -> Result<T, HostError> {
        self.stats.last_op_ns = self.backend.now_ns();
        self.stats.ops.record(kind, self.stats.last_op_ns - begin);
        result.inspect_err(|error| self.stats.failed(error))
    }

    /// Disables an event and returns its count.
    #[inline(always)]
    pub(super) fn disable(&mut self, event: &mut B::Event) -> Result<u64, HostError> {
        // This is written out, because a closure would be a call.
        let begin = self.backend.now_ns();
        let result = self.backend.pause(event);
        self.did(OpKind::Pause, begin, result)
    }

    /// Returns the count of an event, without a host operation if that is possible.
    #[inline(always)]
    pub(super) fn count(&mut self, event: &mut B::Event) -> Result<u64, HostError> {
        match self.backend.peek(event) {
            Some(total) => Ok(total),
            None => self.op(OpKind::Read, |backend| backend.read(event)),
        }
    }

    /// Makes the event signal after `period` more counts, where its counter overflows, or after `least`, if that is later.
    #[inline(always)]
    pub(super) fn aim(&mut self, held: &mut HeldEvent<B::Event>, period: u64, least: u64) -> bool {
        let set = self.op(OpKind::Period, |backend| backend.set_period(&mut held.event, period.max(least))).is_ok();
        if set {
            held.aimed(period, least);
        } else {
            self.stats.counts.refused_periods += 1;
            held.forget_aim();
        }
        set
    }
}

/// Overflows between two looks whose times are kept at most; further ones are left out of the latencies.
const MOST_TIMES: usize = 32;

/// Counts of a bank's operations and failures.
#[derive(Clone, Debug, Default)]
pub struct BankStats {
    /// Host operations.
    pub ops: OpStats,
    /// Latencies of overflows' signals.
    pub signal_ns: Recorder,
    /// Times of overflows that the VMM has not seen.
    pub(super) overflowed_at: Vec<u64>,
    /// Counts beside operations and times.
    pub counts: Counts,
    /// Time since which as many events are held as now.
    pub held_since: u64,
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
    /// Notes a failure. That a gate fell apart outlives those of its single events, which follow from it.
    #[cold]
    pub(super) fn failed(&mut self, error: &HostError) {
        if *error != HostError::PinnedLost || self.last_error != Some(HostError::GateTooLarge) {
            self.last_error = Some(error.clone());
        }
    }

    /// Notes that an event overflowed at this time. No simulated one has a time: a call of its own costs those nothing.
    #[inline(never)]
    pub(super) fn overflowed(&mut self, at: u64) {
        if self.overflowed_at.len() < MOST_TIMES {
            self.overflowed_at.push(at);
        }
    }

    /// Notes that `held` events were held until `now`.
    #[inline]
    pub(super) const fn holds_until(&mut self, now: u64, held: u64) {
        self.counts.held_ns += held * (now - self.held_since);
        self.held_since = now;
    }

    /// Begins anew at `now`, with `held` events and after `throttled` throttle records. In place: what follows is
    /// measured, and touches these pages at every operation.
    pub(super) fn restart(&mut self, now: u64, held: u64, throttled: u64) {
        self.ops.reset();
        self.signal_ns.reset();
        self.overflowed_at.clear();
        self.counts = Counts { held_max: held, ..Counts::default() };
        self.throttled_before = throttled;
        // It is no gate in this account either.
        self.last_error.take_if(|error| *error != HostError::GateTooLarge);
        (self.last_op_ns, self.since_ns, self.held_since) = (now, now, now);
    }
}

/// Retries of one counter after 1, 2, 4 … entries, so that a guest is not stalled by a failing host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// The event that failed last.
    spec: Option<Spec>,
    failures: u32,
    entries_left: u32,
}

impl Backoff {
    /// Binary logarithm of the longest wait, in entries.
    const MOST: u32 = 10;

    /// Notes that the host refused an event for `spec`.
    pub(super) fn failed(&mut self, spec: Spec) {
        let failures = if self.spec == Some(spec) { self.failures } else { 0 };
        *self = Self { spec: Some(spec), failures: failures + 1, entries_left: 1 << failures.min(Self::MOST) };
    }

    /// Notes that an event for `spec` got no hardware counter. This entry is none for a retry in any case.
    pub(super) fn lost(&mut self, spec: Spec) {
        self.failed(spec);
        self.entries_left += 1;
    }

    /// Notes that an event was seen to count.
    #[inline]
    pub(super) const fn counted(&mut self) {
        if self.failures > 0 {
            *self = Self { spec: None, failures: 0, entries_left: 0 };
        }
    }

    /// Returns whether this entry is one for a retry.
    pub(super) const fn due(&mut self) -> bool {
        self.entries_left = self.entries_left.saturating_sub(1);
        self.entries_left == 0
    }
}
