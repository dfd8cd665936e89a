//! Bounds how often the events of a thread may signal, all together.
//!
//! A clock's expiry costs its thread an interrupt and a signal wherever the thread is, in the VMM as well. Several
//! clocks with a short period, each of which the host would bear, may leave the thread no time at all: it then never
//! reaches the code that lengthens their periods. The bound is therefore on the thread: all events that run on expire
//! at most twice in the host's shortest period, and beyond that each of them at most once in 32 such periods
//! ([`ExpiryRoom`]). The host's own limit is on an event.
//!
//! A lengthened period makes a signal late. Counts stay exact.

use arch_pmu::spec::CounterId;

use super::Bank;
use super::held::ExpiryRoom;
use super::held::HeldEvent;
use crate::backend::Backend;
use crate::backend::scheduling::SHORTEST_PERIOD;

/// A handler turns its counters off and on within about this many of the host's shortest periods. An event that runs on
/// with a period below that would signal again while the handler still runs.
const SOON: u64 = 4;

impl<B: Backend> Bank<B> {
    /// Returns the share of the thread's expiries that is left to the event of `counter`, which is to signal after `wanted` counts.
    #[inline]
    pub(super) fn room(&self, counter: CounterId, wanted: u64) -> ExpiryRoom {
        let shortest = self.backend.shortest_period();
        // An event that stops itself expires once, and a PMU bears what perf's throttling leaves of it.
        if shortest <= SHORTEST_PERIOD || self.backend.stops_at_overflow() {
            return ExpiryRoom::unbounded(shortest);
        }
        // Most periods are so long that there is room for them beside any others, and a period that is set may then be kept.
        let set = self.slots[counter.index()].as_ref().map_or(wanted, |held| held.period);
        if wanted.min(set) >= ExpiryRoom::longest(shortest) {
            return ExpiryRoom::beside(0, shortest);
        }
        self.room_beside_others(counter, shortest)
    }

    #[inline(never)]
    fn room_beside_others(&self, counter: CounterId, shortest: u64) -> ExpiryRoom {
        let of_counters = (self.tracked.into_iter().filter(|&other| other != counter))
            .filter_map(|other| self.slots[other.index()].as_ref());
        let others = of_counters.chain(&self.pool).filter(|held| held.state.may_expire()).map(HeldEvent::share).sum();
        ExpiryRoom::beside(others, shortest)
    }

