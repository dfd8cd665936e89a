//! Releases parked events.

use std::time::Duration;

use super::Bank;
use super::held::HeldEvent;
use crate::backend::Backend;
use crate::stats::ns;
use arch_pmu::host::Touch;
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS};

impl<B: Backend> Bank<B> {
    /// Returns whether an access of this kind keeps its counter in use.
    pub(super) const fn marks(&self, touch: Touch) -> bool {
        match touch {
            Touch::Write => true,
            Touch::Read => self.strategy.mark.reads,
            Touch::GlobalCtrl => self.strategy.mark.global_ctrl,
        }
    }

    /// Releases the event that was parked first: from the pool, or else that of a counter that is off; returns whether there was
    /// one.
    pub(super) fn release_oldest(&mut self) -> bool {
        if self.release_oldest_of_pool() {
            return true;
        }
        let parked = |at: &usize| self.slots[*at].as_ref().is_some_and(|held| !held.state.is_on());
        let oldest = (0..MAX_COUNTERS).filter(parked).min_by_key(|&at| self.slots[at].as_ref().map(|h| h.parked_as));
        let Some(held) = oldest.and_then(|at| self.slots[at].take()) else { return false };
        self.release(held);
        true
    }

    pub(super) fn release_oldest_of_pool(&mut self) -> bool {
        let oldest = (0..self.pool.len()).min_by_key(|&i| self.pool[i].parked_as);
        let Some(oldest) = oldest else { return false };
        let evicted = self.pool.swap_remove(oldest);
        self.release(evicted);
        true
    }

    /// Does the work of KVM's `kvm_pmu_cleanup`: once per slice, releases the events of counters that no guest access
    /// marked and that are off by their own enable. An event of the pool ages with the counter that it served last: a
    /// guest that multiplexes its counters comes back to it.
    pub(super) fn release_after_slices(&mut self, slices: u32, enabled: CounterSet) {
        self.stats.counts.sched_ins += 1;
        let mut used = std::mem::take(&mut self.in_use);
        used.extend(enabled);
        let age = |held: &mut HeldEvent<B::Event>| {
            held.idle_slices = if used.contains(held.counter) { 0 } else { held.idle_slices + 1 };
            held.idle_slices >= slices
        };
        for index in 0..MAX_COUNTERS {
            if let Some(held) = self.slots[index].take_if(age) {
                self.release(held);
            }
        }
        self.pool.iter_mut().for_each(|held| {
            age(held);
        });
        self.release_from_pool(|held| held.idle_slices >= slices);
    }

    pub(super) fn release_after_time(&mut self, idle: Duration, enabled: CounterSet) {
        let idle = ns(idle);
        let now = self.backend.now_ns();
        let expired = |parked_at: u64| now.saturating_sub(parked_at) >= idle;
        for index in 0..MAX_COUNTERS {
            let counter_enabled = CounterId::from_index(index).is_some_and(|counter| enabled.contains(counter));
            let slot = &mut self.slots[index];
            if let Some(held) = slot.take_if(|held| !held.state.is_on() && !counter_enabled && expired(held.parked_at))
            {
                self.release(held);
            }
        }
        self.release_from_pool(|held| expired(held.parked_at));
    }

    /// Releases all parked events after a halt. Opening and releasing may sleep, too: a sleep beside them is not taken for a halt.
    pub(super) fn release_after_halt(&mut self, enabled: CounterSet) {
        let slept = self.backend.slept();
        if slept && !self.may_have_slept {
            self.release_after_time(Duration::ZERO, enabled);
            if self.may_have_slept {
                self.backend.slept();
            }
        }
        self.may_have_slept = false;
    }

    /// Ends a rest of the vCPU, which is neither idle time of its counters, nor a sched slice, nor a halt.
    pub(super) fn end_rest(&mut self, time: u64) {
        for held in self.slots.iter_mut().flatten().chain(&mut self.pool) {
            held.parked_at = held.parked_at.saturating_add(time);
        }
        // Takes note of the switch and of the sleep.
        self.backend.slept();
        self.backend.sched_in();
    }

    fn release_from_pool(&mut self, dead: impl Fn(&HeldEvent<B::Event>) -> bool) {
        while let Some(at) = self.pool.iter().position(&dead) {
            let held = self.pool.swap_remove(at);
            self.release(held);
        }
    }
}
