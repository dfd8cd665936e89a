//! The host events of one vCPU, kept by a strategy.
//!
//! The algorithm is KVM's (`reprogram_counter`, arch/x86/kvm/pmu.c since Linux 5.5) with each of its choices taken from
//! a [`Strategy`]. An event is not zeroed after a pause: the bank remembers the count that was handed over, which costs
//! no host call.
//!
//! The functions that obey the keys of a strategy's TOML, of [`Bank`] unless named otherwise:
//!
//! | key | obeyed by | in |
//! |---|---|---|
//! | [`reuse`] | `start_counter` takes the counter's own event or a parked one; `stop` and `park` fill the pool; `open_all_wanted` keeps to its size | `counters.rs` |
//! | [`release`] | `pause` for `eager`; else `on_entry`, by `release_after_slices`; `touch` notes use | `counters.rs`, `release.rs` |
//! | [`apply`] | [`HostCounters::changed`] | `counters.rs` |
//! | [`skip-paused`] | `pause` | `counters.rs` |
//! | [`skip-period`] | `resume` | `counters.rs` |
//! | [`overflow`] | `after_overflow` | `overflow.rs` |
//! | [`pause`] | `pause` and `resume`; `finish_all_pauses` | `counters.rs`, `pause.rs` |
//! | [`gate`] | `pause_behind_gate`, but for a counter that `leaves_alone`; `finish_all_pauses`; the backend opens the leader; `fail_gate` and `leave_gate` end it | `pause.rs`, here |
//!
//! An event that failed is handled by `fail`: a pinned one without a hardware counter is kept, and `regain` looks at it
//! once it was enabled again. The rules by which the host's PMU serves events are in
//! [`scheduling`](crate::backend::scheduling).
//!
//! `held.rs` has an event: whether its counter is on, what the host does with it, and its counts.
//!
//! [`Strategy`]: crate::strategy::Strategy
//! [`HostCounters::changed`]: arch_pmu::host::HostCounters::changed
//! [`reuse`]: crate::strategy::Strategy::reuse
//! [`release`]: crate::strategy::Strategy::release
//! [`apply`]: crate::strategy::Strategy::apply
//! [`skip-paused`]: crate::strategy::Strategy::skip_paused
//! [`skip-period`]: crate::strategy::Strategy::skip_period
//! [`overflow`]: crate::strategy::Strategy::overflow
//! [`pause`]: crate::strategy::Strategy::pause
//! [`gate`]: crate::strategy::Strategy::gate

mod counters;
mod held;
mod overflow;
mod pause;
mod release;
#[cfg(test)]
mod tests;

use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use counts::Counts;
use held::{AtHost, HeldEvent};

use crate::backend::scheduling::SHORTEST_PERIOD;
use crate::backend::{Backend, HostError};
use crate::stats::{HeldTime, OpKind, OpStats, SignalTimes};
use crate::strategy::{Release, Reuse, Strategy};

/// Value of `pauses_until` while no event runs on behind a virtual pause.
const NEVER_ENDS: u64 = u64::MAX;

/// A counter that gets its event before the next entry.
#[derive(Clone, Copy, Debug)]
struct WantedEvent {
    spec: Spec,
    period: u64,
}

