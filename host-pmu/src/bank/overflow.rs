//! Which events overflowed, by the backend's records, and the strategy's answer to an overflow.

use arch_pmu::host::{AfterOverflow, Signalled};
use arch_pmu::spec::{CounterId, CounterSet};

use super::held::Held;
use super::state::Event;
use super::store::{Bank, counter_at};
use crate::backend::{Backend, Overflow};
use crate::strategy::OnOverflow;

impl<B: Backend> Bank<B> {
    /// Takes the records of overflows since the last call.
    pub(super) fn drain_records(&mut self) {
        let stops = self.backend.stops_at_overflow();
        self.unsettle();
        let Self { backend, slots, pool, recorded, stats, kept, .. } = self;
        let complete = backend.overflowed(&mut |Overflow { id, count, at }| {
            if let Some(at) = at {
                stats.signals.overflowed(at);
            }
            let is_its = |counter: &CounterId| slots[counter.index()].as_ref().is_some_and(|held| held.id == id);
            let at = kept.into_iter().find(is_its);
            let held = match at {
                Some(counter) => slots[counter.index()].as_mut(),
                None => pool.iter_mut().find(|held| held.id == id),
            };
            let Some(held) = held else { return };
            if stops {
                held.note(Event::Stopped);
            }
            held.fired(count);
            if held.state.is_on() {
                held.recorded = Some(count);
                if let (Some(counter), Some(recorded)) = (at, &mut *recorded) {
                    recorded.insert(counter);
                }
            } else {
                held.aim = 0;
                held.fired_off += 1;
            }
        });
        if complete {
            return;
        }
        let off = slots.iter_mut().flatten().chain(&mut *pool).filter(|held| !held.state.is_on());
        off.for_each(Held::forget_aim);
        *recorded = None;
        slots.iter_mut().flatten().for_each(|held| held.fires = 0);
        // The last record of an event that goes on may be among the lost: its count is not its last overflow's.
        slots.iter_mut().flatten().filter(|held| !held.state.is_spent()).for_each(|held| held.recorded = None);
        if stops {
            self.doubt_all();
        }
    }

    /// Any event may have stopped itself without a record: the next entry starts each counter again.
    fn doubt_all(&mut self) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let (Some(held), Some(counter)) = (slot, counter_at(index)) else { continue };
            if held.spec.samples() {
                held.note(Event::RecordsLost);
                if held.state.is_on() {
                    self.stopped.restart(counter);
                }
            }
        }
        self.pool.iter_mut().filter(|held| held.spec.samples()).for_each(|held| held.note(Event::RecordsLost));
    }

    /// The counters that a signal may have been for.
    pub(super) fn signalled_counters(&mut self) -> Signalled {
        self.drain_records();
        let policy = self.on_overflow();
        let mut counters = match self.recorded.replace(CounterSet::EMPTY) {
            Some(recorded) if !recorded.is_empty() => recorded,
            // Of an event whose counter is off, or of one that was seen already: every record is there.
            Some(_) if self.backend.pauses_virtually() => {
                self.look_for_lost();
                return Signalled { counters: CounterSet::EMPTY, certain: true };
            }
            // Without records the signal was that of a counter that overflowed, if there is one.
            Some(_) => return Signalled { certain: policy == OnOverflow::Keep, ..Signalled::ANY },
            // Any event may have stopped itself early, or signalled early after a virtual pause: its record may be lost.
            None => {
                let certain = policy != OnOverflow::Reprogram || self.backend.pauses_virtually();
                return Signalled { certain, ..Signalled::ANY };
            }
        };
        for counter in self.kept {
            // An event that does not sample has no records.
            let held = self.slots[counter.index()].as_ref();
            if held.is_some_and(|held| held.state.is_on() && !held.spec.samples()) {
                counters.insert(counter);
            }
        }
        Signalled { counters, certain: true }
    }

    /// The strategy's answer to an overflow. `near`: the next one may come before the guest starts the counter again.
    pub(super) fn after_overflow(&mut self, counter: CounterId, near: bool) -> AfterOverflow {
        match self.on_overflow() {
            // perf is used as if one-shot: the next entry aims at the next overflow.
            OnOverflow::Reprogram => AfterOverflow::Reprogram,
            // An event with its old period signals too early, unless the counter is near its top again.
            OnOverflow::Keep if near => AfterOverflow::Aim,
            // A short rest is no period to go on with where no pause stops the event.
            OnOverflow::Keep if self.backend.pauses_virtually() && self.repeats_soon(counter) => AfterOverflow::Aim,
            OnOverflow::Keep => AfterOverflow::Leave,
            OnOverflow::Stop => {
                self.stopped.insert(counter);
                AfterOverflow::Leave
            }
        }
    }

    fn on_overflow(&self) -> OnOverflow {
        match self.strategy.overflow {
            // An event without records of its stops cannot be relied on to have stopped.
            OnOverflow::Stop if !self.backend.stops_at_overflow() => OnOverflow::Reprogram,
            policy => policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::host::HostCounters as _;
    use arch_pmu::spec::CounterSet;

    use super::super::fake::{A, bank, pmc};
    use crate::side::HostPmu as _;

    #[test]
    fn a_record_that_an_account_finds_waits_for_the_kick() {
        for begin in [false, true] {
            let (mut bank, host) = bank("gate");
            bank.start(pmc(0), A, 100);
            bank.on_entry(CounterSet::EMPTY);
            host.0.borrow_mut().complete = true;
            bank.signalled();
            // It comes as the turn ends: its signal is taken with the next turn.
            host.0.borrow_mut().unreliable = vec![(0, 104)];
            if begin {
                bank.restart_account();
            } else {
                bank.account();
            }
            assert!(host.0.borrow().unreliable.is_empty() && !bank.nothing_overflowed());
            assert_eq!((bank.signalled().counters, bank.take(pmc(0))), ([pmc(0)].into_iter().collect(), 104));
        }
    }

    #[test]
    fn a_signal_of_another_user_touches_no_event() {
        let (mut bank, host) = bank("gate");
        bank.start(pmc(0), A, 100);
        bank.on_entry(CounterSet::EMPTY);
        host.log();
        assert!(!bank.nothing_overflowed(), "records that are not complete prove nothing");
        host.0.borrow_mut().complete = true;
        bank.signalled();
        assert!(bank.nothing_overflowed() && host.log().is_empty());
        host.0.borrow_mut().unreliable = vec![(0, 104)];
        assert!(!bank.nothing_overflowed(), "one came with it");
        assert_eq!(
            (bank.signalled().counters, bank.take(pmc(0))),
            ([pmc(0)].into_iter().collect(), 104),
            "and is not forgotten"
        );
    }
}
