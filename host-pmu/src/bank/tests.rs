//! The bank over a scripted host, which logs every call.

use std::cell::Cell;

use arch_pmu::host::{AfterOverflow, HostCounters};
use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Source, Spec};
use proptest::prelude::*;

use super::{Bank, MOST_ENTRIES};
use crate::backend::model::{self, ModelBackend, Op};
use crate::backend::scheduling::Assignment;
use crate::backend::{Facts, HostError, Overflow};
use crate::side::HostPmu;
use crate::stats::OpKind;
use crate::strategy::{MAX_POOL, Reuse, Strategy};

/// A host without clocks or descriptors: it logs each call and counts as scripted.
#[derive(Debug, Default)]
struct Script {
    log: Vec<String>,
    /// The counts of all events that were opened.
    counts: Vec<u64>,
    now: Cell<u64>,
    sched_in: bool,
    refuse_open: bool,
    /// An event that is refused, among others that are not.
    refuse: Option<Spec>,
    refuse_period: bool,
    refuse_shut: bool,
    /// Counts can be looked at without a call.
    peeks: bool,
    /// Records of overflows; some are lost unless they are complete.
    records: Vec<(u64, u64)>,
    complete: bool,
    /// Time of those records.
    overflowed_at: Option<u64>,
}

/// The number of an event in the script, from 0, and its period.
#[derive(Debug)]
struct Count {
    number: usize,
    period: u64,
}

type Host = ModelBackend<Script>;
type Events = crate::backend::model::Events<Count>;

const REFUSED: HostError = HostError::Os { call: "scripted", errno: 22, remedy: "" };

impl model::Host for Script {
    type Count = Count;

    fn pay(&mut self, op: Op, _: &mut Events) -> Result<(), HostError> {
        self.log.push(match op {
            Op::Open { spec, .. } if self.refuse_open || self.refuse == Some(spec) => return Err(REFUSED),
            Op::ShutGate if self.refuse_shut => return Err(REFUSED),
            Op::Open { spec, period } => {
                format!("open {} {:#x} {period}", self.counts.len(), spec.raw_config().unwrap_or(0))
            }
            Op::Release(id) => format!("release {}", id - 1),
            Op::Pause(id) => format!("pause {}", id - 1),
            Op::Resume { id, .. } => format!("resume {}", id - 1),
            Op::Read(id) => format!("read {}", id - 1),
            Op::OpenGate => "open gate".to_owned(),
            Op::ShutGate => "shut gate".to_owned(),
            Op::LetIn | Op::Expiries(_) => return Ok(()),
        });
        Ok(())
    }

    fn open(&mut self, _: Spec, period: u64, _: &mut Events) -> Count {
        self.counts.push(0);
        Count { number: self.counts.len() - 1, period }
    }

    fn set_period(&mut self, at: usize, period: u64, events: &mut Events) -> Result<(), HostError> {
        let count = &mut events.table[at].count;
        self.log.push(format!("period {} {period}", count.number));
        if self.refuse_period {
            return Err(REFUSED);
        }
        count.period = period;
        Ok(())
    }

    fn count(&mut self, at: usize, events: &mut Events) -> u64 {
        self.counts[events.table[at].count.number]
    }

    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        let at = self.overflowed_at;
        self.records.drain(..).for_each(|(number, count)| visit(Overflow { id: number + 1, count, at }));
        self.complete
    }

    fn peek(&mut self, at: usize, events: &Events) -> Option<u64> {
        self.peeks.then(|| self.counts[events.table[at].count.number])
    }

    fn may_have_switched(&self) -> bool {
        self.sched_in
    }

    fn sched_in(&mut self) -> bool {
        std::mem::take(&mut self.sched_in)
    }

    fn now_ns(&self) -> u64 {
        self.now.set(self.now.get() + 1);
        self.now.get()
    }
}

impl Bank<Host> {
    /// Returns the script of its host.
    fn script(&mut self) -> &mut Script {
        &mut self.host.backend.host
    }

    /// Takes the calls since the last time.
    fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.script().log)
    }

    /// Starts counters, and enters the guest.
    fn on(&mut self, counters: impl IntoIterator<Item = (usize, Spec, u64)>) {
        counters.into_iter().for_each(|(n, spec, period)| self.start(pmc(n), spec, period));
        self.enters();
    }

    /// Turns a counter off, by its own enable or not.
    fn off(&mut self, n: usize, own_enable: bool) -> u64 {
        let gathered = self.pause(pmc(n));
        self.stop(pmc(n), own_enable);
        gathered
    }

    fn enters(&mut self) {
        self.on_entry(CounterSet::EMPTY);
    }

    /// Returns the account so far.
    fn counted(&mut self) -> counts::Counts {
        let mut counts = counts::Counts::default();
        self.account(&mut counts);
        counts
    }

    /// Takes their counters from all events, or leaves them theirs.
    fn lose(&mut self, lost: bool) {
        self.host.backend.set_others(lost.then(Assignment::default));
    }
}

