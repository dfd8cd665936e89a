//! The bank as the PMU sees it: starts, stops and moves counters, and gives each its event, which is its own, a parked
//! one, a new one now, or a new one before the entry.

use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram, Signalled};
use arch_pmu::spec::{CounterId, CounterSet, Source, Spec};
use counts::Counts;

use super::held::HeldEvent;
use super::{Bank, BankStats, WantedEvent, aim, count, host_op};
use crate::backend::step::StepCounts;
use crate::backend::{Backend, HostError};
use crate::side::HostPmu;
use crate::stats::{HostSide, OpKind, OpStats};
use crate::strategy::{Apply, Release, Reuse};

impl<B: Backend> HostCounters for Bank<B> {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        match self.strategy.apply {
            Apply::AtOnce => Reprogram::Now,
            Apply::Deferred => Reprogram::AtEntry,
        }
    }

    fn overflowed(&mut self, counter: CounterId, near: bool) -> AfterOverflow {
        self.after_overflow(counter, near)
    }

    fn signalled(&mut self) -> Signalled {
        self.signalled_counters()
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        if !held.counts() {
            return 0;
        }
        let recorded = held.recorded.take();
        // A clock may signal a little early: its counts since the record are there by now.
        if let Some(total) = recorded
            && (total >= held.aim || self.backend.is_blind())
        {
            return held.gather(total);
        }
        if !self.gate_open && self.backend.has_gate() {
            return held.gather(held.shut_at);
        }
        self.read(counter)
    }

    #[inline]
    fn changing(&mut self, counters: CounterSet) {
        self.changing = counters;
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        self.wants_none(counter);
        if self.strategy.release == Release::Eager {
            let counts = |held: &HeldEvent<B::Event>| held.counts();
            let gathered =
                if self.slots[counter.index()].as_ref().is_some_and(counts) { self.read(counter) } else { 0 };
            if let Some(held) = self.slots[counter.index()].take() {
                self.release(held);
            }
            return gathered;
        }
        if self.slots[counter.index()].as_ref().is_some_and(HeldEvent::is_lost) {
            self.note_off(counter);
            return 0;
        }
        if self.backend.has_gate() && !self.leaves_alone(counter) {
            return self.pause_behind_gate(counter);
        }
        // In a virtual pause it goes on, and its count is looked at.
        let virtually = self.backend.pauses_virtually();
        let Self { backend, stats, slots, strategy, recorded, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return 0 };
        if !held.on && (virtually || strategy.skip_paused) {
            return 0;
        }
        let total = if virtually {
            count(backend, stats, &mut held.event)
        } else {
            host_op(backend, stats, OpKind::Pause, |b| b.pause(&mut held.event))
        };
        match total {
            Ok(total) if virtually => {
                // The count contains everything that a record could report.
                (held.on, held.recorded, held.fired_off) = (false, None, 0);
                if let Some(recorded) = recorded {
                    recorded.remove(counter);
                }
                let gathered = held.gather(total);
                self.counts_again(counter);
                self.begin_virtual_pause();
                gathered
            }
            Ok(total) => {
                held.disabled();
                let gathered = held.gather(total);
                self.counts_again(counter);
                gathered
            }
            Err(error) => {
                self.fail(counter, &error);
                self.note_off(counter);
                0
            }
        }
    }

    fn start(&mut self, counter: CounterId, spec: Spec, period: u64) {
        self.tracked.insert(counter);
        self.note_change();
        self.start_counter(counter, spec, period);
    }

    fn stop(&mut self, counter: CounterId, own_enable: bool) {
        self.retries.remove(counter);
        self.wants_none(counter);
        self.note_change();
        if !own_enable && let Some(held) = &mut self.slots[counter.index()] {
            // After a RESET, too, its counts until it was lost are no longer the counter's.
            held.forfeited |= held.is_lost();
        }
        if !own_enable && matches!(self.strategy.reuse, Reuse::Pool(_)) {
            self.park(counter);
        } else if let Some(held) = &mut self.slots[counter.index()] {
            self.parks += 1;
            held.parked_as = self.parks;
        }
        self.tracked.set(counter, self.slots[counter.index()].is_some());
    }

    fn set_period(&mut self, counter: CounterId, period: u64) {
        let least = self.shortest_period(counter, period);
        if let Some(wanted) = &mut self.wanted[counter.index()] {
            wanted.period = period;
        }
        let Some(held) = &mut self.slots[counter.index()] else { return };
        if held.is_lost() {
            // The guest wrote the counter.
            held.forfeited = true;
            return;
        }
        if !held.on || !held.spec.samples() {
            return;
        }
        let (backend, stats) = (&mut self.backend, &mut self.stats);
        held.aim = held.aim_after(period);
        if !aim(backend, stats, held, period, least) {
            self.retry(counter);
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
        self.take_retries()
    }

    fn on_entry(&mut self, enabled: CounterSet) {
        self.stats.counts.entries += 1;
        self.open_wanted();
        if self.held == 0 {
            return;
        }
        if let Release::Slices(slices) = self.strategy.release
            && self.backend.sched_in()
        {
            self.release_after_slices(slices, enabled);
        }
        self.finish_pauses();
    }
}