/// Host events behind the vPMCs of one vCPU.
#[derive(Debug)]
pub struct Bank<B: Backend> {
    backend: B,
    strategy: Strategy,
    /// Its release looks at events when a sched slice began.
    looks_at_slices: bool,
    /// Each counter's own event.
    slots: [Option<HeldEvent<B::Event>>; MAX_COUNTERS],
    /// Parked events of no counter; its capacity is reserved up front.
    pool: Vec<HeldEvent<B::Event>>,
    /// Size of the pool: events held, but for counters that are on, which always have one; 0 = no bound.
    most_held: usize,
    /// Counters waiting for an event; opened before the entry, so that no parked event that another counter takes gives way.
    wanted: [Option<WantedEvent>; MAX_COUNTERS],
    /// Counters with a place in `wanted`: a look at each place at every entry would cost as much as the entry.
    wanting: CounterSet,
    /// Counters that may have an event, wait for one, or are to be tried again.
    tracked: CounterSet,
    /// True if the events behind the gate, if there is one, count.
    gate_open: bool,
    /// Counters that are reprogrammed with the one that is now.
    changing: CounterSet,
    /// True if the events behind the gate do not get counters together: it is left as soon as their counts are handed over.
    gate_failed: bool,
    /// True if the gate was left: its events have been single ones since.
    gate_left: bool,
    /// True if events were added to the gate since it was last seen to count.
    gate_changed: bool,
    /// No gated or virtually paused event changed since the last entry did what was due for them.
    unchanged_since_entry: bool,
    /// Counters whose events were looked at for this entry, when the counters went on.
    resumed: CounterSet,
    /// The entry of the account up to which events of virtual pauses go on; [`NEVER_ENDS`] where none does.
    pauses_until: u64,
    /// Counters with an overflow record that no kick has looked at; `None`: records were lost, any of them may have overflowed.
    recorded: Option<CounterSet>,
    in_use: CounterSet,
    retries: CounterSet,
    /// Counters whose events failed and were not seen to count since.
    failing: CounterSet,
    /// Retry intervals by counter, so that one that the host refuses neither keeps another waiting nor is hurried by
    /// the other's success.
    backoffs: [Backoff; MAX_COUNTERS],
    /// Events in slots and pool.
    held: u64,
    /// Events parked so far.
    parks: u64,
    /// True while the vCPU rests.
    rests: bool,
    stats: BankStats,
}

impl<B: Backend> Bank<B> {
    /// Creates an empty bank.
    pub fn new(backend: B, strategy: Strategy) -> Self {
        let since_ns = backend.now_ns();
        let most_held = if let Reuse::Pool(k) = strategy.reuse { k } else { 0 };
        Self {
            backend,
            looks_at_slices: matches!(strategy.release, Release::Slices(_)),
            strategy,
            slots: std::array::from_fn(|_| None),
            pool: Vec::with_capacity(most_held),
            most_held,
            wanted: [None; MAX_COUNTERS],
            wanting: CounterSet::EMPTY,
            tracked: CounterSet::EMPTY,
            gate_open: false,
            changing: CounterSet::ALL,
            gate_failed: false,
            gate_left: false,
            gate_changed: false,
            parks: 0,
            unchanged_since_entry: true,
            resumed: CounterSet::EMPTY,
            pauses_until: NEVER_ENDS,
            recorded: Some(CounterSet::EMPTY),
            in_use: CounterSet::EMPTY,
            retries: CounterSet::EMPTY,
            failing: CounterSet::EMPTY,
            backoffs: [Backoff::default(); MAX_COUNTERS],
            held: 0,
            rests: false,
            stats: BankStats { since_ns, held_time: HeldTime::from(since_ns), ..BankStats::default() },
        }
    }

    /// Makes room for every figure of its account: nothing is allocated for them later.
    pub fn reserved(mut self) -> Self {
        self.stats.ops.reserve();
        self.stats.signals.reserve();
        self
    }

    /// Returns the counts of its operations so far.
    pub fn stats(&self) -> &BankStats {
        &self.stats
    }

    /// Returns the backend.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Returns whether an entry has nothing to do here but to be counted, given whether the thread was `switched_in` since
    /// that was last asked, and without a PMI. `false` may be said where there is nothing to do, too.
    #[inline]
    pub fn is_quiet(&self, switched_in: bool) -> bool {
        let starts_none = self.retries.is_empty() && self.wanting.is_empty();
        let unchanged = self.unchanged_since_entry && self.stats.counts.entries < self.pauses_until;
        starts_none && (self.held == 0 || !(self.looks_at_slices && switched_in) && unchanged)
    }

    /// Returns the event that a counter has.
    #[inline]
    pub fn event(&self, counter: CounterId) -> Option<&B::Event> {
        self.slots[counter.index()].as_ref().map(|held| &held.event)
    }

    /// Counts an entry at which the bank [is quiet](Self::is_quiet).
    #[inline]
    pub const fn count_entry(&mut self) {
        self.stats.counts.entries += 1;
    }

    /// Returns the backend, to look at.
    #[inline]
    pub const fn backend_ref(&self) -> &B {
        &self.backend
    }

    /// Carries out one host operation, counted and timed.
    fn host<T>(&mut self, kind: OpKind, op: impl FnOnce(&mut B) -> Result<T, HostError>) -> Result<T, HostError> {
        host_op(&mut self.backend, &mut self.stats, kind, op)
    }