fn bank_of(strategy: Strategy, gated: bool) -> Bank<Host> {
    Bank::new(ModelBackend::new(Script::default(), Facts { gate: gated, ..Facts::default() }, None), strategy)
}

/// Returns a bank whose host has no gate.
fn bank(preset: &str) -> Bank<Host> {
    bank_of(Strategy::preset(preset).unwrap(), false)
}

fn gate() -> Bank<Host> {
    bank_of(Strategy::preset("gate").unwrap(), true)
}

/// Returns a bank with a pool of this size.
fn pool(events: usize) -> Bank<Host> {
    bank_of(Strategy { reuse: Reuse::Pool(events), ..Strategy::preset("pool").unwrap() }, false)
}

fn pmc(n: usize) -> CounterId {
    CounterId::gp(n).unwrap()
}

const A: Spec = PerfEvtSel::from_bits(0x53_003c).spec();
const B: Spec = PerfEvtSel::from_bits(0x53_00c5).spec();
const C: Spec = PerfEvtSel::from_bits(0x53_00c0).spec();

#[test]
fn recreate_reads_and_closes_at_each_pause() {
    let mut bank = bank("recreate");
    bank.start(pmc(0), A, 100);
    bank.script().counts[0] = 7;
    assert_eq!(bank.pause(pmc(0)), 7);
    bank.start(pmc(0), A, 93);
    assert_eq!(bank.log(), ["open 0 0x3c 100", "read 0", "release 0", "open 1 0x3c 93"]);
    assert_eq!((bank.held(), bank.stats().counts.reused), (1, 0));
}

#[test]
fn reuse_resumes_its_last_event_with_the_new_period() {
    let mut bank = bank("reuse");
    bank.start(pmc(0), A, 100);
    bank.script().counts[0] = 7;
    assert_eq!(bank.pause(pmc(0)), 7);
    bank.stop(pmc(0), true);
    assert_eq!(bank.pause(pmc(0)), 0, "the count is handed over once");
    bank.start(pmc(0), A, 93);
    bank.script().counts[0] = 10;
    assert_eq!(bank.take(pmc(0)), 3);
    let log = bank.log();
    assert_eq!(log, ["open 0 0x3c 100", "pause 0", "pause 0", "period 0 93", "resume 0", "read 0"]);
}

#[test]
fn another_configuration_or_a_refused_period_is_a_miss() {
    let mut bank = bank("reuse");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.start(pmc(0), B, 100);
    assert_eq!(bank.log(), ["open 0 0x3c 100", "pause 0", "release 0", "open 1 0xc5 100"]);
    bank.pause(pmc(0));
    bank.script().refuse_period = true;
    bank.start(pmc(0), B, 50);
    assert_eq!(bank.log(), ["pause 1", "period 1 50", "release 1", "open 2 0xc5 50"]);
    assert_eq!(bank.stats().counts.refused_periods, 1);
}

#[test]
fn a_paused_event_is_not_paused_again_with_the_flag() {
    let mut bank = bank("paused-flag");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.pause(pmc(0));
    assert_eq!(bank.log(), ["open 0 0x3c 100", "pause 0"]);
}

#[test]
fn the_pool_serves_rotation_and_migration_without_opens() {
    let mut bank = bank("pool");
    for spec in [A, B] {
        bank.pause(pmc(0));
        bank.on([(0, spec, 100)]);
    }
    assert_eq!(bank.stats().ops.count(OpKind::Open), 2);
    bank.off(0, false);
    bank.start(pmc(3), A, 50);
    bank.start(pmc(0), B, 60);
    assert_eq!((bank.stats().ops.count(OpKind::Open), bank.stats().counts.reused, bank.held()), (2, 2, 2));
    assert!(bank.log().contains(&"period 0 50".to_owned()));
}

#[test]
fn the_pool_gives_back_the_least_recently_parked() {
    let mut bank = pool(2);
    for (n, spec) in [A, C, B].into_iter().enumerate() {
        bank.on([(n, spec, 10)]);
        bank.off(n, false);
    }
    assert_eq!(bank.held(), 2);
    assert_eq!(bank.log()[4..], ["release 0", "open 2 0xc5 10", "pause 2"]);
}