impl<B: Backend> HostPmu for Bank<B> {
    #[inline]
    fn passes_entry(&mut self) -> bool {
        let quiet = self.is_quiet(self.backend.may_have_switched());
        if quiet {
            self.count_entry();
        }
        quiet
    }

    fn attend(&mut self) {
        self.backend.attend();
    }

    fn held(&self) -> u64 {
        self.held
    }

    fn account(&mut self, counts: &mut Counts) -> HostSide {
        // An overflow belongs to no account: those found here wait for the next kick.
        self.drain_records();
        self.find_lost();
        let now = self.backend.now_ns();
        let BankStats { ops, signals, last_error, .. } = &self.stats;
        counts.merge(&Counts {
            throttled: self.backend.throttled() - self.stats.throttled_before,
            blind: self.backend.is_blind().into(),
            ungated: (self.gate_failed || self.gate_left).into(),
            opens: ops.count(OpKind::Open),
            held_at_end: self.held,
            held_ns: self.stats.held_time.until(now),
            time_ns: now.saturating_sub(self.stats.since_ns),
            ..self.stats.counts
        });
        HostSide {
            ops: ops.clone(),
            signal_ns: signals.latencies().clone(),
            last_error: last_error.as_ref().map(ToString::to_string),
        }
    }

    fn restart_account(&mut self) {
        self.drain_records();
        let now = self.backend.now_ns();
        if std::mem::take(&mut self.rests) {
            // The switch of a rest begins no slice of the guest's.
            self.backend.sched_in();
        }
        self.pauses_began_before_this_account();
        self.stats.restart(now, self.held, self.backend.throttled());
    }

    fn rest(&mut self) {
        self.rests = true;
    }

    fn nothing_overflowed(&mut self) -> bool {
        self.drain_records();
        !self.backend.is_blind() && self.recorded.is_some_and(CounterSet::is_empty)
    }

    #[inline]
    fn saw_signals(&mut self, since_return: u64) {
        if self.stats.signals.any() {
            self.stats.signals.seen(self.backend.now_ns(), since_return);
        }
    }

    fn ops(&self) -> Option<&OpStats> {
        Some(&self.stats.ops)
    }

    fn slices(&mut self) -> Option<(bool, bool)> {
        self.backend.slices()
    }

    fn stepper(&mut self) -> Option<&mut StepCounts> {
        self.backend.stepper()
    }
}

impl<B: Backend> Bank<B> {
    /// Makes a paused counter count `spec`.
    pub(super) fn start_counter(&mut self, counter: CounterId, spec: Spec, period: u64) {
        self.retries.remove(counter);
        let usable = !self.gate_failed;
        let serves = |held: &HeldEvent<B::Event>| usable && held.spec == spec;
        let mut found = self.strategy.reuse != Reuse::None && self.slots[counter.index()].as_ref().is_some_and(serves);
        if !found && matches!(self.strategy.reuse, Reuse::Pool(_)) {
            let mut parked = self.pool.iter().position(serves).map(|at| self.pool.swap_remove(at));
            self.park(counter);
            found = parked.is_some();
            if let Some(held) = &mut parked {
                held.counter = counter;
            }
            self.slots[counter.index()] = parked;
        }
        if found && self.resume(counter, period) {
            return;
        }
        if let Some(held) = self.slots[counter.index()].take() {
            self.release(held);
        }
        if self.most_held == 0 && !self.backend.has_gate() && !self.backend.pauses_virtually() {
            self.open(counter, spec, period);
        } else {
            self.wanted[counter.index()] = Some(WantedEvent { spec, period });
            self.wanting.insert(counter);
        }
    }

    /// Puts the paused event of `counter` into the pool, releasing the least recently used one if it is full.
    pub(super) fn park(&mut self, counter: CounterId) {
        let Some(mut held) = self.slots[counter.index()].take() else { return };
        if self.pool.len() == self.most_held {
            self.release_oldest_of_pool();
        }
        self.parks += 1;
        held.parked_as = self.parks;
        held.forfeited |= held.is_lost();
        self.pool.push(held);
    }

    /// Opens events for the counters that wait for one, making room as far as there is a bound.
    #[inline]
    pub(super) fn open_wanted(&mut self) {
        if self.gate_failed && !self.leave_gate() {
            return;
        }
        // Nearly every entry finds no counter that waits.
        if !self.wanting.is_empty() {
            self.open_all_wanted();
        }
    }

