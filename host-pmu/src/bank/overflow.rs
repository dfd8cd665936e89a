//! Finds the events that overflowed, by the backend's records.

use arch_pmu::host::Signalled;
use arch_pmu::spec::{CounterId, CounterSet};

use super::Bank;
use super::held::{HeldEvent, find_event};
use super::host::Measured;
use crate::backend::scheduling::SHORTEST_PERIOD;
use crate::backend::{Backend, Facts, Overflow};

impl<B: Backend> Bank<B> {
    /// Takes the records since the last call; with `kick`, the counters with a record are taken next, without a look at
    /// the count of an event that runs on. Otherwise they wait for the next kick.
    pub(super) fn drain(&mut self, kick: bool) {
        self.note_change();
        let Self { host: Measured { backend, stats }, slots, pool, recorded, tracked, .. } = self;
        let Facts { blind, virtual_pauses: virtually, .. } = *backend.facts();
        let complete = backend.overflowed(&mut |Overflow { id, count, at: time }| {
            let Some(held) = find_event(slots, pool, *tracked, id) else { return };
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
            let Some(total) = self.total(counter, Measured::count) else { continue };
            let Some(held) = &mut self.slots[counter.index()] else { continue };
            let signalled = held.signalled_by(total.saturating_add(slack)) || !held.spec.samples();
            if signalled || counters.contains(counter) {
                held.recorded = Some(total);
                counters.insert(counter);
            }
        }
        if slack > 0 && counters.is_empty() { Signalled::ANY } else { Signalled { counters, certain: true } }
    }

    /// Looks for events that count no more, after a signal of no counter that is on.
    pub(super) fn look_for_lost(&mut self) {
        if self.facts().gate {
            return self.find_gate_lost();
        }
        for counter in self.with(HeldEvent::counts) {
            self.total(counter, Measured::count);
        }
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

#[cfg(test)]
mod tests {
    use arch_pmu::host::HostCounters as _;
    use arch_pmu::spec::CounterSet;

    use super::super::tests::{A, Host, bank, pmc};
    use crate::bank::Bank;
    use crate::side::HostPmu as _;

    /// Notes that event 0 overflows at a count of 104, and has counted on to `count` by now.
    fn overflows(bank: &mut Bank<Host>, count: u64) {
        let script = bank.script();
        script.records = vec![(0, 104)];
        script.counts[0] = count;
    }

    #[test]
    fn a_record_that_an_account_finds_waits_for_the_kick() {
        for begin in [false, true] {
            let mut bank = bank("gate");
            bank.start(pmc(0), A, 100);
            bank.on_entry(CounterSet::EMPTY);
            bank.script().complete = true;
            bank.signalled();
            // It comes as the turn ends: its signal is taken with the next turn.
            overflows(&mut bank, 107);
            if begin {
                bank.restart_account();
            } else {
                bank.account(&mut counts::Counts::default());
            }
            assert!(bank.script().records.is_empty() && !bank.nothing_overflowed());
            assert_eq!((bank.signalled().counters, bank.take(pmc(0))), ([pmc(0)].into_iter().collect(), 107));
        }
    }

    #[test]
    fn a_signal_of_another_user_touches_no_event() {
        let mut bank = bank("gate");
        bank.start(pmc(0), A, 100);
        bank.on_entry(CounterSet::EMPTY);
        bank.log();
        assert!(!bank.nothing_overflowed(), "records that are not complete prove nothing");
        bank.script().complete = true;
        bank.signalled();
        assert!(bank.nothing_overflowed() && bank.log().is_empty());
        overflows(&mut bank, 107);
        assert!(!bank.nothing_overflowed(), "one came with it");
        assert_eq!(
            (bank.signalled().counters, bank.take(pmc(0))),
            ([pmc(0)].into_iter().collect(), 107),
            "and is not forgotten"
        );
    }

    #[test]
    fn a_kick_takes_its_record_without_a_look_and_the_rest_is_read() {
        let mut bank = bank("gate");
        bank.start(pmc(0), A, 100);
        bank.on_entry(CounterSet::EMPTY);
        bank.log();
        bank.script().complete = true;
        overflows(&mut bank, 107);
        bank.signalled();
        assert_eq!((bank.take(pmc(0)), bank.log().len()), (104, 0));
        assert_eq!((bank.take(pmc(0)), bank.log()), (3, vec!["read 0".to_owned()]));
    }
}