#[test]
fn a_pooled_event_ages_with_the_counter_that_it_served_last() {
    let mut bank = bank("pool");
    bank.on([(0, A, 100)]);
    bank.off(0, false);
    bank.start(pmc(1), A, 100);
    bank.off(1, false);
    bank.touch(pmc(1));
    bank.script().sched_in = true;
    bank.enters();
    assert_eq!(bank.held(), 1);
    bank.touch(pmc(0));
    bank.script().sched_in = true;
    bank.enters();
    assert_eq!(bank.held(), 0);
}

#[test]
fn a_rest_of_the_vcpu_ages_no_event() {
    let parked = |rest: bool| {
        let mut bank = parked("reuse-lazy");
        if rest {
            bank.rest();
        }
        bank.script().sched_in = true;
        if rest {
            bank.restart_account();
        }
        bank.enters();
        bank.held()
    };
    assert_eq!([parked(true), parked(false)], [1, 0]);
}

#[test]
fn a_failed_open_is_retried_and_a_lost_pinned_event_is_reported() {
    let mut bank = bank("reuse");
    let fixed = Spec(Source::Fixed { index: 0, control: 3 });
    bank.script().refuse_open = true;
    bank.start(pmc(0), fixed, 100);
    let counts = bank.stats().counts;
    assert_eq!((counts.failed_opens, counts.opens_fixed, bank.held()), (1, 1, 0));
    assert!(bank.stats().last_error.is_some());
    bank.script().refuse_open = false;
    for counter in bank.due() {
        bank.start(counter, fixed, 100);
    }
    assert_eq!((bank.take(pmc(0)), bank.held(), bank.stats().counts.opens_fixed), (0, 1, 2));
    bank.lose(true);
    assert_eq!(bank.take(pmc(0)), 0);
    assert_eq!((bank.stats().counts.pinned_errors, bank.held()), (1, 1));
    assert_eq!([(); 2].map(|()| bank.due().contains(pmc(0))), [false, true], "not at the same entry");
}

/// Starts a counter anew at each of so many entries at which it is due; returns those. `other` happens before each.
fn retried_at(
    bank: &mut Bank<Host>,
    entries: usize,
    spec: Spec,
    mut other: impl FnMut(&mut Bank<Host>, usize),
) -> Vec<usize> {
    let mut retried_at = Vec::new();
    for entry in 1..=entries {
        other(bank, entry);
        for counter in bank.due() {
            retried_at.push(entry);
            bank.pause(counter);
            bank.start(counter, spec, 100);
        }
    }
    retried_at
}

#[test]
fn pitfall_12_a_host_that_keeps_refusing_is_asked_ever_more_rarely() {
    for (lost, first) in [(false, [1, 3, 7, 15, 31]), (true, [2, 5, 10, 19, 36])] {
        let mut bank = bank("deferred");
        bank.script().refuse_open = !lost;
        bank.start(pmc(0), A, 100);
        bank.lose(lost);
        bank.take(pmc(0));
        let asked_at = retried_at(&mut bank, 5000, A, |_, _| ());
        assert_eq!(asked_at[..5], first, "after 1, 2, 4, 8, 16 entries, and one for a lost event");
        assert!(asked_at.len() < 16 && (!lost || bank.stats().ops.count(OpKind::Open) == 1), "{asked_at:?}");
        let entries = (0..2000).take_while(|_| bank.due().is_empty()).count();
        assert!(entries <= 1024 + 1, "never given up: asked again after {entries} entries");
    }
}

#[test]
fn pitfall_12_a_refused_counter_is_not_hurried_by_the_success_of_another() {
    let mut bank = bank("deferred");
    bank.script().refuse = Some(B);
    bank.start(pmc(0), B, 100);
    let asked_at = retried_at(&mut bank, 200, B, |bank, entry| {
        // Another counter gets an event at every entry.
        bank.pause(pmc(1));
        bank.start(pmc(1), if entry % 2 == 0 { A } else { C }, 100);
    });
    assert_eq!(asked_at, [1, 3, 7, 15, 31, 63, 127]);
}

#[test]
fn pitfall_12_a_lost_event_does_not_wait_for_a_refused_one() {
    let mut bank = bank("deferred");
    bank.start(pmc(1), A, 100);
    bank.script().refuse = Some(B);
    for _ in 0..5 {
        bank.start(pmc(0), B, 100);
    }
    bank.lose(true);
    bank.take(pmc(1));
    assert_eq!([(); 2].map(|()| bank.due()), [counters([]), counters([1])]);
}

#[test]
fn pitfall_12_another_event_of_a_refused_counter_begins_anew() {
    let mut bank = bank("deferred");
    bank.script().refuse_open = true;
    for _ in 0..5 {
        bank.start(pmc(0), A, 100);
    }
    bank.start(pmc(0), B, 100);
    assert!(bank.due().contains(pmc(0)), "after one entry");
}

