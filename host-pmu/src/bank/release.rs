//! Releases parked events.

use super::Bank;
use super::held::HeldEvent;
use crate::backend::Backend;
use arch_pmu::spec::{CounterSet, MAX_COUNTERS};

impl<B: Backend> Bank<B> {
    /// Releases the event that was parked first: from the pool, or else that of a counter that is off; returns whether there was
    /// one.
    pub(super) fn release_oldest(&mut self) -> bool {
        if self.release_oldest_of_pool() {
            return true;
        }
        let parked = |at: &usize| self.slots[*at].as_ref().is_some_and(|held| !held.on);
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

    /// Does the work of KVM's `kvm_pmu_cleanup`: once per slice, releases the events of counters that the guest did not
    /// write and that are off by their own enable. An event of the pool ages with the counter that it served last: a
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

    pub(super) fn release_from_pool(&mut self, dead: impl Fn(&HeldEvent<B::Event>) -> bool) {
        while let Some(at) = self.pool.iter().position(&dead) {
            let held = self.pool.swap_remove(at);
            self.release(held);
        }
    }
}
