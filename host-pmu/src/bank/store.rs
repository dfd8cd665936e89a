//! The bank: events in slots and in the pool, and host operations that are counted and timed.

use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, MAX_GP, Spec};

use super::backoff::Backoff;
use super::held::Held;
use super::stats::BankStats;
use super::stopped::Stopped;
use crate::backend::{Backend, HostError};
use crate::stats::{HeldTime, OpKind};
use crate::strategy::{Release, Reuse, Strategy};

/// Value of `pauses_until` while no event runs on behind a virtual pause.
pub(super) const NEVER_ENDS: u64 = u64::MAX;

/// A counter that gets its event before the next entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) spec: Spec,
    pub(super) period: u64,
}

/// Occasions at which a strategy's release looks at events.
#[derive(Clone, Copy, Debug)]
struct Looks {
    at_slices: bool,
    at_sleeps: bool,
    at_time: bool,
}

impl Looks {
    const fn of(release: Release) -> Self {
        Self {
            at_slices: matches!(release, Release::Slices(_)),
            at_sleeps: matches!(release, Release::Hlt),
            at_time: matches!(release, Release::IdleMs(_)),
        }
    }
}

/// Host events behind the vPMCs of one vCPU.
#[derive(Debug)]
pub struct Bank<B: Backend> {
    pub(super) backend: B,
    pub(super) strategy: Strategy,
    looks: Looks,
    /// Each counter's own event.
    pub(super) slots: [Option<Held<B::Event>>; MAX_COUNTERS],
    /// Parked events of no counter; its capacity is reserved up front.
    pub(super) pool: Vec<Held<B::Event>>,
    pub(super) pool_cap: usize,
    /// Counters waiting for an event under `hold_max`; opened last so that reusable parked events are not evicted.
    pub(super) wanted: [Option<Wanted>; MAX_COUNTERS],
    /// Counters with a place in `wanted`: a look at each place at every entry would cost as much as the entry.
    pub(super) wanting: CounterSet,
    /// Counters that may have an event, wait for one, or are to be tried again.
    pub(super) tracked: CounterSet,
    /// True if the events behind the gate, if there is one, count.
    pub(super) gate_open: bool,
    /// No gated or virtually paused event changed since the last entry did what was due for them.
    pub(super) unchanged_since_entry: bool,
    /// Counters whose events were looked at for this entry, when the counters went on.
    pub(super) resumed: CounterSet,
    /// The entry of the account up to which events of virtual pauses go on; [`NEVER_ENDS`] where none does.
    pub(super) pauses_until: u64,
    /// Counters with an overflow record that no kick has looked at; `None`: records were lost, any of them may have overflowed.
    pub(super) recorded: Option<CounterSet>,
    pub(super) stopped: Stopped,
    pub(super) in_use: CounterSet,
    pub(super) retries: CounterSet,
    /// Retry intervals by counter, so that one that the host refuses neither keeps another waiting nor is hurried by the other's success.
    pub(super) backoffs: [Backoff; MAX_COUNTERS],
    /// Events in slots and pool.
    pub(super) held: u64,
    /// True if events were opened or released since the last entry: the thread may have slept for that.
    pub(super) may_have_slept: bool,
    /// Time at which the vCPU's rest began, if it rests.
    pub(super) rests_since: Option<u64>,
    pub(super) stats: BankStats,
}