    /// Notes that something happened to an event: the next entry looks at all of them, where a pause leaves them something to do.
    #[inline]
    fn note_change(&mut self) {
        self.unchanged_since_entry = !(self.backend.has_gate() || self.backend.pauses_virtually());
    }

    /// Does before an entry what pauses left to do.
    #[inline]
    fn finish_pauses(&mut self) {
        if !self.unchanged_since_entry || self.stats.counts.entries > self.pauses_until {
            self.finish_all_pauses();
        }
    }

    /// Returns the counters that are on, with an event.
    fn counters_on(&self) -> CounterSet {
        let on = |counter: &CounterId| self.slots[counter.index()].as_ref().is_some_and(|held| held.on);
        self.tracked.into_iter().filter(on).collect()
    }

    /// Returns whether any counter with an event is on.
    fn any_on(&self) -> bool {
        !self.counters_on().is_empty()
    }

    /// Notes that `counter`, whose event failed, is off.
    fn note_off(&mut self, counter: CounterId) {
        self.retries.remove(counter);
        if let Some(held) = self.slots[counter.index()].as_mut().filter(|held| held.on) {
            held.on = false;
        }
    }

    /// Reads the event of a counter that is on, and hands over its counts.
    fn read(&mut self, counter: CounterId) -> u64 {
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        match count(&mut self.backend, &mut self.stats, &mut held.event) {
            Ok(total) => {
                let gathered = held.gather(total);
                self.counts_again(counter);
                gathered
            }
            Err(error) => {
                self.fail(counter, &error);
                0
            }
        }
    }

    /// Releases an event.
    fn release(&mut self, held: HeldEvent<B::Event>) {
        // Releasing cannot fail: close frees the descriptor whatever it returns.
        let _ = self.host(OpKind::Release, |backend| {
            backend.release(held.event);
            Ok(())
        });
        self.holds(self.held - 1);
    }

    /// Notes that the number of held events is `events` since the last host operation.
    fn holds(&mut self, events: u64) {
        self.held = events;
        self.stats.counts.held_max = self.stats.counts.held_max.max(events);
        self.stats.held_time.changes(self.stats.last_op_ns, events);
    }

    /// Handles the failure of a host operation on the event of `counter`, which is tried again if it is on.
    ///
    /// A pinned event that got no hardware counter is kept, with its counts until then, and is enabled again at the
    /// next resume, as KVM does. Since Linux 6.15 its failure signals its owner: enabled again at the entry that
    /// follows, it would keep the vCPU out of the guest, so it waits for the guest to reprogram the counter, or for
    /// ever more entries. Any other event is released.
    #[cold]
    fn fail(&mut self, counter: CounterId, error: &HostError) {
        let slot = &mut self.slots[counter.index()];
        let is_on = slot.as_ref().is_none_or(|held| held.on);
        if *error == HostError::PinnedLost
            && let Some(held) = slot
        {
            self.stats.counts.pinned_errors += 1;
            held.at_host = AtHost::Lost;
            held.forget_aim();
            held.recorded = None;
            held.forfeited |= !is_on;
            self.backoffs[counter.index()].lost(held.spec);
        } else if let Some(held) = slot.take() {
            self.backoffs[counter.index()].failed(held.spec);
            self.release(held);
        }
        self.failing.insert(counter);
        if is_on {
            self.retries.insert(counter);
        }
        self.note_change();
    }

    /// Notes that the event of `counter` has a count: its failures are over. An event that was opened may get no
    /// hardware counter, so its opening alone proves nothing.
    #[inline]
    fn counts_again(&mut self, counter: CounterId) {
        if self.failing.contains(counter) {
            self.failing.remove(counter);
            self.backoffs[counter.index()] = Backoff::default();
        }
    }