    #[inline(never)]
    fn open_all_wanted(&mut self) {
        let wanted = self.wanting.into_iter().filter(|counter| self.wanted[counter.index()].is_some()).count() as u64;
        let bound = self.most_held as u64;
        while bound > 0 && wanted > 0 && self.held + wanted > bound && self.release_oldest() {}
        // The host schedules an event that is enabled beside the new one: a group that is too large with it is refused
        // (`validate_group`), and a pinned event would find no counter.
        self.stop_leaving(true);
        for counter in std::mem::take(&mut self.wanting) {
            if let Some(WantedEvent { spec, period }) = self.wanted[counter.index()].take() {
                self.open(counter, spec, period);
            }
        }
    }

    fn open(&mut self, counter: CounterId, spec: Spec, period: u64) {
        if self.held == 0 {
            // Slices that began while nothing was held are not this event's.
            self.backend.sched_in();
        }
        let least = self.shortest_period(counter, period);
        // A refused open is an operation, too.
        self.stats.counts.opens_fixed += u64::from(matches!(spec.0, Source::Fixed { .. }));
        match self.host(OpKind::Open, |backend| backend.open(spec, period.max(least))) {
            Ok(event) => {
                let id = self.backend.id(&event);
                self.slots[counter.index()] = Some(HeldEvent::opened(event, id, spec, counter, period, least));
                self.holds(self.held + 1);
                self.gate_changed = true;
            }
            Err(error) => {
                self.stats.counts.failed_opens += 1;
                if error == HostError::GateTooLarge && !self.gate_failed {
                    self.fail_gate();
                }
                self.retries.insert(counter);
                self.failing.insert(counter);
                self.backoffs[counter.index()].failed(spec);
            }
        }
    }

    /// Makes the event in the slot, which has the right spec, count again; returns whether it does.
    fn resume(&mut self, counter: CounterId, period: u64) -> bool {
        let virtually = self.backend.pauses_virtually();
        if virtually && !self.leave_out_pause(counter) {
            return false;
        }
        let waits = virtually || self.backend.has_gate();
        let least = self.shortest_period(counter, period);
        let Self { backend, stats, slots, strategy, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        let aim_now = held.aim_after(period);
        let lost = held.is_lost();
        let moved = std::mem::replace(&mut held.aim, aim_now) != aim_now;
        // An early signal is left to the entry, at which all counters that are on are known.
        let signals_in_time = if virtually { held.left().is_some() } else { !moved };
        let keeps = strategy.skip_period && signals_in_time && !lost && held.period >= least;
        if held.spec.samples() && !keeps && !aim(backend, stats, held, period, least) {
            return false;
        }
        (held.recorded, held.fired_off, held.idle_slices) = (None, 0, 0);
        if waits && !lost {
            // It was not stopped, or is enabled before the entry: with the gate, or after those that leave were stopped.
            held.on = true;
            stats.counts.reused += 1;
            return true;
        }
        if virtually {
            // The host schedules it at once: an event that leaves has its counter until then.
            self.stop_leaving(true);
        }
        let Self { backend, stats, slots, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        if host_op(backend, stats, OpKind::Resume, |b| b.resume(&mut held.event)).is_err() {
            return false;
        }
        held.enabled();
        stats.counts.reused += 1;
        !lost || self.regain(counter, period)
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::host::HostCounters as _;
    use arch_pmu::spec::CounterSet;

    use super::super::tests::{A, Host, bank, gate, pmc};
    use super::*;

    /// Returns a bank with a parked event, and nothing due.
    fn parked(preset: &str) -> Bank<Host> {
        let mut bank = if preset == "gate" { gate() } else { bank(preset) };
        bank.start(pmc(0), A, 100);
        bank.on_entry(CounterSet::EMPTY);
        bank.pause(pmc(0));
        bank.stop(pmc(0), true);
        bank.on_entry(CounterSet::EMPTY);
        bank
    }

    #[test]
    fn an_entry_with_something_due_is_not_passed() {
        for preset in ["reuse-lazy", "gate", "deferred"] {
            let mut bank = parked(preset);
            let entries = bank.stats().counts.entries;
            assert!(bank.passes_entry() && bank.passes_entry());
            assert_eq!(bank.stats().counts.entries, entries + 2, "it is counted");
            bank.script().sched_in = true;
            assert!(!bank.passes_entry() && !bank.passes_entry(), "a slice, which asking takes from nobody");
            bank.on_entry(CounterSet::EMPTY);
            assert_eq!((bank.stats().counts.sched_ins, bank.passes_entry()), (1, true), "{preset}");
            bank.start(pmc(0), A, 100);
            assert_eq!(bank.passes_entry(), preset != "gate" && bank.held() > 0, "{preset}: a counter that started");
        }
        let mut bank = parked("reuse");
        bank.script().sched_in = true;
        assert!(bank.passes_entry(), "no slice makes it release");
        bank.script().refuse_open = true;
        bank.start(pmc(1), A, 100);
        assert!(!bank.passes_entry(), "an open to try again");
    }
}
