//! Pauses of counters without a host call for each event: behind a gate, or virtually.
//!
//! Behind a **gate** all events of a vCPU are one group, and the guest's GLOBAL_CTRL becomes one host call, whatever
//! the number of counters. The first pause shuts the gate and reads every count; an event that runs again before the
//! next entry needs no call of its own, except for a new period. The gate opens once, before the entry, if any counter
//! runs. Counters that go off one by one, as they do where the guest's PMU has no GLOBAL_CTRL, are paused themselves.
//!
//! In a **virtual pause** the event of a counter that goes off runs on, and its counts until the counter is on again
//! are subtracted. A guest's handler has its counters off for a few exits. The event's count is looked at when they go
//! off and when they go on, and the difference is subtracted. That moves the overflow of the counter away from the
//! event's own signal by as much, so the signal comes early: the event is aimed anew then, or at once if it would come
//! much too early. No count is lost and none made up, however late or early a signal is. Such a pause ends with a real
//! one if it would last: at the first entry with other counters on, after `MOST_ENTRIES`, or when the event signals
//! while its counter is off.

use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS};

use super::held::{AtHost, HeldEvent};
use super::{Bank, Gate, NEVER_ENDS};
use crate::backend::{Backend, Facts, HostError};
use crate::stats::OpKind;

/// Signals after which the event of a counter that is off is stopped. The first may have been meant for the counter's
/// next overflow.
const MOST_SIGNALS: u32 = 2;

impl<B: Backend> Bank<B> {
    /// Stops a counter that is on by shutting the gate.
    pub(super) fn pause_behind_gate(&mut self, counter: CounterId) -> u64 {
        if self.gate == Gate::Open
            && let Err(error) = self.shut_gate()
        {
            if error == HostError::PinnedLost {
                self.host.stats.counts.pinned_errors += 1;
                self.fail_gate();
                return self.pause_behind_gate(counter);
            }
            self.fail(counter, &error);
            // The counts of all others are unknown as well.
            for other in self.with(|_| true) {
                self.retry(other);
                self.release(other.index());
            }
        }
        self.note_change();
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        held.on = false;
        let total = held.shut_at;
        self.gather(counter, total)
    }

    /// Returns whether the counter, which is on, goes off while others stay on behind the open gate, or as the only one of several:
    /// the gate would be shut and opened again for it.
    pub(super) fn leaves_alone(&mut self, counter: CounterId) -> bool {
        if self.gate != Gate::Open {
            return false;
        }
        let runs = |held: &HeldEvent<_>| held.at_host == AtHost::Enabled;
        let on = self.counters_on();
        let together = on.and(self.changing);
        let alone = self.slots[counter.index()].as_ref().is_some_and(runs)
            && (together != on || self.held > 1 && together == CounterSet::from_iter([counter]));
        // A call on one event does not tell that their leader lost its counters.
        self.gate_changed |= alone;
        alone
    }

    fn shut_gate(&mut self) -> Result<(), HostError> {
        self.gate = Gate::Shut;
        let Self { host, slots, pool, tracked, .. } = self;
        host.op(OpKind::Pause, Backend::shut_gate)?;
        let mut note = |held: &mut HeldEvent<B::Event>| {
            held.shut_at = host.backend.shut_at(&held.event).unwrap_or(held.shut_at);
        };
        tracked.into_iter().for_each(|counter| slots[counter.index()].iter_mut().for_each(&mut note));
        pool.iter_mut().for_each(note);
        Ok(())
    }

