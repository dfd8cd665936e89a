//! The host events of one vCPU, kept by a strategy.
//!
//! The algorithm is KVM's (`reprogram_counter`, arch/x86/kvm/pmu.c since Linux 5.5) with each of its choices taken from
//! a [`Strategy`]. The PMU says what each counter wants: nothing ([`pause`], then [`stop`]), or to count an event and signal after a
//! period ([`start`]). The bank brings the events it holds in line with that, at each access as far as it can, and for the rest
//! once an entry ([`HostCounters::on_entry`]). Strategies differ in which events may be left as they are. An event is not
//! zeroed after a pause: the bank remembers the count that was handed over, which costs no host call.
//!
//! | key | obeyed by | in |
//! |---|---|---|
//! | [`reuse`] | `finds` takes the counter's own event or a parked one; `stop` and `park` fill the pool; `open_wanted` keeps to its size | here |
//! | [`release`] | `pause` for `eager`; else `on_entry`, by `release_after_slices`; `touch` notes use | here |
//! | [`apply`] | [`HostCounters::changed`] | here |
//! | [`skip-paused`] | `pause` | here |
//! | [`skip-period`] | `resume` | here |
//! | [`overflow`] | [`HostCounters::overflowed`] | here |
//! | [`pause`](crate::strategy::Strategy::pause) | `pause` and `resume`; `finish_pauses` | here, `pause.rs` |
//! | [`gate`] | `pause_behind_gate`, but for a counter that `leaves_alone`; `finish_pauses`; the backend opens the leader | `pause.rs` |
//! | | `fail_gate` and `leave_gate` end it | `failure.rs` |
//!
//! `held.rs` has an event: whether its counter is on, what the host does with it, and its counts; `failure.rs` what becomes of one
//! that failed. The rules by which the host's PMU serves events are in [`scheduling`](crate::backend::scheduling).
//!
//! [`pause`]: HostCounters::pause
//! [`stop`]: HostCounters::stop
//! [`start`]: HostCounters::start
//! [`reuse`]: crate::strategy::Strategy::reuse
//! [`release`]: crate::strategy::Strategy::release
//! [`apply`]: crate::strategy::Strategy::apply
//! [`skip-paused`]: crate::strategy::Strategy::skip_paused
//! [`skip-period`]: crate::strategy::Strategy::skip_period
//! [`overflow`]: crate::strategy::Strategy::overflow
//! [`gate`]: crate::strategy::Strategy::gate

mod account;
mod failure;
mod held;
mod host;
mod overflow;
mod pause;
#[cfg(test)]
mod tests;

use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram, Signalled};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Source, Spec};
use held::{AtHost, HeldEvent};
pub use host::BankStats;
use host::{Backoff, Measured};

use crate::backend::scheduling::SHORTEST_PERIOD;
use crate::backend::{Backend, Facts, HostError};
use crate::stats::{OpKind, OpStats, Recorder};
use crate::strategy::{Apply, OnOverflow, Release, Reuse, Strategy};

/// Value of `pauses_until` while no event runs on behind a virtual pause.
const NEVER_ENDS: u64 = u64::MAX;
/// Guest entries for which the events of a guest with all counters off run on. A handler makes about ten exits.
const MOST_ENTRIES: u64 = 32;

/// The gate of a bank that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// No event counts.
    Shut,
    /// Its events count.
    Open,
    /// Its events do not get counters together: it is left as soon as their counts are handed over.
    Failed,
    /// Its events have been single ones since.
    Left,
}

