//! Which events overflowed: told by the backend's records, or unknown.

use super::{Bank, counter_at};
use crate::backend::Backend;
use arch_pmu::spec::CounterSet;

impl<B: Backend> Bank<B> {
    /// Hears which events overflowed.
    pub(super) fn hear_overflows(&mut self) {
        let stops = self.backend.stops_at_overflow();
        let Self { backend, slots, pool, heard, .. } = self;
        let all = backend.overflowed(&mut |id, count| {
            let at = slots.iter().position(|slot| slot.as_ref().is_some_and(|held| held.id == id));
            let held = match at {
                Some(at) => slots[at].as_mut(),
                None => pool.iter_mut().find(|held| held.id == id),
            };
            let Some(held) = held else { return };
            held.stopped = stops;
            if held.running {
                held.told = Some(count);
                if let (Some(counter), Some(heard)) = (at.and_then(counter_at), &mut *heard) {
                    heard.insert(counter);
                }
            }
        });
        if all {
            return;
        }
        *heard = None;
        if stops {
            for held in slots.iter_mut().flatten().chain(pool) {
                held.doubtful = true;
            }
        }
    }

    /// The counters that a signal may have been for.
    pub(super) fn whose_signal(&mut self) -> CounterSet {
        self.hear_overflows();
        let Some(mut heard) = self.heard.replace(CounterSet::EMPTY).filter(|heard| !heard.is_empty()) else {
            // A signal that no record explains: look everywhere.
            return CounterSet::ALL;
        };
        for (index, held) in self.slots.iter().enumerate() {
            // What does not sample is never heard of.
            if held.as_ref().is_some_and(|held| held.running && !held.spec.samples())
                && let Some(counter) = counter_at(index)
            {
                heard.insert(counter);
            }
        }
        heard
    }
}