    /// Subtracts what the event of a counter counted in a virtual pause, which ends; returns whether the event can be used.
    pub(super) fn leave_out_pause(&mut self, counter: CounterId) -> bool {
        // It may have signalled since the last kick.
        self.drain(false);
        self.resumed.insert(counter);
        let Self { host, slots, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        if !held.leaves() {
            return true;
        }
        match host.count(&mut held.event) {
            Ok(total) => _ = held.gather(total),
            Err(HostError::PinnedLost) => {
                host.stats.counts.pinned_errors += 1;
                // Its counts since the pause are not the counter's.
                (held.at_host, held.forfeited) = (AtHost::Lost, true);
            }
            Err(_) => return false,
        }
        true
    }

    /// Ends the pauses before an entry: events of counters that stay off are disabled, the others enabled, and the gate opens for
    /// them, or those that would signal early are aimed anew.
    #[inline(never)]
    pub(super) fn finish_pauses(&mut self) {
        let Facts { gate: gated, virtual_pauses, .. } = self.facts();
        self.quiet_until = if gated && self.gate == Gate::Failed { 0 } else { NEVER_ENDS };
        let on = self.counters_on();
        if !(if gated { self.quiet_until > 0 && !on.is_empty() } else { virtual_pauses }) {
            return;
        }
        // A counter whose event the host refused is on, too.
        let all = !on.is_empty() || !self.retries.is_empty() || self.host.stats.counts.entries > self.pauses_until;
        if !self.stop_leaving(all) {
            self.pauses_until = NEVER_ENDS;
        }
        self.quiet_until = self.quiet_until.min(self.pauses_until);
        for counter in on {
            let Self { host, slots, .. } = self;
            let Some(held) = slots[counter.index()].as_mut().filter(|held| held.at_host == AtHost::Disabled) else {
                continue;
            };
            match host.op(OpKind::Resume, |b| b.resume(&mut held.event)) {
                Ok(()) => held.at_host = AtHost::Enabled,
                Err(error) => self.fail(counter, &error),
            }
            self.gate_changed = true;
        }
        if !gated {
            self.aim_first(on);
            self.resumed = CounterSet::EMPTY;
            return;
        }
        if self.gate == Gate::Shut {
            if self.host.op(OpKind::Resume, Backend::open_gate).is_ok() {
                self.gate = Gate::Open;
            } else {
                // The refusal is seen again at the next entry.
                self.quiet_until = 0;
            }
        }
        if self.gate == Gate::Open && std::mem::take(&mut self.gate_changed) {
            self.find_gate_lost();
        }
    }

    /// Disables events that go on though their counters are off: all of them, or those that signalled too often. Returns whether any
    /// goes on.
    pub(super) fn stop_leaving(&mut self, all: bool) -> bool {
        let due = |held: &HeldEvent<B::Event>| held.leaves() && (all || held.fired_off >= MOST_SIGNALS);
        let mut goes_on = false;
        for counter in self.tracked {
            let Self { host, slots, .. } = self;
            let Some(held) = slots[counter.index()].as_mut().filter(|held| held.leaves()) else { continue };
            if !due(held) {
                goes_on = true;
                continue;
            }
            match host.disable(&mut held.event) {
                Ok(total) => held.stopped(total),
                Err(error) => self.fail(counter, &error),
            }
        }
        while let Some(at) = self.pool.iter().position(due) {
            let Self { host, pool, .. } = self;
            let held = &mut pool[at];
            if let Ok(total) = host.disable(&mut held.event) {
                held.stopped(total);
            } else {
                host.stats.counts.pinned_errors += 1;
                self.release(MAX_COUNTERS + at);
            }
        }
        goes_on || self.pool.iter().any(HeldEvent::leaves)
    }

    /// Aims anew those events of counters that are on which would signal early before any other signals in time. Later
    /// signals can wait: the next handler may move them once more, and one period then does for both.
    fn aim_first(&mut self, on: CounterSet) {
        let mut open = if self.facts().one_pace { on } else { self.too_early(on) };
        while let Some((_, early_by, counter)) = self.signals(open).min_by_key(|signal| signal.0) {
            open.remove(counter);
            if early_by == 0 || !self.aim_at_overflow(counter) {
                return;
            }
        }
    }

    /// Returns the events to be aimed anew where the relative pace of events is unknown: an event that signals half of
    /// the way to the overflow is near enough, but for the last one, after which no signal comes that could move it.
    fn too_early(&self, on: CounterSet) -> CounterSet {
        let (mut too_early, mut last) = (CounterSet::EMPTY, (0, 0, None));
        for (left, early_by, counter) in self.signals(on) {
            if early_by > left {
                too_early.insert(counter);
            }
            if left >= last.0 {
                last = (left, early_by, Some(counter));
            }
        }
        if let (_, 1.., Some(counter)) = last {
            too_early.insert(counter);
        }
        too_early
    }

    /// Returns the signals to come of counters that are on: the counts until then, the counts from there to the counter's overflow,
    /// and the counter.
    fn signals(&self, on: CounterSet) -> impl Iterator<Item = (u64, u64, CounterId)> {
        // The kick that follows looks at an event that signalled.
        let quiet = self.recorded.map_or(CounterSet::EMPTY, |signalled| on.and(signalled.complement()));
        quiet.into_iter().filter_map(|counter| {
            let held = self.slots[counter.index()].as_ref()?;
            let left = held.left().filter(|_| held.spec.samples())?;
            Some((left, held.aim - held.fires, counter))
        })
    }

    /// Makes the event of a counter that is on signal where the counter overflows; returns whether it will.
    fn aim_at_overflow(&mut self, counter: CounterId) -> bool {
        let Self { host, slots, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        let (aim, fires) = (held.aim, held.fires);
        let known = self.resumed.contains(counter).then_some(held.taken);
        let total = match (host.backend.peek(&held.event), known) {
            (None, Some(taken)) => Ok(taken),
            _ => host.count(&mut held.event),
        };
        let left = match total {
            // It is about to signal.
            Ok(total) if total >= fires => return true,
            Ok(total) => aim - total,
            Err(error) => {
                self.fail(counter, &error);
                return false;
            }
        };
        let least = self.shortest_period(counter, left);
        let Self { host, slots, .. } = self;
        let aimed = slots[counter.index()].as_mut().is_some_and(|held| host.aim(held, left, least));
        if !aimed {
            self.retry(counter);
        }
        aimed
    }
}
