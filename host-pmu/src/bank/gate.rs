//! All events of a vCPU behind one gate: the guest's GLOBAL_CTRL becomes one host call, whatever the number of counters.
//!
//! The first pause shuts the gate and reads every count; an event that runs again before the next entry needs no call of its
//! own, except for a new period. The gate opens once, before the entry, if any counter runs.

use arch_pmu::spec::{CounterId, MAX_COUNTERS};

use super::state::{Event, State};
use super::store::{Bank, counter_at, host_op};
use crate::backend::{Backend, HostError};
use crate::stats::OpKind;

impl<B: Backend> Bank<B> {
    /// Stops a counter by shutting the gate.
    pub(super) fn pause_behind_gate(&mut self, counter: CounterId) -> u64 {
        if self.slots[counter.index()].as_ref().is_none_or(|held| !held.state.is_on()) {
            return 0;
        }
        if self.gate_open
            && let Err(error) = self.shut_gate()
        {
            self.give_up(counter, &error);
            // The counts of all others are unknown as well.
            for other in (0..MAX_COUNTERS).filter_map(counter_at) {
                if let Some(held) = self.slots[other.index()].take() {
                    self.retry(other);
                    self.release(held);
                }
            }
        }
        self.note_change();
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        held.note(Event::Off);
        held.gather(held.shut_at)
    }

    fn shut_gate(&mut self) -> Result<(), HostError> {
        self.gate_open = false;
        let Self { backend, slots, pool, stats, tracked, .. } = self;
        host_op(backend, stats, OpKind::Pause, |backend| {
            backend.shut_gate(&mut |id, count| {
                let is_its = |counter: &CounterId| slots[counter.index()].as_ref().is_some_and(|held| held.id == id);
                let held = match tracked.into_iter().find(is_its) {
                    Some(counter) => slots[counter.index()].as_mut(),
                    None => pool.iter_mut().find(|held| held.id == id),
                };
                if let Some(held) = held {
                    held.shut_at = count;
                }
            })
        })
    }

    /// Ends the pauses before an entry: events of counters that are off are disabled, the others enabled, and the gate opens for them.
    pub(super) fn finish_at_gate(&mut self) {
        self.unchanged_since_entry = true;
        if !self.any_on() {
            return;
        }
        for counter in self.tracked {
            let Self { backend, slots, stats, .. } = self;
            let Some(held) = &mut slots[counter.index()] else { continue };
            // An event in doubt is enabled at each entry until its counter is started again.
            self.unchanged_since_entry &= !held.state.is_doubtful();
            let done = match held.state {
                State::Entering | State::EnteringSpent | State::Doubtful => {
                    let spent = held.state.is_spent();
                    let enabled = host_op(backend, stats, OpKind::Resume, |b| b.resume(&mut held.event, spent));
                    enabled.map(|()| held.note(Event::Enabled))
                }
                State::Leaving => {
                    let disabled = host_op(backend, stats, OpKind::Pause, |b| b.pause(&mut held.event));
                    disabled.map(|_| held.note(Event::Disabled))
                }
                State::ParkedDoubtful => {
                    if let Some(held) = slots[counter.index()].take() {
                        self.release(held);
                    }
                    continue;
                }
                // A stopped event of a counter that is left stopped waits for its handler.
                State::Running | State::Spent | State::Parked | State::ParkedSpent => continue,
            };
            if let Err(error) = done {
                self.give_up(counter, &error);
            }
        }
        let left_in = |held: &_| matches!(held, State::Leaving | State::ParkedDoubtful);
        while let Some(at) = self.pool.iter().position(|held| left_in(&held.state)) {
            let Self { backend, pool, stats, .. } = self;
            let held = &mut pool[at];
            let disabled = held.state == State::Leaving && {
                held.note(Event::Disabled);
                let disabled = host_op(backend, stats, OpKind::Pause, |b| b.pause(&mut held.event));
                stats.counts.pinned_errors += u64::from(disabled.is_err());
                disabled.is_ok()
            };
            if !disabled {
                let lost = self.pool.swap_remove(at);
                self.release(lost);
            }
        }
        if !self.gate_open {
            // A refusal is seen again at the next entry.
            self.gate_open = self.host(OpKind::Resume, Backend::open_gate).is_ok();
            self.unchanged_since_entry &= self.gate_open;
        }
    }
}