#[test]
fn pitfall_18_no_period_is_set_for_an_event_that_does_not_sample() {
    let mut bank = bank("reuse");
    let txcp = PerfEvtSel::from_bits(0x2_0053_003c).spec();
    bank.start(pmc(2), txcp, 100);
    bank.set_period(pmc(2), 50);
    bank.pause(pmc(2));
    bank.start(pmc(2), txcp, 40);
    assert!(bank.log().iter().all(|line| !line.starts_with("period")));
    assert_eq!(bank.stats().counts.reused, 1);
}

#[test]
fn pitfall_22_a_lost_pinned_event_is_reported_and_enabled_again() {
    let mut bank = bank("deferred");
    bank.start(pmc(0), A, 100);
    assert_eq!(bank.counted().pinned_errors, 0);
    bank.lose(true);
    // A guest that waits for its overflow looks at nothing.
    assert_eq!([(); 2].map(|()| bank.counted().pinned_errors), [1, 1], "once");
    assert_eq!((bank.pause(pmc(0)), bank.held()), (0, 1), "a count that is not known is not made up");
    bank.log();
    bank.start(pmc(0), A, 100);
    assert_eq!(bank.log(), ["period 0 100", "resume 0", "read 0"]);
    assert_eq!((bank.stats().counts.pinned_errors, &bank.stats().last_error), (2, &Some(HostError::PinnedLost)));
    // It counted 30 before it was lost: its counter overflows as much sooner.
    bank.lose(false);
    bank.script().counts[0] = 30;
    bank.pause(pmc(0));
    bank.start(pmc(0), A, 100);
    assert_eq!(bank.log(), ["period 0 100", "resume 0", "read 0", "period 0 70"]);
    assert_eq!((bank.take(pmc(0)), bank.stats().ops.count(OpKind::Open)), (30, 1));
}

#[test]
fn the_lost_event_of_a_counter_that_is_off_makes_room() {
    let mut bank = pool(1);
    bank.on([(0, A, 100)]);
    bank.lose(true);
    bank.take(pmc(0));
    bank.off(0, true);
    // It is off: its event makes room for another counter's.
    bank.on([(1, B, 100)]);
    assert_eq!(bank.log()[1..], ["read 0", "release 0", "open 1 0xc5 100"]);
}

#[test]
fn counts_before_a_loss_are_not_those_of_a_counter_that_was_written_since() {
    let mut bank = bank("deferred");
    bank.start(pmc(0), A, 100);
    bank.lose(true);
    bank.pause(pmc(0));
    bank.touch(pmc(0));
    bank.lose(false);
    bank.script().counts[0] = 30;
    bank.start(pmc(0), A, 100);
    assert_eq!(bank.take(pmc(0)), 0);
}

#[test]
fn a_gate_that_the_host_does_not_shut_has_lost_no_counters() {
    let mut bank = gate();
    bank.on([(0, A, 100)]);
    bank.script().refuse_shut = true;
    assert_eq!(bank.pause(pmc(0)), 0);
    assert_eq!((bank.counted().pinned_errors, &bank.stats().last_error), (0, &Some(REFUSED)));
}

#[test]
fn a_gate_that_fails_hands_over_its_counts_and_is_left() {
    let mut bank = gate();
    bank.on([(0, A, 100), (1, B, 100)]);
    bank.script().counts = vec![30, 40];
    bank.lose(true);
    assert_eq!((bank.counted().pinned_errors, &bank.stats().last_error), (1, &Some(HostError::GateTooLarge)));
    let due = bank.due();
    assert_eq!(due, counters([0, 1]));
    assert_eq!([bank.pause(pmc(0)), bank.pause(pmc(1))], [30, 40]);
    bank.lose(false);
    bank.on([(0, A, 70), (1, B, 70)]);
    bank.log();
    bank.off(0, true);
    assert_eq!((bank.log(), bank.held()), (vec!["pause 2".to_owned()], 2), "single events");
    // The next turn's account does not contain the failure, but its arm is no gate.
    bank.restart_account();
    let counts = bank.counted();
    assert_eq!((counts.pinned_errors, counts.ungated), (0, 1));
}

/// Turns all counters off and on again, as a guest's handler does.
fn off_and_on(bank: &mut Bank<Host>, counters: &[(usize, Spec, u64)]) {
    for &(n, ..) in counters {
        bank.off(n, true);
    }
    bank.enters();
    bank.on(counters.iter().copied());
}