/// Host events behind the vPMCs of one vCPU.
#[derive(Debug)]
pub struct Bank<B: Backend> {
    host: Measured<B>,
    strategy: Strategy,
    /// Each counter's own event.
    slots: [Option<HeldEvent<B::Event>>; MAX_COUNTERS],
    /// Parked events of no counter; its capacity is reserved up front.
    pool: Vec<HeldEvent<B::Event>>,
    /// Size of the pool: events held, but for counters that are on, which always have one; 0 = no bound.
    most_held: usize,
    /// Counters that wait for an event since the last entry; opened before the next, so that no parked event that another
    /// counter takes gives way.
    wanting: CounterSet,
    /// The event that each of them waits for, and its period.
    wants: [(Spec, u64); MAX_COUNTERS],
    /// Counters that may have an event, wait for one, or are to be tried again.
    tracked: CounterSet,
    gate: Gate,
    /// True if events were added to the gate since it was last seen to count.
    gate_changed: bool,
    /// Counters that are reprogrammed with the one that is now.
    changing: CounterSet,
    /// The entry of the account up to which there is nothing to do at an entry but to look for a new slice, as far as is known.
    quiet_until: u64,
    /// Counters whose events were looked at for this entry, when the counters went on.
    resumed: CounterSet,
    /// The entry of the account up to which events of virtual pauses go on; [`NEVER_ENDS`] where none does.
    pauses_until: u64,
    /// Counters with an overflow record that no kick has looked at; `None`: records were lost, any of them may have overflowed.
    recorded: Option<CounterSet>,
    /// Counters that were touched in this slice: their events are not given back at its end.
    in_use: CounterSet,
    /// Counters whose event did not open and is tried again.
    retries: CounterSet,
    /// Retry intervals by counter, so that one that the host refuses neither keeps another waiting nor is hurried by
    /// the other's success.
    backoffs: [Backoff; MAX_COUNTERS],
    /// Events in slots and pool.
    held: u64,
    /// Events parked so far.
    parks: u64,
    /// True while the vCPU rests.
    rests: bool,
}

impl<B: Backend> Bank<B> {
    /// Creates an empty bank.
    pub fn new(backend: B, strategy: Strategy) -> Self {
        let most_held = if let Reuse::Pool(k) = strategy.reuse { k } else { 0 };
        Self {
            host: Measured::new(backend),
            strategy,
            slots: std::array::from_fn(|_| None),
            pool: Vec::with_capacity(most_held),
            most_held,
            wants: [(Spec(Source::Fixed { index: 0, control: 0 }), 0); MAX_COUNTERS],
            wanting: CounterSet::EMPTY,
            tracked: CounterSet::EMPTY,
            gate: Gate::Shut,
            gate_changed: false,
            changing: CounterSet::ALL,
            quiet_until: NEVER_ENDS,
            resumed: CounterSet::EMPTY,
            pauses_until: NEVER_ENDS,
            recorded: Some(CounterSet::EMPTY),
            in_use: CounterSet::EMPTY,
            retries: CounterSet::EMPTY,
            backoffs: [Backoff::default(); MAX_COUNTERS],
            held: 0,
            parks: 0,
            rests: false,
        }
    }

    /// Makes room for every figure of its account: nothing is allocated for them later.
    pub fn reserved(mut self) -> Self {
        (self.host.stats.ops, self.host.stats.signal_ns) = (OpStats::reserved(), Recorder::reserved());
        self
    }

    /// Returns the counts of its operations so far.
    pub fn stats(&self) -> &BankStats {
        &self.host.stats
    }

    /// Returns the backend.
    pub fn backend(&mut self) -> &mut B {
        &mut self.host.backend
    }

    #[cold]
    fn looks_at_slices(&self) -> bool {
        self.held > 0 && matches!(self.strategy.release, Release::Slices(_))
    }

    fn facts(&self) -> Facts {
        *self.host.backend.facts()
    }

    /// Returns the event that a counter has.
    #[inline]
    pub fn event(&self, counter: CounterId) -> Option<&B::Event> {
        self.slots[counter.index()].as_ref().map(|held| &held.event)
    }

    /// Returns whether the counter has an event for `spec` in its slot, its own or one of the pool.
    fn finds(&mut self, counter: CounterId, spec: Spec) -> bool {
        let usable = self.gate != Gate::Failed && self.strategy.reuse != Reuse::None;
        let serves = |held: &HeldEvent<B::Event>| usable && held.spec == spec;
        if self.slots[counter.index()].as_ref().is_some_and(serves) {
            return true;
        }
        if self.most_held == 0 {
            return false;
        }
        let parked = self.pool.iter().position(serves).map(|at| self.pool.swap_remove(at));
        self.park(counter);
        self.slots[counter.index()] = parked.map(|held| HeldEvent { counter, ..held });
        self.slots[counter.index()].is_some()
    }

