//! Finds the events that overflowed, by the backend's records.

use arch_pmu::host::Signalled;
use arch_pmu::spec::{CounterId, CounterSet};

use super::Bank;
use super::held::HeldEvent;
use super::host::Measured;
use crate::backend::scheduling::SHORTEST_PERIOD;
use crate::backend::{Backend, Facts, Overflow};

impl<B: Backend> Bank<B> {
    /// Takes the records since the last call; with `kick`, the counters with a record are taken next, without a look at
    /// the count of an event that runs on. Otherwise they wait for the next kick.
    pub(super) fn drain(&mut self, kick: bool) {
        let Self { host: Measured { backend, stats }, slots, pool, recorded, tracked, quiet_until, .. } = self;
        let Facts { blind, virtual_pauses: virtually, .. } = *backend.facts();
        if virtually {
            *quiet_until = 0;
        }
        let complete = backend.overflowed(&mut |Overflow { id, count, at: time }| {
            let is_its = |counter: &CounterId| slots[counter.index()].as_ref().is_some_and(|held| held.id == id);
            let held = match tracked.into_iter().find(is_its) {
                Some(counter) => slots[counter.index()].as_mut(),
                None => pool.iter_mut().find(|held| held.id == id),
            };
            let Some(held) = held else { return };
            // An event that goes on through a virtual pause signals while its counter is off: no counter overflows then.
            if let Some(time) = time.filter(|_| held.on || !virtually) {
                stats.overflowed(time);
            }
            // The host may have been late: the next signal comes no later than this.
            held.fires = count.saturating_add(held.period);
            if held.on {
                // An event that runs on may have counted more by the time that its counter is next accessed.
                held.recorded = (kick && !blind).then_some(count);
                if let Some(recorded) = recorded {
                    recorded.insert(held.counter);
                }
            } else {
                held.aim = 0;
                held.fired_off += 1;
            }
        });
        if complete {
            return;
        }
        // Of the events whose counters are off: without records those that passed their signal before their pause, and began
        // their period anew, or signalled since, and may once more; where records were lost, all.
        let off = slots.iter_mut().flatten().chain(pool).filter(|held| !held.on);
        off.filter(|held| !blind || held.fired_off > 0 || held.taken >= held.fires).for_each(HeldEvent::forget_aim);
        if !blind {
            *recorded = None;
            // The last record of an event that runs on may be among the lost: its count is then not that of its last overflow.
            slots.iter_mut().flatten().for_each(|held| (held.fires, held.recorded) = (0, None));
        }
    }

    /// Returns the counters that a signal may have been for, where there are no records (hardware events before Linux
    /// 6.2): those whose events have counted up to their next signal. One look at each count tells them; the others
    /// keep their aims.
    pub(super) fn signalled_by_counts(&mut self) -> Signalled {
        // A clock may signal a little before its count is there.
        let slack = if self.is_clock() { self.facts().shortest_period } else { 0 };
        // Some of the thread's events may have records.
        let mut counters = self.recorded.replace(CounterSet::EMPTY).unwrap_or(CounterSet::ALL);
        for counter in self.with(HeldEvent::counts) {
            let Some(total) = self.total(counter) else { continue };
            let Some(held) = &mut self.slots[counter.index()] else { continue };
            let signalled = held.signalled_by(total.saturating_add(slack)) || !held.spec.samples();
            if signalled || counters.contains(counter) {
                held.recorded = Some(total);
                counters.insert(counter);
            }
        }
        if slack > 0 && counters.is_empty() { Signalled::ANY } else { Signalled { counters, certain: true } }
    }

    /// Returns whether its events are clocks: a PMU has shorter periods.
    fn is_clock(&self) -> bool {
        self.facts().shortest_period > SHORTEST_PERIOD
    }

    /// Returns whether the event of `counter`, which overflowed and runs on, would signal again before its counter was
    /// turned off and on: a handler does that within about four of a clock's shortest periods.
    pub(super) fn repeats_soon(&self, counter: CounterId) -> bool {
        let soon = self.facts().shortest_period.saturating_mul(4);
        self.is_clock() && self.slots[counter.index()].as_ref().is_some_and(|held| held.period < soon)
    }
}