#[test]
fn behind_a_gate_off_and_on_are_two_calls_whatever_the_number_of_counters() {
    let mut bank = gate();
    bank.on([(0, A, 100), (1, B, 100)]);
    bank.log();
    bank.script().counts = vec![30, 100];
    off_and_on(&mut bank, &[(0, A, 70), (1, B, 55)]);
    assert_eq!(bank.log(), ["shut gate", "period 1 55", "open gate"], "only what overflowed has a new period");
    assert_eq!((bank.stats().ops.count(OpKind::Pause), bank.stats().ops.count(OpKind::Resume)), (1, 2));
    // One counter goes off by itself, and on again: the gate stays open for the other.
    bank.script().counts = vec![33, 100];
    bank.changing(counters([0]));
    assert_eq!(bank.off(0, true), 3);
    bank.enters();
    bank.on([(0, A, 67)]);
    assert_eq!(bank.log(), ["pause 0", "resume 0"]);
    // So do two that go off and on one after the other; together they shut it.
    for n in [0, 1] {
        bank.changing(counters([n]));
        bank.off(n, true);
        bank.enters();
    }
    bank.on([(0, A, 67)]);
    bank.on([(1, B, 55)]);
    assert_eq!(bank.log(), ["pause 0", "pause 1", "resume 0", "resume 1"]);
    bank.changing(CounterSet::ALL);
    off_and_on(&mut bank, &[(0, A, 67), (1, B, 55)]);
    assert_eq!(bank.log(), ["shut gate", "open gate"]);
}

#[test]
fn a_pool_opens_events_after_every_counter_took_what_is_parked() {
    let mut bank = pool(2);
    bank.on([(0, A, 100), (1, B, 100)]);
    for n in 0..2 {
        bank.off(n, false);
    }
    bank.log();
    // The first counter wants an event that is not there; the second the one that the first once had.
    bank.on([(0, C, 100), (1, A, 100)]);
    let log = bank.log();
    assert_eq!(log, ["period 0 100", "resume 0", "release 1", "open 2 0xc0 100"], "the event nobody wanted gave way");
    assert_eq!((bank.held(), bank.stats().counts.held_max), (2, 2));
}

#[test]
fn among_lost_records_the_last_one_left_is_not_taken_for_the_count() {
    let mut bank = bank("gate");
    bank.on([(0, A, 100)]);
    bank.script().counts = vec![230];
    bank.script().records = vec![(0, 110)];
    assert!(bank.signalled().certain, "an event that goes on is aimed anew");
    assert_eq!(bank.take(pmc(0)), 230, "read, not from the record");
}

#[test]
fn after_an_early_signal_of_a_counter_that_is_off_its_period_is_set_anew() {
    for complete in [true, false] {
        let mut bank = bank("gate");
        bank.on([(0, A, 100)]);
        bank.script().counts = vec![98];
        bank.script().complete = complete;
        if complete {
            bank.script().records = vec![(0, 98)];
        }
        // Off before the kick: perf began the period anew at 98.
        bank.off(0, true);
        bank.signalled();
        bank.log();
        bank.start(pmc(0), A, 2);
        assert!(bank.log().contains(&"period 0 2".to_owned()), "the same aim is not the same period");
    }
}

fn counters(of: impl IntoIterator<Item = usize>) -> CounterSet {
    of.into_iter().map(pmc).collect()
}

const SHORTEST: u64 = 50_000;

/// Returns a bank on a clock that bears a signal every [`SHORTEST`].
fn clock(preset: &str) -> Bank<Host> {
    let mut bank = bank_of(Strategy::preset(preset).unwrap(), preset == "gate");
    let facts = &mut bank.backend().facts;
    (facts.shortest_period, facts.one_pace, facts.virtual_pauses) = (SHORTEST, true, preset == "virtual");
    (bank.script().complete, bank.script().peeks) = (true, true);
    bank
}

#[test]
fn clocks_of_a_thread_leave_it_most_of_its_time() {
    let mut bank = clock("deferred");
    for n in 0..8 {
        bank.start(pmc(n), A, 1);
    }
    let periods: Vec<u64> = bank.host.backend.events.iter().map(|event| event.count.period).collect();
    assert_eq!(periods, [1, 2, 4, 8, 16, 32, 32, 32].map(|factor| factor * SHORTEST));
}