    /// Makes the event in the slot, which has the right spec, count again; returns whether it does.
    fn resume(&mut self, counter: CounterId, period: u64) -> bool {
        let Facts { virtual_pauses: virtually, gate, .. } = self.facts();
        if virtually && !self.leave_out_pause(counter) {
            return false;
        }
        let least = self.shortest_period(counter, period);
        let Self { host, slots, strategy, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        let (aim_now, lost) = (held.taken.saturating_add(period), held.is_lost());
        let moved = std::mem::replace(&mut held.aim, aim_now) != aim_now;
        // An early signal is left to the entry, at which all counters that are on are known.
        let signals_in_time = if virtually { held.left().is_some() } else { !moved };
        let keeps = strategy.skip_period && signals_in_time && !lost && held.period >= least;
        if held.spec.samples() && !keeps && !host.aim(held, period, least) {
            return false;
        }
        (held.recorded, held.fired_off, held.idle_slices) = (None, 0, 0);
        if (virtually || gate) && !lost {
            // It was not stopped, or is enabled before the entry: with the gate, or after those that leave were stopped.
            held.on = true;
            host.stats.counts.reused += 1;
            return true;
        }
        if virtually {
            // The host schedules it at once: an event that leaves has its counter until then.
            self.stop_leaving(true);
        }
        let Self { host, slots, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        if host.op(OpKind::Resume, |b| b.resume(&mut held.event)).is_err() {
            return false;
        }
        (held.on, held.at_host) = (true, AtHost::Enabled);
        host.stats.counts.reused += 1;
        !lost || self.regain(counter, period)
    }

    /// Opens events for the counters that wait for one, making room as far as there is a bound.
    #[inline(never)]
    fn open_wanted(&mut self) {
        let (wanted, bound) = (self.wanting.into_iter().count() as u64, self.most_held as u64);
        while bound > 0 && self.held + wanted > bound && self.release_oldest() {}
        // The host schedules an event that is enabled beside the new one: a group that is too large with it is refused
        // (`validate_group`), and a pinned event would find no counter.
        self.stop_leaving(true);
        for counter in std::mem::take(&mut self.wanting) {
            let (spec, period) = self.wants[counter.index()];
            self.open(counter, spec, period);
        }
    }

    fn open(&mut self, counter: CounterId, spec: Spec, period: u64) {
        if self.held == 0 {
            // Slices that began while nothing was held are not this event's.
            self.host.backend.sched_in();
        }
        let least = self.shortest_period(counter, period);
        // A refused open is an operation, too.
        self.host.stats.counts.opens_fixed += u64::from(matches!(spec.0, Source::Fixed { .. }));
        match self.host.op(OpKind::Open, |backend| backend.open(spec, period.max(least))) {
            Ok(event) => {
                let set = period.max(least);
                self.slots[counter.index()] = Some(HeldEvent {
                    id: self.host.backend.id(&event),
                    event,
                    spec,
                    counter,
                    on: true,
                    at_host: AtHost::Enabled,
                    taken: 0,
                    aim: period,
                    fires: set,
                    period: set,
                    fired_off: 0,
                    recorded: None,
                    shut_at: 0,
                    idle_slices: 0,
                    parked_as: 0,
                    forfeited: false,
                });
                self.holds(self.held + 1);
                self.gate_changed = true;
            }
            Err(error) => {
                self.host.stats.counts.failed_opens += 1;
                if error == HostError::GateTooLarge && self.gate != Gate::Failed {
                    self.fail_gate();
                }
                self.retries.insert(counter);
                self.quiet_until = 0;
                self.backoffs[counter.index()].failed(spec);
            }
        }
    }

    /// Puts the paused event of `counter` into the pool, releasing the least recently used one if it is full.
    fn park(&mut self, counter: CounterId) {
        let Some(mut held) = self.slots[counter.index()].take() else { return };
        if self.pool.len() == self.most_held {
            self.release_oldest();
        }
        self.parks += 1;
        held.parked_as = self.parks;
        held.forfeited |= held.is_lost();
        self.pool.push(held);
    }

    /// Returns the event at a place: the counters' own, then those of the pool.
    fn at(&mut self, place: usize) -> Option<&mut HeldEvent<B::Event>> {
        if place < MAX_COUNTERS { self.slots[place].as_mut() } else { self.pool.get_mut(place - MAX_COUNTERS) }
    }

    /// Releases the event at a place, if there is one.
    fn release(&mut self, place: usize) {
        // The event alone is moved.
        let event = match place.checked_sub(MAX_COUNTERS) {
            None => self.slots[place].take().map(|held| held.event),
            Some(at) => Some(self.pool.swap_remove(at).event),
        };
        let Some(event) = event else { return };
        // Releasing cannot fail: close frees the descriptor whatever it returns.
        let _ = self.host.op(OpKind::Release, |backend| {
            backend.release(event);
            Ok(())
        });
        self.holds(self.held - 1);
    }

    /// Releases all events that are due.
    fn release_all(&mut self, mut due: impl FnMut(&mut HeldEvent<B::Event>) -> bool) {
        let mut place = 0;
        while place < MAX_COUNTERS + self.pool.len() {
            if self.at(place).is_some_and(&mut due) {
                self.release(place);
            } else {
                place += 1;
            }
        }
    }

    /// Releases the event that was parked first: from the pool, or else that of a counter that is off; returns whether there was
    /// one.
    fn release_oldest(&mut self) -> bool {
        let order = |bank: &mut Self, place: usize| {
            let held = bank.at(place)?;
            let is_own = place < MAX_COUNTERS;
            (!is_own || !held.on).then_some((is_own, held.parked_as, place))
        };
        let oldest = (0..MAX_COUNTERS + self.pool.len()).filter_map(|place| order(self, place)).min();
        oldest.map(|(.., place)| self.release(place)).is_some()
    }

    /// Does the work of KVM's `kvm_pmu_cleanup`: once per slice, releases the events of counters that the guest did not
    /// write and that are off by their own enable. An event of the pool ages with the counter that it served last: a
    /// guest that multiplexes its counters comes back to it.
    fn release_after_slices(&mut self, slices: u32, enabled: CounterSet) {
        self.host.stats.counts.sched_ins += 1;
        let mut used = std::mem::take(&mut self.in_use);
        used.extend(enabled);
        self.release_all(|held| {
            held.idle_slices = if used.contains(held.counter) { 0 } else { held.idle_slices + 1 };
            held.idle_slices >= slices
        });
    }

    /// Notes that the number of held events is `events` since the last host operation.
    fn holds(&mut self, events: u64) {
        let stats = &mut self.host.stats;
        stats.holds_until(stats.last_op_ns, self.held);
        stats.counts.held_max = stats.counts.held_max.max(events);
        self.held = events;
    }

    /// Notes that something happened to an event: the next entry looks at all of them, where a pause leaves them something to do.
    #[inline]
    fn note_change(&mut self) {
        let facts = self.host.backend.facts();
        if facts.gate || facts.virtual_pauses {
            self.quiet_until = 0;
        }
    }

    /// Returns the counters with such an event.
    fn with(&self, such: impl Fn(&HeldEvent<B::Event>) -> bool) -> CounterSet {
        let has = |counter: &CounterId| self.slots[counter.index()].as_ref().is_some_and(&such);
        self.tracked.into_iter().filter(has).collect()
    }

    /// Returns the counters that are on, with an event.
    fn counters_on(&self) -> CounterSet {
        self.with(|held| held.on)
    }

    /// Returns the count of the event of `counter`, which fails with it.
    #[expect(clippy::inline_always, reason = "its result, with all that an error has, would go through memory")]
    #[inline(always)]
    fn total(&mut self, counter: CounterId) -> Option<u64> {
        let held = self.slots[counter.index()].as_mut()?;
        match self.host.count(&mut held.event) {
            Ok(total) => Some(total),
            Err(error) => {
                self.fail(counter, &error);
                None
            }
        }
    }

    /// Returns the counts of `counter` since the last hand-over, given that its event now reads `total`.
    #[inline]
    fn gather(&mut self, counter: CounterId, total: u64) -> u64 {
        // An event that was opened may get no hardware counter: its count is the proof that it has one.
        self.backoffs[counter.index()].counted();
        self.slots[counter.index()].as_mut().map_or(0, |held| held.gather(total))
    }

    /// Reads the event of a counter that is on, and hands over its counts.
    fn read(&mut self, counter: CounterId) -> u64 {
        self.total(counter).map_or(0, |total| self.gather(counter, total))
    }

    /// Returns the shortest period that the event of `counter` may have, which is to signal after `wanted` counts.
    ///
    /// A clock's expiry costs its thread an interrupt and a signal wherever the thread is, in the VMM as well. Several clocks
    /// with short periods, each of which the host would bear, may leave the thread no time to lengthen them. So all events
    /// that run on expire at most twice in the host's shortest period, half of which is reserved for later ones; beyond that
    /// each of them at most once in 32 such periods. Counts stay exact; a signal may be late.
    #[inline]
    fn shortest_period(&self, counter: CounterId, wanted: u64) -> u64 {
        let shortest = self.host.backend.facts().shortest_period;
        // A PMU bears what perf's throttling leaves of it.
        if shortest <= SHORTEST_PERIOD { shortest } else { self.shortest_of_clock(counter, wanted, shortest) }
    }

    #[inline(never)]
    fn shortest_of_clock(&self, counter: CounterId, wanted: u64, shortest: u64) -> u64 {
        // Most periods are so long that there is room beside any others.
        let set = self.slots[counter.index()].as_ref().map_or(wanted, |held| held.period);
        if wanted.min(set) >= shortest.saturating_mul(32) {
            return shortest;
        }
        let own = self.tracked.into_iter().filter(|&other| other != counter);
        let held = own.filter_map(|other| self.slots[other.index()].as_ref()).chain(&self.pool);
        // An event runs now, or from the entry on that enables it.
        let runs = |held: &&HeldEvent<_>| held.counts() || held.leaves();
        let expiring = held.filter(runs).filter(|held| held.spec.samples() && held.period > 0);
        let others: u64 = expiring.map(|held| shortest.saturating_mul(1024).div_ceil(held.period)).sum();
        shortest.saturating_mul(1024) / (2048_u64.saturating_sub(others) / 2).clamp(1024 / 32, 1024)
    }
}

impl<B: Backend> HostCounters for Bank<B> {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        match self.strategy.apply {
            Apply::AtOnce => Reprogram::Now,
            Apply::Deferred => Reprogram::AtEntry,
        }
    }

    fn overflowed(&mut self, counter: CounterId, near: bool) -> AfterOverflow {
        match self.strategy.overflow {
            // perf is used as if one-shot: the next entry aims at the next overflow.
            OnOverflow::Reprogram => AfterOverflow::Reprogram,
            // An event with its old period signals too early, unless the counter is near its top again. A short rest is no period to
            // go on with where no pause stops the event.
            OnOverflow::Keep if near || self.facts().virtual_pauses && self.repeats_soon(counter) => AfterOverflow::Aim,
            OnOverflow::Keep => AfterOverflow::Leave,
        }
    }

    /// Returns the counters that a signal may have been for.
    fn signalled(&mut self) -> Signalled {
        self.drain(true);
        if self.facts().blind {
            return self.signalled_by_counts();
        }
        let mut counters = match self.recorded.replace(CounterSet::EMPTY) {
            Some(recorded) if !recorded.is_empty() => recorded,
            // The record was that of an event whose counter is off, or that was seen already. Else an event lost its
            // counter, of which Linux signals since 6.15, or the signal was another user's: every record is there.
            Some(none) => {
                if self.facts().gate {
                    self.find_gate_lost();
                } else {
                    for counter in self.with(HeldEvent::counts) {
                        self.total(counter);
                    }
                }
                none
            }
            // Any event may have signalled early, as a clock's or one that goes on does, and its record be among the lost.
            None => return Signalled { certain: true, ..Signalled::ANY },
        };
        // An event that does not sample has no records.
        counters.extend(self.with(|held| held.on && !held.spec.samples()));
        Signalled { counters, certain: true }
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        let Self { host: Measured { backend, .. }, slots, gate, .. } = self;
        let Some(held) = slots[counter.index()].as_mut().filter(|held| held.counts()) else { return 0 };
        // A clock may signal a little early: its counts since the record are there by now.
        if let Some(total) = held.recorded.take()
            && (total >= held.aim || backend.facts().blind)
        {
            return held.gather(total);
        }
        if *gate != Gate::Open && backend.facts().gate {
            return held.gather(held.shut_at);
        }
        self.read(counter)
    }

    #[inline]
    fn changing(&mut self, counters: CounterSet) {
        self.changing = counters;
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        self.wanting.remove(counter);
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        if self.strategy.release == Release::Eager {
            let gathered = if held.counts() { self.read(counter) } else { 0 };
            self.release(counter.index());
            return gathered;
        }
        if held.is_lost() {
            held.on = false;
            return 0;
        }
        let is_on = held.on;
        let Facts { virtual_pauses: virtually, gate, .. } = self.facts();
        if !is_on && (gate || virtually || self.strategy.skip_paused) {
            return 0;
        }
        if gate && !self.leaves_alone(counter) {
            return self.pause_behind_gate(counter);
        }
        // In a virtual pause it goes on, and its count is looked at.
        let Self { host, slots, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return 0 };
        let total = if virtually { host.count(&mut held.event) } else { host.disable(&mut held.event) };
        let total = match total {
            Ok(total) => total,
            Err(error) => {
                self.fail(counter, &error);
                self.slots[counter.index()].iter_mut().for_each(|lost| lost.on = false);
                return 0;
            }
        };
        held.on = false;
        if !virtually {
            held.at_host = AtHost::Disabled;
            return self.gather(counter, total);
        }
        // The count contains everything that a record could report.
        (held.recorded, held.fired_off) = (None, 0);
        if let Some(recorded) = &mut self.recorded {
            recorded.remove(counter);
        }
        self.pauses_until = self.host.stats.counts.entries.saturating_add(MOST_ENTRIES);
        self.note_change();
        self.gather(counter, total)
    }

    fn start(&mut self, counter: CounterId, spec: Spec, period: u64) {
        self.tracked.insert(counter);
        self.note_change();
        self.retries.remove(counter);
        if self.finds(counter, spec) && self.resume(counter, period) {
            return;
        }
        self.release(counter.index());
        let Facts { gate, virtual_pauses, .. } = self.facts();
        if self.most_held == 0 && !gate && !virtual_pauses {
            self.open(counter, spec, period);
        } else {
            self.wants[counter.index()] = (spec, period);
            self.wanting.insert(counter);
            self.quiet_until = 0;
        }
    }

    fn stop(&mut self, counter: CounterId, own_enable: bool) {
        self.retries.remove(counter);
        self.note_change();
        if let Some(held) = &mut self.slots[counter.index()] {
            // After a RESET, too, its counts until it was lost are no longer the counter's.
            held.forfeited |= !own_enable && held.is_lost();
            self.parks += 1;
            held.parked_as = self.parks;
        }
        if !own_enable && self.most_held > 0 {
            self.park(counter);
        }
        self.tracked.set(counter, self.slots[counter.index()].is_some());
    }

    fn set_period(&mut self, counter: CounterId, period: u64) {
        let least = self.shortest_period(counter, period);
        self.wants[counter.index()].1 = period;
        let Some(held) = &mut self.slots[counter.index()] else { return };
        if held.is_lost() {
            // The guest wrote the counter.
            held.forfeited = true;
        } else if held.on && held.spec.samples() {
            held.aim = held.taken.saturating_add(period);
            if !self.host.aim(held, period, least) {
                self.retry(counter);
            }
        }
    }

    fn touch(&mut self, counter: CounterId) {
        if let Some(held) = self.slots[counter.index()].as_mut().filter(|held| held.is_lost()) {
            held.forfeited = true;
        }
        self.in_use.insert(counter);
    }

    fn keeps_nothing_for(&self) -> CounterSet {
        self.tracked.complement()
    }

    fn due(&mut self) -> CounterSet {
        let due = self.retries.into_iter().filter(|counter| self.backoffs[counter.index()].due()).collect();
        self.retries = self.retries.xor(due);
        due
    }

    fn on_entry(&mut self, enabled: CounterSet) {
        self.host.stats.counts.entries += 1;
        // A gate that failed is left first: what is opened until then would be behind it.
        if (self.gate != Gate::Failed || self.leave_gate()) && !self.wanting.is_empty() {
            self.open_wanted();
        }
        if self.held == 0 {
            self.quiet_until = NEVER_ENDS;
        } else {
            if let Release::Slices(slices) = self.strategy.release
                && self.host.backend.sched_in()
            {
                self.release_after_slices(slices, enabled);
            }
            if self.host.stats.counts.entries > self.quiet_until {
                self.finish_pauses();
            }
        }
        if !self.retries.is_empty() {
            self.quiet_until = 0;
        }
    }
}

impl<B: Backend> Drop for Bank<B> {
    fn drop(&mut self) {
        for held in self.slots.iter_mut().filter_map(Option::take).chain(self.pool.drain(..)) {
            self.host.backend.release(held.event);
        }
    }
}