impl<B: Backend> Bank<B> {
    /// Creates an empty bank.
    #[must_use]
    pub fn new(backend: B, strategy: Strategy) -> Self {
        let since_ns = backend.now_ns();
        let pool_cap = if let Reuse::Pool(k) = strategy.reuse { k } else { 0 };
        Self {
            backend,
            looks: Looks::of(strategy.release),
            strategy,
            slots: std::array::from_fn(|_| None),
            pool: Vec::with_capacity(pool_cap),
            pool_cap,
            wanted: [None; MAX_COUNTERS],
            wanting: CounterSet::EMPTY,
            tracked: CounterSet::EMPTY,
            gate_open: false,
            unchanged_since_entry: true,
            resumed: CounterSet::EMPTY,
            pauses_until: NEVER_ENDS,
            recorded: Some(CounterSet::EMPTY),
            stopped: Stopped::default(),
            in_use: CounterSet::EMPTY,
            retries: CounterSet::EMPTY,
            backoffs: [Backoff::default(); MAX_COUNTERS],
            held: 0,
            may_have_slept: false,
            rests_since: None,
            stats: BankStats { since_ns, held_time: HeldTime::from(since_ns), ..BankStats::default() },
        }
    }

    /// Makes room for every figure of its account: nothing is allocated for them later.
    #[must_use]
    pub fn reserved(mut self) -> Self {
        self.stats.ops.reserve();
        self.stats.signals.reserve();
        self
    }

    /// Returns the counts of its operations so far.
    #[must_use]
    pub fn stats(&self) -> &BankStats {
        &self.stats
    }

    /// Returns the backend.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Returns whether an entry has nothing to do here but to be counted, given whether the thread was `switched_in` or `slept` since that
    /// was last asked, and without a PMI. `false` may be said where there is nothing to do, too.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self, switched_in: bool, slept: bool) -> bool {
        let starts_none = self.retries.is_empty() && self.stopped.is_empty() && self.wanting.is_empty();
        let unchanged = self.unchanged_since_entry && self.stats.counts.entries < self.pauses_until;
        starts_none && (self.held == 0 || self.releases_none(switched_in, slept) && unchanged)
    }

    #[expect(
        clippy::needless_bitwise_bool,
        reason = "what is asked at every entry is quicker without a branch for each"
    )]
    #[inline]
    const fn releases_none(&self, switched_in: bool, slept: bool) -> bool {
        let Looks { at_slices, at_sleeps, at_time } = self.looks;
        !(at_slices & switched_in | at_sleeps & (slept | self.may_have_slept) | at_time)
    }

    /// Counts an entry at which the bank [is quiet](Self::is_quiet).
    #[inline]
    pub const fn count_entry(&mut self) {
        self.stats.counts.entries += 1;
    }

    /// Returns the backend, to look at.
    #[inline]
    #[must_use]
    pub const fn backend_ref(&self) -> &B {
        &self.backend
    }

    /// Carries out one host operation, counted and timed.
    pub(super) fn host<T>(
        &mut self,
        kind: OpKind,
        op: impl FnOnce(&mut B) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        host_op(&mut self.backend, &mut self.stats, kind, op)
    }

    /// Notes that something happened to an event: the next entry looks at all of them, where a pause leaves them something to do.
    #[inline]
    pub(super) fn note_change(&mut self) {
        self.unchanged_since_entry = !(self.backend.has_gate() || self.backend.pauses_virtually());
    }

    /// Does before an entry what pauses left to do.
    #[inline]
    pub(super) fn finish_pauses(&mut self) {
        if !self.unchanged_since_entry || self.stats.counts.entries > self.pauses_until {
            self.finish_all_pauses();
        }
    }

    #[inline(never)]
    fn finish_all_pauses(&mut self) {
        if self.backend.has_gate() { self.finish_at_gate() } else { self.finish_virtual_pauses() }
    }

    /// Returns whether any counter with an event is on.
    pub(super) fn any_on(&self) -> bool {
        let on = |counter: CounterId| self.slots[counter.index()].as_ref().is_some_and(|held| held.state.is_on());
        self.tracked.into_iter().any(on)
    }

    /// Reads the event of a counter that is on, and hands over its counts.
    pub(super) fn read(&mut self, counter: CounterId) -> u64 {
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        match count(&mut self.backend, &mut self.stats, &mut held.event) {
            Ok(total) => held.gather(total),
            Err(error) => {
                self.give_up(counter, &error);
                0
            }
        }
    }

    /// Releases an event.
    pub(super) fn release(&mut self, held: Held<B::Event>) {
        // Releasing cannot fail: close frees the descriptor whatever it returns.
        let _ = self.host(OpKind::Release, |backend| {
            backend.release(held.event);
            Ok(())
        });
        self.holds(self.held - 1);
        self.may_have_slept = true;
    }

    /// Notes that the number of held events is `events` since the last host operation.
    pub(super) fn holds(&mut self, events: u64) {
        self.held = events;
        self.stats.counts.held_max = self.stats.counts.held_max.max(events);
        self.stats.held_time.changes(self.stats.last_op_ns, events);
    }

    /// Gives up an event that failed; its counter is tried again.
    #[cold]
    pub(super) fn give_up(&mut self, counter: CounterId, error: &HostError) {
        if *error == HostError::PinnedLost {
            self.stats.counts.pinned_errors += 1;
        }
        self.retry(counter);
        if let Some(held) = self.slots[counter.index()].take() {
            self.release(held);
        }
    }

    /// Counts the pinned events that stopped and were not looked at since: a guest that waits for their overflows looks at none.
    pub(super) fn count_lost(&mut self) {
        let lost = self.slots.iter().flatten().filter(|held| self.backend.is_lost(&held.event)).count() as u64;
        let lost = lost + u64::from(self.backend.is_gate_lost());
        if lost > 0 {
            self.stats.counts.pinned_errors += lost;
            self.stats.last_error = Some(HostError::PinnedLost);
        }
    }

    /// Removes a counter that is paused or stopped from those that wait for an event.
    #[inline]
    pub(super) fn wants_none(&mut self, counter: CounterId) {
        if !self.wanting.is_empty() {
            self.wanted[counter.index()] = None;
        }
    }

    /// Has `counter` started again before the next entry, because its event failed after it had served.
    pub(super) fn retry(&mut self, counter: CounterId) {
        self.backoffs[counter.index()] = Backoff::default();
        self.retries.insert(counter);
        self.note_change();
    }

    /// Takes the counters to start again after a failure, if this entry is one for a retry.
    pub(super) fn take_retries(&mut self) -> CounterSet {
        let mut due = CounterSet::EMPTY;
        for counter in self.retries {
            if self.backoffs[counter.index()].due() {
                due.insert(counter);
                self.retries.remove(counter);
            }
        }
        due
    }
}