#[test]
fn a_short_rest_is_no_period_to_go_on_with() {
    let mut bank = clock("virtual");
    for (period, answer) in [(1, AfterOverflow::Aim), (4 * SHORTEST, AfterOverflow::Leave)] {
        bank.on([(0, A, period)]);
        assert_eq!(bank.overflowed(pmc(0), false), answer, "after {period}");
        bank.set_period(pmc(0), 1 << 47);
        assert_eq!(bank.overflowed(pmc(0), false), AfterOverflow::Leave);
        bank.off(0, true);
    }
    // Other hosts' events need no such care.
    bank.backend().facts.shortest_period = 1;
    bank.start(pmc(0), A, 1);
    assert_eq!(bank.overflowed(pmc(0), false), AfterOverflow::Leave);
}

proptest! {
    /// Whatever guest and signals do, the events of a thread expire at most twice in the host's shortest period, and each
    /// once in 32 such periods beyond that.
    #[test]
    fn no_sequence_starves_the_thread(
        preset in prop::sample::select(vec!["recreate", "reuse", "reuse-lazy", "paused-flag", "pool", "gate", "virtual"]),
        steps in prop::collection::vec((0..13u8, 0..40usize, 0..6u64, any::<u64>(), 1..40u32), 0..120),
    ) {
        let mut bank = clock(preset);
        let mut on = CounterSet::EMPTY;
        for (kind, n, spec, period, bits) in steps {
            let period = (period & ((1 << bits) - 1)) + 1;
            match (kind, CounterId::from_index(n % MAX_COUNTERS)) {
                (0..4, Some(counter)) => {
                    bank.pause(counter);
                    bank.start(counter, PerfEvtSel::from_bits(0x53_0000 | spec).spec(), period);
                    on.insert(counter);
                }
                (4..7, Some(counter)) => {
                    bank.pause(counter);
                    bank.stop(counter, spec % 2 == 0);
                    on.remove(counter);
                }
                (7..9, Some(counter)) if on.contains(counter) => bank.set_period(counter, period),
                (9..11, _) if n < bank.script().counts.len() => {
                    bank.script().counts[n] += period;
                    bank.script().records = vec![(n as u64, bank.script().counts[n])];
                    for counter in bank.signalled().counters.and(on) {
                        bank.take(counter);
                        if bank.overflowed(counter, false) == AfterOverflow::Aim {
                            bank.take(counter);
                            bank.set_period(counter, 1 << 47);
                        }
                    }
                }
                _ => bank.enters(),
            }
            let events = &bank.host.backend.events;
            let shares = || events.iter().filter(|event| event.enabled).map(|event| 1024 * SHORTEST / event.count.period);
            let (all, events) = (shares().sum::<u64>(), shares().count());
            prop_assert!(events <= MAX_COUNTERS + MAX_POOL);
            prop_assert!(all <= 2 * 1024 + 32 * events as u64 && shares().all(|one| one <= 1024), "{} of {}", all, events);
        }
    }
}

/// Returns a bank with a parked event, and nothing due.
fn parked(preset: &str) -> Bank<Host> {
    let mut bank = if preset == "gate" { gate() } else { bank(preset) };
    bank.on([(0, A, 100)]);
    bank.off(0, true);
    bank.enters();
    bank
}

#[test]
fn an_entry_with_something_due_is_not_passed() {
    for preset in ["reuse-lazy", "gate", "deferred"] {
        let mut bank = parked(preset);
        let entries = bank.stats().counts.entries;
        assert!(bank.passes_entry() && bank.passes_entry());
        assert_eq!(bank.stats().counts.entries, entries + 2, "it is counted");
        bank.script().sched_in = true;
        assert!(!bank.passes_entry() && !bank.passes_entry(), "a slice, which asking takes from nobody");
        bank.enters();
        assert_eq!((bank.stats().counts.sched_ins, bank.passes_entry()), (1, true), "{preset}");
        bank.start(pmc(0), A, 100);
        assert_eq!(bank.passes_entry(), preset != "gate" && bank.held() > 0, "{preset}: a counter that started");
    }
    let mut bank = parked("reuse");
    bank.script().sched_in = true;
    assert!(bank.passes_entry(), "no slice makes it release");
    bank.script().refuse_open = true;
    bank.start(pmc(1), A, 100);
    assert!(!bank.passes_entry(), "an open to try again");
}

#[test]
fn an_overflow_is_seen_by_the_return_after_it_else_by_the_look() {
    let mut bank = bank("reuse");
    let latencies = |bank: &Bank<Host>| {
        let all = bank.stats().signal_ns.histogram();
        (all.len(), all.iter_recorded().map(|step| step.value_iterated_to()).collect::<Vec<_>>())
    };
    bank.host.stats.overflowed(900);
    bank.host.stats.overflowed(980);
    for _ in 0..2 {
        bank.script().now.set(999);
        bank.saw_signals(50);
        assert_eq!(latencies(&bank), (2, vec![20, 50]), "seen at 1000, and by the return at 950; each once");
    }
    (0..100).for_each(|at| bank.host.stats.overflowed(at));
    bank.saw_signals(0);
    assert_eq!(latencies(&bank).0, 2 + 32, "those beyond the room are left out");
}