    /// Returns whether the event of `counter`, which overflowed and runs on, would signal again before its counter was
    /// turned off and on.
    pub(super) fn repeats_soon(&self, counter: CounterId) -> bool {
        let shortest = self.backend.shortest_period();
        let held = self.slots[counter.index()].as_ref();
        shortest > SHORTEST_PERIOD && held.is_some_and(|held| held.period < SOON.saturating_mul(shortest))
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::host::{AfterOverflow, HostCounters as _};
    use arch_pmu::intel::PerfEvtSel;
    use arch_pmu::spec::{CounterSet, MAX_COUNTERS, Spec};
    use proptest::prelude::*;

    use super::super::held::{LEAST, MOST, ONE};
    use super::super::tests::{Host, Script, bank, pmc};
    use super::*;
    use crate::strategy::MAX_POOL;

    const SHORTEST: u64 = 50_000;

    /// Returns a bank on a clock that bears a signal every [`SHORTEST`].
    fn clock(preset: &str) -> (Bank<Host>, Host) {
        let (bank, host) = bank(preset);
        {
            let mut script = host.0.borrow_mut();
            (script.shortest, script.complete, script.one_pace, script.peeks) = (SHORTEST, true, true, true);
            script.goes_on = preset == "virtual";
            script.gated = preset == "gate";
        }
        (bank, host)
    }

    /// Expiries of all enabled events in 1024 of the shortest periods, and of one of them at most.
    fn expiries(script: &Script) -> (u64, u64) {
        let enabled = script.periods.iter().zip(&script.enabled).filter(|&(_, &enabled)| enabled);
        let each = enabled.map(|(&period, _)| SHORTEST * ONE / period);
        (each.clone().sum(), each.max().unwrap_or(0))
    }

    fn assert_bearable(script: &Script, what: &str) {
        let (all, one) = expiries(script);
        let events = script.enabled.iter().filter(|&&enabled| enabled).count() as u64;
        assert!(events <= (MAX_COUNTERS + MAX_POOL) as u64);
        assert!(all <= MOST + events * LEAST && one <= ONE, "{what}: {events} events expire {all} times, one {one}");
    }

    fn spec(n: usize) -> Spec {
        PerfEvtSel::from_bits(0x53_0000 | n as u64).spec()
    }

    #[test]
    fn counters_near_their_tops_leave_the_thread_most_of_its_time() {
        for preset in ["recreate", "reuse", "reuse-lazy", "paused-flag", "pool", "gate", "virtual"] {
            let (mut bank, host) = clock(preset);
            let counters: Vec<_> = (0..MAX_COUNTERS).filter_map(CounterId::from_index).collect();
            for (n, &counter) in counters.iter().enumerate() {
                bank.start(counter, spec(n), 1 + n as u64);
                bank.on_entry(CounterSet::EMPTY);
            }
            assert_eq!(expiries(&host.0.borrow()).1, ONE, "the first has what the host bears");
            assert_bearable(&host.0.borrow(), preset);
            // The counter is turned off and on again, as by a handler, and moved.
            for &counter in &counters {
                bank.pause(counter);
                bank.stop(counter, true);
            }
            bank.on_entry(CounterSet::EMPTY);
            for (n, &counter) in counters.iter().enumerate() {
                bank.start(counter, spec(n), 3);
            }
            bank.on_entry(CounterSet::EMPTY);
            for &counter in &counters {
                bank.set_period(counter, 2);
            }
            assert_bearable(&host.0.borrow(), preset);
        }
    }

    #[test]
    fn one_counter_has_the_hosts_shortest_period_and_events_that_stop_themselves_need_no_bound() {
        for (stops, factors) in [(false, [1, 2, 4, 8, 16, 32, 32, 32]), (true, [1; 8])] {
            let (mut bank, host) = clock("deferred");
            host.0.borrow_mut().records = stops.then(Vec::new);
            for n in 0..factors.len() {
                bank.start(pmc(n), spec(n), 1);
            }
            assert_eq!(host.0.borrow().periods, factors.map(|factor| factor * SHORTEST));
        }
    }

    #[test]
    fn a_short_rest_is_no_period_to_go_on_with() {
        let (mut bank, host) = clock("virtual");
        for (period, answer) in [(1, AfterOverflow::Aim), (SOON * SHORTEST, AfterOverflow::Leave)] {
            bank.start(pmc(0), spec(0), period);
            bank.on_entry(CounterSet::EMPTY);
            assert_eq!(bank.overflowed(pmc(0), false), answer, "after {period}");
            bank.set_period(pmc(0), 1 << 47);
            assert_eq!((bank.overflowed(pmc(0), false), expiries(&host.0.borrow()).0), (AfterOverflow::Leave, 0));
            bank.pause(pmc(0));
            bank.stop(pmc(0), true);
        }
        // The host's events need no such care elsewhere.
        host.0.borrow_mut().shortest = 1;
        bank.start(pmc(0), spec(0), 1);
        assert_eq!(bank.overflowed(pmc(0), false), AfterOverflow::Leave);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Start { n: usize, spec: usize, period: u64 },
        Stop { n: usize, own_enable: bool },
        Move { n: usize, period: u64 },
        Signal { event: u64, after: u64 },
        Entry,
    }

    fn step() -> impl Strategy<Value = Step> {
        let n = 0..MAX_COUNTERS;
        let period = || (any::<u64>(), 1..40u32).prop_map(|(period, bits)| (period & ((1 << bits) - 1)) + 1);
        prop_oneof![
            4 => (n.clone(), 0..6usize, period()).prop_map(|(n, spec, period)| Step::Start { n, spec, period }),
            3 => (n.clone(), any::<bool>()).prop_map(|(n, own_enable)| Step::Stop { n, own_enable }),
            2 => (n, period()).prop_map(|(n, period)| Step::Move { n, period }),
            2 => (0..40u64, period()).prop_map(|(event, after)| Step::Signal { event, after }),
            2 => Just(Step::Entry),
        ]
    }

    proptest! {
        /// Whatever guest and signals do, the thread's events ask for no more than the bound.
        #[test]
        fn no_sequence_starves_the_thread(
            preset in prop::sample::select(vec!["recreate", "reuse", "reuse-lazy", "paused-flag", "pool", "gate", "virtual"]),
            steps in prop::collection::vec(step(), 0..120),
        ) {
            let (mut bank, host) = clock(preset);
            let mut on = CounterSet::EMPTY;
            for step in steps {
                match step {
                    Step::Start { n, spec: which, period } => {
                        let Some(counter) = CounterId::from_index(n) else { continue };
                        bank.pause(counter);
                        bank.start(counter, spec(which), period);
                        on.insert(counter);
                    }
                    Step::Stop { n, own_enable } => {
                        let Some(counter) = CounterId::from_index(n) else { continue };
                        bank.pause(counter);
                        bank.stop(counter, own_enable);
                        on.remove(counter);
                    }
                    Step::Move { n, period } => {
                        if let Some(counter) = CounterId::from_index(n).filter(|&counter| on.contains(counter)) {
                            bank.set_period(counter, period);
                        }
                    }
                    Step::Signal { event, after } => {
                        let count = {
                            let mut script = host.0.borrow_mut();
                            let Some(count) = script.counts.get_mut(event as usize) else { continue };
                            *count += after;
                            *count
                        };
                        host.0.borrow_mut().unreliable = vec![(event, count)];
                        for counter in bank.signalled().counters.and(on) {
                            bank.take(counter);
                            if bank.overflowed(counter, false) == AfterOverflow::Aim {
                                bank.take(counter);
                                bank.set_period(counter, 1 << 47);
                            }
                        }
                    }
                    Step::Entry => bank.on_entry(CounterSet::EMPTY),
                }
                assert_bearable(&host.0.borrow(), preset);
            }
        }
    }
}
