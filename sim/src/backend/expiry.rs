//! Expiries of the events: when the next one comes, and what those that came make of it.

use super::{Event, SimBackend};
use crate::event::Base;
use crate::stream::Purpose;

/// An event whose counter is off is paused after its second expiry: further ones need no record of their own.
const TOLD: u64 = 2;

impl SimBackend {
    /// Returns the ns of ring 3 until the next signal.
    #[must_use]
    pub fn user_ns_to_signal(&mut self) -> u64 {
        if !self.exact {
            self.find_next();
        }
        let times = self.clock.times();
        if !self.mixed {
            let counts = self.base.in_user_mode() && self.look_at < u64::MAX;
            return if counts { self.look_at.saturating_sub(self.base.of(times)) } else { u64::MAX };
        }
        let states = self.running.iter().map(|at| &self.table[at]);
        let left = states
            .filter(|state| state.can_signal() && state.base.in_user_mode())
            .map(|state| state.signals_at().saturating_sub(state.base.of(times)));
        left.min().unwrap_or(u64::MAX)
    }

    /// Returns whether a signal may be due.
    #[inline]
    #[must_use]
    pub fn may_signal(&self) -> bool {
        self.base.of(self.clock.times()) >= self.look_at
    }

    /// Takes the due signals; each event is then armed for its next period, as by perf.
    #[inline]
    pub fn take_signals(&mut self) -> u64 {
        // Called at each entry; rarely due.
        if self.may_signal() { self.signals_due() } else { 0 }
    }

    #[inline(never)]
    fn signals_due(&mut self) -> u64 {
        let times = self.clock.times();
        let (mut signals, mut look_at) = (0, u64::MAX);
        let common = self.mixed.then(|| self.base.of(times));
        let Self { table, running, overflowed, goes_on, .. } = self;
        let (mut next, mut expiries) = (0, 0);
        while let Some(at) = running.get(next) {
            next += 1;
            let state = &mut table[at];
            if !state.can_signal() {
                continue;
            }
            let ran = state.ran(times);
            if ran >= state.due {
                signals += 1;
                // Only the last one of several overflows of an event counts.
                overflowed.retain(|&(id, _)| id != state.id);
                expiries += state.expiries(times);
                if state.stops_here() {
                    overflowed.push((state.id, state.rate.counts(state.due)));
                    (state.ran, state.running, state.let_in) = (state.due, false, false);
                    next -= 1;
                    running.leave(table, next);
                    continue;
                }
                let count = state.rate.counts(ran);
                let late = count - state.signal_at;
                let passed = if late < state.period { 0 } else { late / state.period.max(1) };
                state.anchored = Some(times.now - times.thread);
                let reached = state.signal_at + passed * state.period;
                let reached_at = reached.max(state.rate.counts(state.due));
                // Several elapsed periods are one overflow of the counter. Each has a record, which counts where an event goes on.
                let told = if *goes_on { passed.min(TOLD - 1) } else { 0 };
                overflowed.extend((0..=told).rev().map(|before| (state.id, reached_at - before * state.period)));
                state.aim(reached, state.period);
            }
            look_at = look_at.min(state.next(times, common));
        }
        (self.look_at, self.exact) = (look_at, !self.mixed);
        // The cost of the one that ended the guest's run in ring 3 is that of its signal.
        let unseen = expiries.saturating_sub(std::mem::take(&mut self.told));
        self.interrupts(unseen);
        signals
    }

    /// Notes that the guest's run in ring 3 ends with a signal, whose cost is not this backend's.
    pub fn signals_in_ring_3(&mut self) {
        self.told = 1;
    }

    /// Counts expiries of clocks that interrupted the thread in its host code, or in ring 0 of the guest.
    #[inline]
    pub(super) fn interrupts(&mut self, expiries: u64) {
        if expiries > 0 {
            let ns = self.model.costs.expiry.sample_n(expiries, self.clock.streams().of(Purpose::Expiry));
            self.clock.host(ns);
        }
    }

    /// Returns whether a new period moves the next expiry of all events: the host then programs its timer anew, which costs far more than
    /// noting a later one. An event that only counts guests has a counter of its own, and is stopped and started in any case.
    #[inline]
    pub(super) fn moves_first(&mut self, event: &Event, period: u64) -> bool {
        let state = &self.table[event.0];
        if !state.running || self.mixed || !matches!(state.base, Base::Thread { .. }) {
            return state.running;
        }
        if !self.exact {
            self.find_next();
        }
        let state = &self.table[event.0];
        let next = self.base.of(self.clock.times()).saturating_add(state.rate.ns_for(period));
        state.signals_at() <= self.look_at || next <= self.look_at
    }

    /// Finds the next signal of the running events.
    pub(super) fn find_next(&mut self) {
        let times = self.clock.times();
        let common = self.mixed.then(|| self.base.of(times));
        let states = self.running.iter().map(|at| &self.table[at]).filter(|state| state.can_signal());
        self.look_at = states.map(|state| state.next(times, common)).min().unwrap_or(u64::MAX);
        self.exact = !self.mixed;
    }
}
