//! Gives a counter its event: its own, a parked one, a new one now, or a new one before the entry.

use arch_pmu::spec::{CounterId, Spec};

use super::backoff::Backoff;
use super::held::Held;
use super::state::Event;
use super::store::{Bank, Wanted, host_op};
use crate::backend::Backend;
use crate::stats::OpKind;
use crate::strategy::Reuse;

impl<B: Backend> Bank<B> {
    /// Makes a paused counter count `spec`.
    pub(super) fn start_counter(&mut self, counter: CounterId, spec: Spec, period: u64) {
        self.retries.remove(counter);
        let serves = |held: &Held<B::Event>| held.spec == spec && !held.state.is_doubtful();
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
        if self.strategy.hold_max == 0 {
            self.open(counter, spec, period);
        } else {
            self.wanted[counter.index()] = Some(Wanted { spec, period });
            self.wanting.insert(counter);
        }
    }

    /// Puts the paused event of `counter` into the pool, releasing the least recently used one if it is full.
    pub(super) fn park(&mut self, counter: CounterId) {
        let Some(mut held) = self.slots[counter.index()].take() else { return };
        if self.pool.len() == self.pool_cap {
            self.release_oldest_of_pool();
        }
        held.parked_at = self.backend.now_ns();
        self.pool.push(held);
    }

    /// Opens events for the counters that wait for one, making room as far as there is a bound.
    #[inline]
    pub(super) fn open_wanted(&mut self) {
        // Nearly every entry finds no counter that waits.
        if !self.wanting.is_empty() {
            self.open_all_wanted();
        }
    }

    #[inline(never)]
    fn open_all_wanted(&mut self) {
        for counter in std::mem::take(&mut self.wanting) {
            let Some(Wanted { spec, period }) = self.wanted[counter.index()].take() else { continue };
            while self.held >= self.strategy.hold_max as u64 && self.release_oldest() {}
            self.open(counter, spec, period);
        }
    }

    fn open(&mut self, counter: CounterId, spec: Spec, period: u64) {
        if self.held == 0 {
            // Slices that began while nothing was held are not this event's.
            self.backend.sched_in();
        }
        self.may_have_slept = true;
        let room = self.room(counter, period);
        match self.host(OpKind::Open, |backend| backend.open(spec, room.period(period))) {
            Ok(event) => {
                self.backoffs[counter.index()] = Backoff::default();
                let id = self.backend.id(&event);
                self.slots[counter.index()] = Some(Held::opened(event, id, spec, counter, period, room));
                self.holds(self.held + 1);
            }
            Err(_) => {
                self.stats.counts.failed_opens += 1;
                self.retries.insert(counter);
                self.backoffs[counter.index()].failed(spec);
            }
        }
    }

    /// Makes the event in the slot, which has the right spec, count again.
    fn resume(&mut self, counter: CounterId, period: u64) -> bool {
        if self.backend.pauses_virtually() {
            return self.resume_virtually(counter, period);
        }
        if self.backend.stops_at_overflow() {
            // It may have overflowed between the last kick and its pause, and an event that stopped itself is resumed otherwise.
            self.drain_records();
        }
        let gated = self.backend.has_gate();
        let room = self.room(counter, period);
        let Some(held) = &mut self.slots[counter.index()] else { return false };
        if held.state.is_doubtful() {
            return false;
        }
        let (backend, stats) = (&mut self.backend, &mut self.stats);
        let spent = held.state.is_spent();
        let aim = held.aim_after(period);
        let keeps = self.strategy.skip_period && held.aim == aim && !spent && room.has(held.period);
        held.aim = aim;
        if held.spec.samples() && !keeps {
            let set = host_op(backend, stats, OpKind::Period, |b| b.set_period(&mut held.event, room.period(period)));
            if set.is_err() {
                stats.counts.refused_periods += 1;
                return false;
            }
            held.aimed(period, room);
        }
        if gated {
            // The event itself was not stopped, or is enabled with the others before the entry.
            held.note(Event::On);
        } else {
            if host_op(backend, stats, OpKind::Resume, |b| b.resume(&mut held.event, spent)).is_err() {
                return false;
            }
            held.note(Event::Enabled);
        }
        held.recorded = None;
        held.idle_slices = 0;
        stats.counts.reused += 1;
        true
    }
}