#[test]
fn each_number_of_events_counts_as_long_as_it_lasts() {
    let mut bank = bank("recreate");
    bank.start(pmc(0), A, 100);
    let began = bank.stats().last_op_ns;
    bank.script().now.set(1000);
    bank.start(pmc(1), A, 100);
    let second = bank.stats().last_op_ns;
    bank.script().now.set(2000);
    let until = |now| second - began + 2 * (now - second);
    assert_eq!([(); 2].map(|()| bank.counted().held_ns), [until(2001), until(2002)]);
    bank.script().now.set(2999);
    bank.restart_account();
    bank.script().now.set(3099);
    assert_eq!(bank.counted().held_ns, 200);
}

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
        bank.on([(0, A, 100)]);
        bank.script().complete = true;
        bank.signalled();
        // It comes as the turn ends: its signal is taken with the next turn.
        overflows(&mut bank, 107);
        if begin {
            bank.restart_account();
        } else {
            bank.counted();
        }
        assert!(bank.script().records.is_empty() && !bank.nothing_overflowed());
        assert_eq!((bank.signalled().counters, bank.take(pmc(0))), (counters([0]), 107));
    }
}

#[test]
fn a_signal_of_another_user_touches_no_event() {
    let mut bank = bank("gate");
    bank.on([(0, A, 100)]);
    bank.log();
    assert!(!bank.nothing_overflowed(), "records that are not complete prove nothing");
    bank.script().complete = true;
    bank.signalled();
    assert!(bank.nothing_overflowed() && bank.log().is_empty());
    overflows(&mut bank, 107);
    assert!(!bank.nothing_overflowed(), "one came with it");
    assert_eq!((bank.signalled().counters, bank.take(pmc(0))), (counters([0]), 107), "and is not forgotten");
    // A kick takes its record without a look, and the rest is read.
    overflows(&mut bank, 111);
    bank.log();
    bank.signalled();
    assert_eq!((bank.take(pmc(0)), bank.log().len()), (0, 0));
    assert_eq!((bank.take(pmc(0)), bank.log()), (4, vec!["read 0".to_owned()]));
}

/// Starts counters with a period of 100, behind events whose counts can be looked at.
fn running(specs: &[Spec]) -> Bank<Host> {
    let mut bank = bank("virtual");
    bank.backend().facts = Facts { virtual_pauses: true, one_pace: true, ..Facts::default() };
    (bank.script().peeks, bank.script().complete) = (true, true);
    bank.on(specs.iter().enumerate().map(|(n, &spec)| (n, spec, 100)));
    bank.log();
    bank
}

fn count(bank: &mut Bank<Host>, counts: &[u64]) {
    bank.script().counts.copy_from_slice(counts);
}

/// Has event `id` signal at `count`, and takes the kick.
fn signal(bank: &mut Bank<Host>, id: u64, count: u64) -> CounterSet {
    bank.script().records = vec![(id, count)];
    bank.signalled().counters
}

#[test]
fn a_record_of_an_event_whose_counter_is_off_is_no_overflow_that_a_signal_was_for() {
    let mut bank = running(&[A, B]);
    bank.script().overflowed_at = Some(7);
    bank.off(0, true);
    bank.script().records = vec![(0, 100)];
    bank.signalled();
    assert!(bank.host.stats.overflowed_at.is_empty());
    bank.script().records = vec![(1, 100)];
    bank.signalled();
    assert_eq!(bank.host.stats.overflowed_at, [7]);
}

#[test]
fn a_pmi_of_one_counter_is_one_host_call_and_no_count_is_lost() {
    let mut bank = running(&[A]);
    let mut seen = 0;
    for pmi in 1..=3u64 {
        // It overflows; the guest counts 7 more, is in its handler for 40, and starts the counter again.
        let overflow = 140 * (pmi - 1) + if pmi == 1 { 100 } else { 107 };
        count(&mut bank, &[overflow]);
        assert!(signal(&mut bank, 0, overflow).contains(pmc(0)));
        seen += bank.take(pmc(0));
        bank.enters();
        count(&mut bank, &[overflow + 7]);
        seen += bank.off(0, true);
        bank.enters();
        count(&mut bank, &[overflow + 47]);
        bank.on([(0, A, 93)]);
        assert_eq!(bank.log(), ["period 0 93"], "PMI {pmi}");
        assert_eq!(seen, overflow + 7 - 40 * (pmi - 1), "the handlers' own counts are left out");
    }
    assert_eq!((bank.stats().ops.count(OpKind::Read), bank.stats().counts.pinned_errors), (0, 0));
}