    /// Looks at an event that was enabled again after it had no hardware counter, now with `period` counts to its
    /// counter's overflow. Returns whether it can be used.
    #[cold]
    fn regain(&mut self, counter: CounterId, period: u64) -> bool {
        let least = self.shortest_period(counter, period);
        let Self { backend, stats, slots, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        match host_op(backend, stats, OpKind::Read, |b| b.read(&mut held.event)) {
            Ok(total) => {
                self.failing.remove(counter);
                self.backoffs[counter.index()] = Backoff::default();
                if std::mem::take(&mut held.forfeited) {
                    held.leave_out(total);
                    held.set_aim(period, least);
                }
                let ahead = total.saturating_sub(held.handed_over());
                // Its counts before the loss bring the overflow of its counter nearer.
                let left = period.saturating_sub(ahead).max(1);
                ahead == 0 || !held.spec.samples() || aim(backend, stats, held, left, least)
            }
            Err(HostError::PinnedLost) => {
                self.fail(counter, &HostError::PinnedLost);
                true
            }
            Err(_) => false,
        }
    }

    /// Finds pinned events that lost their counters and were not looked at since: a guest that waits for their
    /// overflows looks at none.
    fn find_lost(&mut self) {
        for counter in self.tracked {
            let counts = |held: &&HeldEvent<B::Event>| held.counts();
            let held = self.slots[counter.index()].as_ref().filter(counts);
            if held.is_some_and(|held| self.backend.is_lost(&held.event)) {
                self.stats.failed(&HostError::PinnedLost);
                self.fail(counter, &HostError::PinnedLost);
            }
        }
        self.find_gate_lost();
    }

    /// Gives up the gate if its events count no more.
    fn find_gate_lost(&mut self) {
        if self.gate_open && self.backend.is_gate_lost() {
            self.stats.counts.pinned_errors += 1;
            self.fail_gate();
        }
    }

    /// Gives up the gate, whose events do not get hardware counters together: a group is scheduled as a whole or not at
    /// all, where single events keep most of their counters. Each counter that is on hands over its counts at the next
    /// entry and has a single event then.
    #[cold]
    fn fail_gate(&mut self) {
        self.stats.last_error = Some(HostError::GateTooLarge);
        (self.gate_open, self.gate_failed) = (false, true);
        for counter in self.tracked {
            let Self { backend, slots, stats, .. } = self;
            let Some(held) = slots[counter.index()].as_mut().filter(|held| held.on) else { continue };
            // The leader alone is in error state.
            held.shut_at = count(backend, stats, &mut held.event).unwrap_or_else(|_| held.handed_over());
            self.retry(counter);
        }
        self.note_change();
    }

    /// Releases the events of a gate that failed, once all counts were handed over: single ones are opened from now on.
    /// Returns whether it did.
    #[cold]
    fn leave_gate(&mut self) -> bool {
        if self.any_on() {
            return false;
        }
        for index in 0..MAX_COUNTERS {
            if let Some(held) = self.slots[index].take() {
                self.release(held);
            }
        }
        self.release_from_pool(|_| true);
        self.backend.leave_gate();
        (self.gate_failed, self.gate_left) = (false, true);
        true
    }

    /// Returns the shortest period that the event of `counter` may have, which is to signal after `wanted` counts.
    ///
    /// A clock's expiry costs its thread an interrupt and a signal wherever the thread is, in the VMM as well. Several clocks
    /// with short periods, each of which the host would bear, may leave the thread no time to lengthen them. So all events
    /// that run on expire at most twice in the host's shortest period, half of which is reserved for later ones; beyond that
    /// each of them at most once in 32 such periods. Counts stay exact; a signal may be late.
    #[inline]
    fn shortest_period(&self, counter: CounterId, wanted: u64) -> u64 {
        let shortest = self.backend.shortest_period();
        // A PMU bears what perf's throttling leaves of it; and most periods are so long that there is room beside any others.
        let set = self.slots[counter.index()].as_ref().map_or(wanted, |held| held.period);
        if shortest <= SHORTEST_PERIOD || wanted.min(set) >= shortest.saturating_mul(32) {
            return shortest;
        }
        let own = self.tracked.into_iter().filter(|&other| other != counter);
        let held = own.filter_map(|other| self.slots[other.index()].as_ref()).chain(&self.pool);
        let expiring = held.filter(|held| held.may_expire() && held.spec.samples() && held.period > 0);
        let others: u64 = expiring.map(|held| shortest.saturating_mul(1024).div_ceil(held.period)).sum();
        shortest.saturating_mul(1024) / (2048_u64.saturating_sub(others) / 2).clamp(1024 / 32, 1024)
    }

    /// Removes a counter that is paused or stopped from those that wait for an event.
    #[inline]
    fn wants_none(&mut self, counter: CounterId) {
        if !self.wanting.is_empty() {
            self.wanted[counter.index()] = None;
        }
    }

    /// Has `counter` started again before the next entry.
    fn retry(&mut self, counter: CounterId) {
        self.backoffs[counter.index()] = Backoff::default();
        self.retries.insert(counter);
        self.note_change();
    }

    /// Takes the counters to start again after a failure, if this entry is one for a retry.
    fn take_retries(&mut self) -> CounterSet {
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

/// Finds the event with the backend's number `id`, and its counter if it is not in the pool.
fn find_event<'a, E>(
    slots: &'a mut [Option<HeldEvent<E>>],
    pool: &'a mut [HeldEvent<E>],
    tracked: CounterSet,
    id: u64,
) -> Option<(Option<CounterId>, &'a mut HeldEvent<E>)> {
    let is_its = |counter: &CounterId| slots[counter.index()].as_ref().is_some_and(|held| held.id == id);
    match tracked.into_iter().find(is_its) {
        Some(counter) => slots[counter.index()].as_mut().map(|held| (Some(counter), held)),
        None => pool.iter_mut().find(|held| held.id == id).map(|held| (None, held)),
    }
}

/// Carries out one host operation, counted and timed.
#[expect(clippy::inline_always, reason = "a simulated operation takes no longer than the call")]
#[inline(always)]
fn host_op<B: Backend, T>(
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

/// Makes the event signal after `period` more counts, where its counter overflows, or after `least`, if that is later.
fn aim<B: Backend>(
    backend: &mut B,
    stats: &mut BankStats,
    held: &mut HeldEvent<B::Event>,
    period: u64,
    least: u64,
) -> bool {
    let set = host_op(backend, stats, OpKind::Period, |b| b.set_period(&mut held.event, period.max(least))).is_ok();
    if set {
        held.aimed(period, least);
    } else {
        stats.counts.refused_periods += 1;
        held.forget_aim();
    }
    set
}

/// Returns the count of an event, without a host operation if that is possible.
#[inline]
fn count<B: Backend>(backend: &mut B, stats: &mut BankStats, event: &mut B::Event) -> Result<u64, HostError> {
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

/// Counts of a bank's operations and failures.
#[derive(Clone, Debug, Default)]
pub struct BankStats {
    /// Host operations.
    pub ops: OpStats,
    /// Latencies of overflows' signals.
    pub signals: SignalTimes,
    /// Counts beside operations and times.
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
    /// Notes a failure. That a gate fell apart outlives those of its single events, which follow from it.
    #[cold]
    fn failed(&mut self, error: &HostError) {
        if *error != HostError::PinnedLost || self.last_error != Some(HostError::GateTooLarge) {
            self.last_error = Some(error.clone());
        }
    }

    /// Begins anew at `now`, with `held` events and after `throttled` throttle records. In place: what follows is
    /// measured, and touches these pages at every operation.
    fn restart(&mut self, now: u64, held: u64, throttled: u64) {
        let Self { ops, signals, counts, held_time, last_op_ns, since_ns, throttled_before, last_error } = self;
        ops.reset();
        signals.reset();
        *counts = Counts { held_max: held, ..Counts::default() };
        *throttled_before = throttled;
        // It is no gate in this account either.
        last_error.take_if(|error| *error != HostError::GateTooLarge);
        (*last_op_ns, *since_ns) = (now, now);
        *held_time = HeldTime::from(now);
        held_time.changes(now, held);
    }
}

/// Retries of one counter after 1, 2, 4 … entries, so that a guest is not stalled by a failing host.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    /// The event that failed last.
    spec: Option<Spec>,
    failures: u32,
    entries_left: u32,
}

impl Backoff {
    /// Binary logarithm of the longest wait, in entries.
    const MOST: u32 = 10;

    /// Notes that the host refused an event for `spec`.
    fn failed(&mut self, spec: Spec) {
        let failures = if self.spec == Some(spec) { self.failures } else { 0 };
        let entries_left = 1 << failures.min(Self::MOST);
        *self = Self { spec: Some(spec), failures: failures + 1, entries_left };
    }

    /// Notes that an event for `spec` got no hardware counter. This entry is none for a retry in any case.
    fn lost(&mut self, spec: Spec) {
        self.failed(spec);
        self.entries_left += 1;
    }

    /// Returns whether this entry is one for a retry.
    const fn due(&mut self) -> bool {
        self.entries_left = self.entries_left.saturating_sub(1);
        self.entries_left == 0
    }
}
