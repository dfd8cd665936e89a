//! All events of a vCPU behind one gate: the guest's GLOBAL_CTRL becomes one host call, whatever the number of counters.
//!
//! The first pause shuts the gate and learns every count; what runs again before the next entry needs no call of its own
//! but for a new period. The gate opens once, before the entry, if any counter runs.

use super::{Bank, host_op};
use crate::backend::{Backend, HostError};
use crate::stats::OpKind;
use arch_pmu::spec::{CounterId, MAX_COUNTERS};

/// Whether the events behind it count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate {
    open: bool,
}

impl Gate {
    pub(super) const fn is_shut(self) -> bool {
        !self.open
    }
}

impl<B: Backend> Bank<B> {
    /// Stops a counter by shutting the gate.
    pub(super) fn pause_behind_gate(&mut self, counter: CounterId) -> u64 {
        if self.slots[counter.index()].as_ref().is_none_or(|held| !held.running) {
            return 0;
        }
        if self.gate.open
            && let Err(error) = self.shut_gate()
        {
            self.give_up(counter, &error);
            // The counts of all others are unknown as well.
            for other in (0..MAX_COUNTERS).filter_map(super::counter_at) {
                if let Some(held) = self.slots[other.index()].take() {
                    self.retries.insert(other);
                    self.release(held);
                }
            }
        }
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        held.running = false;
        held.gather(held.shut_at)
    }

    fn shut_gate(&mut self) -> Result<(), HostError> {
        self.gate.open = false;
        let Self { backend, slots, pool, stats, .. } = self;
        host_op(backend, stats, OpKind::Pause, |backend| {
            backend.shut_gate(&mut |id, count| {
                if let Some(held) = slots.iter_mut().flatten().chain(&mut *pool).find(|held| held.id == id) {
                    held.shut_at = count;
                }
            })
        })
    }

    /// Before an entry: events whose counters are off are taken out, the others let in, and the gate opens for them.
    pub(super) fn settle_gate(&mut self) {
        if !self.backend.has_gate() || !self.slots.iter().flatten().any(|held| held.running) {
            return;
        }
        for index in 0..MAX_COUNTERS {
            let Self { backend, slots, stats, .. } = self;
            let (Some(held), Some(counter)) = (&mut slots[index], super::counter_at(index)) else { continue };
            let counts = held.lets_count && !held.stopped;
            let settled = match (held.running, counts) {
                (true, false) => {
                    let spent = std::mem::take(&mut held.stopped);
                    host_op(backend, stats, OpKind::Resume, |b| b.resume(&mut held.event, spent))
                }
                (false, true) => host_op(backend, stats, OpKind::Pause, |b| b.pause(&mut held.event)).map(drop),
                _ => continue,
            };
            held.lets_count = held.running;
            if let Err(error) = settled {
                self.give_up(counter, &error);
            }
        }
        while let Some(at) = self.pool.iter().position(|held| held.lets_count) {
            let Self { backend, pool, stats, .. } = self;
            let held = &mut pool[at];
            held.lets_count = false;
            if host_op(backend, stats, OpKind::Pause, |b| b.pause(&mut held.event)).is_err() {
                stats.pinned_errors += 1;
                let lost = self.pool.swap_remove(at);
                self.release(lost);
            }
        }
        if self.gate.is_shut() {
            // A refusal is seen again at the next entry.
            self.gate.open = self.host(OpKind::Resume, Backend::open_gate).is_ok();
        }
    }
}