#[test]
fn of_many_counters_the_next_to_signal_is_aimed_and_the_others_wait() {
    let mut bank = running(&[A, B]);
    // A handler of 5 begins at 20; counter 1 is written, and overflows first.
    count(&mut bank, &[20, 20]);
    assert_eq!([bank.off(0, true), bank.off(1, true)], [20, 20]);
    count(&mut bank, &[25, 25]);
    bank.on([(0, A, 80), (1, B, 10)]);
    assert_eq!(bank.log(), ["period 1 10"], "what signals five counts early comes after it");
    // Its signal; the guest lets counter 1 count on to something far away, and counter 0 is next.
    count(&mut bank, &[35, 35]);
    signal(&mut bank, 1, 35);
    assert_eq!([bank.off(0, true), bank.off(1, true)], [10, 10]);
    bank.on([(0, A, 70), (1, B, 1000)]);
    assert_eq!(bank.log(), ["period 1 1000", "period 0 70"]);
}

#[test]
fn a_pause_that_lasts_becomes_a_real_one_and_what_was_counted_until_then_is_left_out() {
    let mut bank = running(&[A]);
    count(&mut bank, &[20]);
    assert_eq!(bank.off(0, true), 20);
    count(&mut bank, &[50]);
    bank.enters();
    let mut entries = 1;
    while bank.passes(false) && entries <= MOST_ENTRIES {
        entries += 1;
    }
    assert!(bank.log().is_empty());
    assert_eq!(entries, MOST_ENTRIES, "the next entry ends the pause");
    bank.enters();
    assert_eq!(bank.log(), ["pause 0"]);
    assert!(bank.passes(false));
    bank.on([(0, A, 80)]);
    assert_eq!(bank.log(), ["resume 0", "period 0 80"]);
    count(&mut bank, &[60]);
    assert_eq!(bank.take(pmc(0)), 10);
}

#[test]
fn an_event_of_a_counter_that_is_off_is_paused_when_others_go_on_or_it_signals_twice() {
    let mut bank = running(&[A, B]);
    assert_eq!([bank.off(0, true), bank.off(1, true)], [0, 0]);
    bank.enters();
    for (at, log) in [(100, 0), (200, 1)] {
        assert_eq!(signal(&mut bank, 0, at), CounterSet::EMPTY);
        bank.enters();
        assert_eq!(bank.log().len(), log, "after the signal at {at}");
    }
    bank.on([(0, A, 100)]);
    assert_eq!(bank.log(), ["period 0 100", "pause 1", "resume 0"]);
    // An event taken from the pool is treated likewise.
    bank.off(0, false);
    bank.on([(1, B, 100)]);
    assert_eq!(bank.log(), ["pause 0", "resume 1"], "its period had not begun");
}

#[test]
fn without_a_look_events_are_read() {
    let mut bank = running(&[A]);
    bank.script().peeks = false;
    count(&mut bank, &[30]);
    assert_eq!(bank.off(0, true), 30);
    count(&mut bank, &[40]);
    bank.on([(0, A, 70)]);
    assert_eq!(bank.log(), ["read 0", "read 0", "period 0 70"]);
}

#[test]
fn a_retry_ends_the_pauses_of_others() {
    let mut bank = running(&[A, B]);
    assert_eq!([bank.off(0, true), bank.off(1, true)], [0, 0]);
    bank.enters();
    assert!(bank.passes(false) && bank.log().is_empty());
    // The host lost an event, which a look at its count shows.
    bank.retry(pmc(0));
    bank.enters();
    assert_eq!(bank.log(), ["pause 0", "pause 1"]);
}

#[test]
fn a_pause_ends_in_time_whatever_account_it_began_in() {
    let mut bank = running(&[A]);
    (0..100).for_each(|_| bank.enters());
    bank.off(0, true);
    bank.enters();
    HostPmu::restart_account(&mut bank);
    bank.log();
    (0..=MOST_ENTRIES).for_each(|_| bank.enters());
    assert_eq!(bank.log(), ["pause 0"]);
}

#[test]
fn a_lost_event_is_found_by_a_signal_of_none() {
    let mut bank = running(&[A]);
    bank.lose(true);
    assert_eq!(bank.signalled().counters, CounterSet::EMPTY);
    assert_eq!((bank.stats().counts.pinned_errors, bank.held()), (1, 1));
    assert_eq!([(); 2].map(|()| bank.due().contains(pmc(0))), [false, true], "not at the same entry");
}