/// Returns the counter with slot `index`.
#[inline]
pub(super) fn counter_at(index: usize) -> Option<CounterId> {
    CounterId::gp(index).or_else(|| CounterId::fixed(index - MAX_GP))
}

/// Carries out one host operation, counted and timed.
#[expect(clippy::inline_always, reason = "a simulated operation takes no longer than the call")]
#[inline(always)]
pub(super) fn host_op<B: Backend, T>(
    backend: &mut B,
    stats: &mut BankStats,
    kind: OpKind,
    op: impl FnOnce(&mut B) -> Result<T, HostError>,
) -> Result<T, HostError> {
    let begin = backend.now_ns();
    let result = op(backend);
    stats.last_op_ns = backend.now_ns();
    stats.ops.record(kind, stats.last_op_ns.saturating_sub(begin));
    result.inspect_err(|error| stats.failed(error))
}

/// Returns the count of an event, without a host operation if that is possible.
#[inline]
pub(super) fn count<B: Backend>(
    backend: &mut B,
    stats: &mut BankStats,
    event: &mut B::Event,
) -> Result<u64, HostError> {
    match backend.peek(event) {
        Some(total) => Ok(total),
        None => host_op(backend, stats, OpKind::Read, |b| b.read(event)),
    }
}

impl<B: Backend> Drop for Bank<B> {
    fn drop(&mut self) {
        for index in 0..MAX_COUNTERS {
            if let Some(held) = self.slots[index].take() {
                self.backend.release(held.event);
            }
        }
        for held in self.pool.drain(..) {
            self.backend.release(held.event);
        }
    }
}
