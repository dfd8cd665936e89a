//! The bank over a scripted host, which logs every call.

use std::cell::RefCell;
use std::rc::Rc;

use arch_pmu::host::{AfterOverflow, HostCounters};
use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Source, Spec};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::Bank;
use crate::backend::{Backend, HostError, Overflow};
use crate::side::HostPmu;
use crate::stats::OpKind;
use crate::strategy::{MAX_POOL, Reuse, Strategy};

/// A host without clocks or descriptors: it logs each call and counts as scripted.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) log: Vec<String>,
    pub(super) counts: Vec<u64>,
    pub(super) open: Vec<usize>,
    pub(super) now: u64,
    pub(super) sched_in: bool,
    pub(super) refuse_open: bool,
    /// An event that is refused, among others that are not.
    pub(super) refuse: Option<Spec>,
    pub(super) refuse_period: bool,
    pub(super) lost: bool,
    pub(super) gated: bool,
    /// Its events go on while their counters are off; whether their counts can be looked at without a call.
    pub(super) goes_on: bool,
    pub(super) peeks: bool,
    pub(super) one_pace: bool,
    /// Its shortest period, if it has one.
    pub(super) shortest: u64,
    /// The period of each event, while it is enabled.
    pub(super) periods: Vec<u64>,
    pub(super) enabled: Vec<bool>,
    /// Records of overflows; some are lost unless they are complete.
    pub(super) records: Vec<(u64, u64)>,
    pub(super) complete: bool,
    /// Time of those records.
    pub(super) overflowed_at: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Host(pub(super) Rc<RefCell<Script>>);

pub(super) const REFUSED: HostError = HostError::Os { call: "scripted", errno: 22, remedy: "" };

impl Backend for Host {
    type Event = usize;

    fn open(&mut self, spec: Spec, period: u64) -> Result<usize, HostError> {
        let mut s = self.0.borrow_mut();
        if s.refuse_open || s.refuse == Some(spec) {
            return Err(REFUSED);
        }
        let id = s.counts.len();
        s.counts.push(0);
        s.periods.push(period);
        s.enabled.push(true);
        s.open.push(id);
        s.log.push(format!("open {id} {:#x} {period}", spec.raw_config().unwrap_or(0)));
        Ok(id)
    }

    fn release(&mut self, event: usize) {
        let mut s = self.0.borrow_mut();
        assert!(s.open.contains(&event), "released twice");
        s.open.retain(|&id| id != event);
        s.enabled[event] = false;
        s.log.push(format!("release {event}"));
    }

    fn pause(&mut self, event: &mut usize) -> Result<u64, HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push(format!("pause {event}"));
        s.enabled[*event] = false;
        if s.lost { Err(HostError::PinnedLost) } else { Ok(s.counts[*event]) }
    }

    fn resume(&mut self, event: &mut usize) -> Result<(), HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push(format!("resume {event}"));
        s.enabled[*event] = true;
        Ok(())
    }

    fn set_period(&mut self, event: &mut usize, period: u64) -> Result<(), HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push(format!("period {event} {period}"));
        if s.refuse_period {
            return Err(REFUSED);
        }
        s.periods[*event] = period;
        Ok(())
    }

    fn read(&mut self, event: &mut usize) -> Result<u64, HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push(format!("read {event}"));
        // Behind a gate the leader alone is in error state.
        if s.lost && !s.gated { Err(HostError::PinnedLost) } else { Ok(s.counts[*event]) }
    }

    fn is_lost(&self, _event: &usize) -> bool {
        self.0.borrow().lost && !self.has_gate()
    }

    fn is_gate_lost(&self) -> bool {
        self.0.borrow().lost && self.has_gate()
    }

    fn id(&self, event: &usize) -> u64 {
        *event as u64
    }

    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        let mut s = self.0.borrow_mut();
        let at = s.overflowed_at;
        s.records.drain(..).for_each(|(id, count)| visit(Overflow { id, count, at }));
        s.complete
    }

    fn pauses_virtually(&self) -> bool {
        self.0.borrow().goes_on
    }

    fn peek(&mut self, event: &usize) -> Option<u64> {
        let s = self.0.borrow();
        (s.peeks && !s.lost).then(|| s.counts[*event])
    }

    fn counts_at_one_pace(&self) -> bool {
        self.0.borrow().one_pace
    }

    fn shortest_period(&self) -> u64 {
        self.0.borrow().shortest.max(1)
    }

    fn has_gate(&self) -> bool {
        self.0.borrow().gated
    }

    fn open_gate(&mut self) -> Result<(), HostError> {
        self.0.borrow_mut().log.push("open gate".to_owned());
        Ok(())
    }

    fn shut_gate(&mut self, visit: &mut dyn FnMut(u64, u64)) -> Result<(), HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push("shut gate".to_owned());
        for &id in &s.open {
            visit(id as u64, s.counts[id]);
        }
        Ok(())
    }

    fn leave_gate(&mut self) {
        self.0.borrow_mut().gated = false;
    }

    fn may_have_switched(&self) -> bool {
        self.0.borrow().sched_in
    }

    fn sched_in(&mut self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().sched_in)
    }

    fn now_ns(&self) -> u64 {
        let mut s = self.0.borrow_mut();
        s.now += 1;
        s.now
    }
}

impl Host {
    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }

    pub(super) fn slice(&self) {
        self.0.borrow_mut().sched_in = true;
    }
}

pub(super) fn bank(preset: &str) -> (Bank<Host>, Host) {
    let host = Host::default();
    (Bank::new(host.clone(), Strategy::preset(preset).unwrap()), host)
}

pub(super) fn pmc(n: usize) -> CounterId {
    CounterId::gp(n).unwrap()
}

pub(super) const A: Spec = PerfEvtSel::from_bits(0x53_003c).spec();
pub(super) const B: Spec = PerfEvtSel::from_bits(0x53_00c5).spec();

#[test]
fn recreate_reads_and_closes_at_each_pause() {
    let (mut bank, host) = bank("recreate");
    bank.start(pmc(0), A, 100);
    host.0.borrow_mut().counts[0] = 7;
    assert_eq!(bank.pause(pmc(0)), 7);
    bank.start(pmc(0), A, 93);
    assert_eq!(host.log(), ["open 0 0x3c 100", "read 0", "release 0", "open 1 0x3c 93"]);
    assert_eq!((bank.held(), bank.stats().counts.reused), (1, 0));
}

#[test]
fn reuse_resumes_its_last_event_with_the_new_period() {
    let (mut bank, host) = bank("reuse");
    bank.start(pmc(0), A, 100);
    host.0.borrow_mut().counts[0] = 7;
    assert_eq!(bank.pause(pmc(0)), 7);
    bank.stop(pmc(0), true);
    assert_eq!(bank.pause(pmc(0)), 0, "the count is handed over once");
    bank.start(pmc(0), A, 93);
    host.0.borrow_mut().counts[0] = 10;
    assert_eq!(bank.take(pmc(0)), 3);
    let log = host.log();
    assert_eq!(log, ["open 0 0x3c 100", "pause 0", "pause 0", "period 0 93", "resume 0", "read 0"]);
}

#[test]
fn another_configuration_or_a_refused_period_is_a_miss() {
    let (mut bank, host) = bank("reuse");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.start(pmc(0), B, 100);
    assert_eq!(host.log(), ["open 0 0x3c 100", "pause 0", "release 0", "open 1 0xc5 100"]);
    bank.pause(pmc(0));
    host.0.borrow_mut().refuse_period = true;
    bank.start(pmc(0), B, 50);
    assert_eq!(host.log(), ["pause 1", "period 1 50", "release 1", "open 2 0xc5 50"]);
    assert_eq!(bank.stats().counts.refused_periods, 1);
}

#[test]
fn a_paused_event_is_not_paused_again_with_the_flag() {
    let (mut bank, host) = bank("paused-flag");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.pause(pmc(0));
    assert_eq!(host.log(), ["open 0 0x3c 100", "pause 0"]);
}

#[test]
fn the_pool_serves_rotation_and_migration_without_opens() {
    let (mut bank, host) = bank("pool");
    for spec in [A, B] {
        bank.pause(pmc(0));
        bank.start(pmc(0), spec, 100);
        bank.on_entry(CounterSet::EMPTY);
    }
    assert_eq!(bank.stats().ops.count(OpKind::Open), 2);
    bank.pause(pmc(0));
    bank.stop(pmc(0), false);
    bank.start(pmc(3), A, 50);
    bank.start(pmc(0), B, 60);
    assert_eq!((bank.stats().ops.count(OpKind::Open), bank.stats().counts.reused, bank.held()), (2, 2, 2));
    assert!(host.log().contains(&"period 0 50".to_owned()));
}

#[test]
fn the_pool_gives_back_the_least_recently_parked() {
    let host = Host::default();
    let strategy = Strategy { reuse: Reuse::Pool(2), ..Strategy::preset("pool").unwrap() };
    let mut bank = Bank::new(host.clone(), strategy);
    for (n, event) in [0x3c, 0xc0, 0xc5].into_iter().enumerate() {
        bank.start(pmc(n), PerfEvtSel::from_bits(event).spec(), 10);
        bank.on_entry(CounterSet::EMPTY);
        bank.pause(pmc(n));
        bank.stop(pmc(n), false);
    }
    assert_eq!(bank.held(), 2);
    assert_eq!(host.log()[4..], ["release 0", "open 2 0xc5 10", "pause 2"]);
}

#[test]
fn a_pooled_event_ages_with_the_counter_that_it_served_last() {
    let (mut bank, host) = bank("pool");
    bank.start(pmc(0), A, 100);
    bank.on_entry(CounterSet::EMPTY);
    bank.pause(pmc(0));
    bank.stop(pmc(0), false);
    bank.start(pmc(1), A, 100);
    bank.pause(pmc(1));
    bank.stop(pmc(1), false);
    bank.touch(pmc(1));
    host.slice();
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(bank.held(), 1);
    bank.touch(pmc(0));
    host.slice();
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(bank.held(), 0);
}

#[test]
fn a_rest_of_the_vcpu_ages_no_event() {
    let parked = |rest: bool| {
        let (mut bank, host) = bank("reuse-lazy");
        bank.start(pmc(0), A, 10);
        bank.on_entry(CounterSet::EMPTY);
        bank.pause(pmc(0));
        bank.stop(pmc(0), true);
        if rest {
            bank.rest();
        }
        host.slice();
        if rest {
            bank.restart_account();
        }
        bank.on_entry(CounterSet::EMPTY);
        bank.held()
    };
    assert_eq!([parked(true), parked(false)], [1, 0]);
}

#[test]
fn a_failed_open_is_retried_and_a_lost_pinned_event_is_reported() {
    let (mut bank, host) = bank("reuse");
    let fixed = Spec(Source::Fixed { index: 0, control: 3 });
    host.0.borrow_mut().refuse_open = true;
    bank.start(pmc(0), fixed, 100);
    let counts = bank.stats().counts;
    assert_eq!((counts.failed_opens, counts.opens_fixed, bank.held()), (1, 1, 0));
    assert!(bank.stats().last_error.is_some());
    host.0.borrow_mut().refuse_open = false;
    for counter in bank.take_retries() {
        bank.start(counter, fixed, 100);
    }
    assert_eq!((bank.take(pmc(0)), bank.held(), bank.stats().counts.opens_fixed), (0, 1, 2));
    host.0.borrow_mut().lost = true;
    assert_eq!(bank.take(pmc(0)), 0);
    assert_eq!((bank.stats().counts.pinned_errors, bank.held()), (1, 1));
    assert_eq!([(); 2].map(|()| bank.take_retries().contains(pmc(0))), [false, true], "not at the same entry");
}

#[test]
fn pitfall_12_a_host_that_keeps_refusing_is_asked_ever_more_rarely() {
    let (mut bank, host) = bank("deferred");
    host.0.borrow_mut().refuse_open = true;
    bank.start(pmc(0), A, 100);
    let mut asked_at = Vec::new();
    for entry in 1..=5000 {
        for counter in bank.take_retries() {
            asked_at.push(entry);
            bank.start(counter, A, 100);
        }
    }
    assert_eq!(asked_at[..5], [1, 3, 7, 15, 31], "after 1, 2, 4, 8, 16 entries");
    assert!(asked_at.len() < 16, "{asked_at:?}");
    host.0.borrow_mut().refuse_open = false;
    let entries = (0..2000).take_while(|_| bank.take_retries().is_empty()).count();
    assert!(entries <= 1024, "never given up: asked again after {entries} entries");
}

#[test]
fn pitfall_12_a_refused_counter_is_not_hurried_by_the_success_of_another() {
    let (mut bank, host) = bank("deferred");
    let mut asked_at = Vec::new();
    host.0.borrow_mut().refuse = Some(B);
    bank.start(pmc(0), B, 100);
    for entry in 1..=200 {
        // Another counter gets an event at every entry.
        bank.start(pmc(1), if entry % 2 == 0 { A } else { PerfEvtSel::from_bits(0x53_00c0).spec() }, 100);
        for counter in bank.take_retries() {
            asked_at.push(entry);
            bank.start(counter, B, 100);
        }
        bank.pause(pmc(1));
    }
    assert_eq!(asked_at, [1, 3, 7, 15, 31, 63, 127]);
}

#[test]
fn pitfall_12_a_lost_event_does_not_wait_for_a_refused_one() {
    let (mut bank, host) = bank("deferred");
    bank.start(pmc(1), A, 100);
    host.0.borrow_mut().refuse = Some(B);
    for _ in 0..5 {
        bank.start(pmc(0), B, 100);
    }
    host.0.borrow_mut().lost = true;
    bank.take(pmc(1));
    assert_eq!([(); 2].map(|()| bank.take_retries()), [counters([]), counters([1])]);
}

#[test]
fn pitfall_12_another_event_of_a_refused_counter_begins_anew() {
    let (mut bank, host) = bank("deferred");
    host.0.borrow_mut().refuse_open = true;
    for _ in 0..5 {
        bank.start(pmc(0), A, 100);
    }
    bank.start(pmc(0), B, 100);
    assert!(bank.take_retries().contains(pmc(0)), "after one entry");
}

#[test]
fn pitfall_18_no_period_is_set_for_an_event_that_does_not_sample() {
    let (mut bank, host) = bank("reuse");
    let txcp = PerfEvtSel::from_bits(0x2_0053_003c).spec();
    bank.start(pmc(2), txcp, 100);
    bank.set_period(pmc(2), 50);
    bank.pause(pmc(2));
    bank.start(pmc(2), txcp, 40);
    assert!(host.log().iter().all(|line| !line.starts_with("period")));
    assert_eq!(bank.stats().counts.reused, 1);
}

fn pinned_errors(bank: &mut Bank<Host>) -> u64 {
    let mut counts = counts::Counts::default();
    bank.account(&mut counts);
    counts.pinned_errors
}

#[test]
fn pitfall_22_a_lost_pinned_event_is_reported_and_enabled_again() {
    let (mut bank, host) = bank("deferred");
    bank.start(pmc(0), A, 100);
    assert_eq!(pinned_errors(&mut bank), 0);
    host.0.borrow_mut().lost = true;
    // A guest that waits for its overflow looks at nothing.
    assert_eq!([(); 2].map(|()| pinned_errors(&mut bank)), [1, 1], "once");
    assert_eq!((bank.pause(pmc(0)), bank.held()), (0, 1), "a count that is not known is not made up");
    host.log();
    bank.start(pmc(0), A, 100);
    assert_eq!(host.log(), ["period 0 100", "resume 0", "read 0"]);
    assert_eq!((bank.stats().counts.pinned_errors, &bank.stats().last_error), (2, &Some(HostError::PinnedLost)));
    // It counted 30 before it was lost: its counter overflows as much sooner.
    (host.0.borrow_mut().lost, host.0.borrow_mut().counts[0]) = (false, 30);
    bank.pause(pmc(0));
    bank.start(pmc(0), A, 100);
    assert_eq!(host.log(), ["period 0 100", "resume 0", "read 0", "period 0 70"]);
    assert_eq!((bank.take(pmc(0)), bank.stats().ops.count(OpKind::Open)), (30, 1));
}

#[test]
fn counts_before_a_loss_are_not_those_of_a_counter_that_was_written_since() {
    let (mut bank, host) = bank("deferred");
    bank.start(pmc(0), A, 100);
    host.0.borrow_mut().lost = true;
    bank.pause(pmc(0));
    bank.touch(pmc(0));
    (host.0.borrow_mut().lost, host.0.borrow_mut().counts[0]) = (false, 30);
    bank.start(pmc(0), A, 100);
    assert_eq!(bank.take(pmc(0)), 0);
}

#[test]
fn pitfall_12_a_lost_event_is_enabled_ever_more_rarely() {
    let (mut bank, host) = bank("deferred");
    bank.start(pmc(0), A, 100);
    host.0.borrow_mut().lost = true;
    bank.take(pmc(0));
    let mut enabled_at = Vec::new();
    for entry in 1..=5000 {
        for counter in bank.take_retries() {
            enabled_at.push(entry);
            bank.pause(counter);
            bank.start(counter, A, 100);
        }
    }
    assert_eq!(enabled_at[..5], [2, 5, 10, 19, 36], "after 1, 2, 4, 8, 16 entries, and one");
    assert!(enabled_at.len() < 16 && bank.stats().ops.count(OpKind::Open) == 1, "{enabled_at:?}");
}

#[test]
fn a_gate_that_fails_hands_over_its_counts_and_is_left() {
    let (mut bank, host) = bank("gate");
    host.0.borrow_mut().gated = true;
    for (n, spec) in [(0, A), (1, B)] {
        bank.start(pmc(n), spec, 100);
    }
    bank.on_entry(CounterSet::EMPTY);
    (host.0.borrow_mut().counts, host.0.borrow_mut().lost) = (vec![30, 40], true);
    assert_eq!((pinned_errors(&mut bank), &bank.stats().last_error), (1, &Some(HostError::GateTooLarge)));
    let due = bank.due();
    assert_eq!(due, counters([0, 1]));
    assert_eq!([bank.pause(pmc(0)), bank.pause(pmc(1))], [30, 40]);
    host.0.borrow_mut().lost = false;
    for (n, spec) in [(0, A), (1, B)] {
        bank.start(pmc(n), spec, 70);
    }
    bank.on_entry(CounterSet::EMPTY);
    host.log();
    bank.pause(pmc(0));
    bank.stop(pmc(0), true);
    assert_eq!((host.log(), bank.held()), (vec!["pause 2".to_owned()], 2), "single events");
    // The next turn's account does not contain the failure, but its arm is no gate.
    bank.restart_account();
    let mut counts = counts::Counts::default();
    bank.account(&mut counts);
    assert_eq!((counts.pinned_errors, counts.ungated), (0, 1));
}

/// Turns all counters off and on again, as a guest's handler does.
fn off_and_on(bank: &mut Bank<Host>, counters: &[(usize, Spec, u64)]) {
    for &(n, ..) in counters {
        bank.pause(pmc(n));
        bank.stop(pmc(n), true);
    }
    bank.on_entry(CounterSet::EMPTY);
    for &(n, spec, period) in counters {
        bank.start(pmc(n), spec, period);
    }
    bank.on_entry(CounterSet::EMPTY);
}

#[test]
fn behind_a_gate_off_and_on_are_two_calls_whatever_the_number_of_counters() {
    let (mut bank, host) = bank("gate");
    host.0.borrow_mut().gated = true;
    for (n, spec) in [(0, A), (1, B)] {
        bank.start(pmc(n), spec, 100);
    }
    bank.on_entry(CounterSet::EMPTY);
    host.log();
    host.0.borrow_mut().counts = vec![30, 100];
    off_and_on(&mut bank, &[(0, A, 70), (1, B, 55)]);
    assert_eq!(host.log(), ["shut gate", "period 1 55", "open gate"], "only what overflowed has a new period");
    assert_eq!((bank.stats().ops.count(OpKind::Pause), bank.stats().ops.count(OpKind::Resume)), (1, 2));
    // One counter goes off by itself, and on again: the gate stays open for the other.
    host.0.borrow_mut().counts = vec![33, 100];
    bank.changing([pmc(0)].into_iter().collect());
    assert_eq!(bank.pause(pmc(0)), 3);
    bank.stop(pmc(0), true);
    bank.on_entry(CounterSet::EMPTY);
    bank.start(pmc(0), A, 67);
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(host.log(), ["pause 0", "resume 0"]);
    // So do two that go off and on one after the other; together they shut it.
    for n in [0, 1] {
        bank.changing([pmc(n)].into_iter().collect());
        bank.pause(pmc(n));
        bank.stop(pmc(n), true);
        bank.on_entry(CounterSet::EMPTY);
    }
    for (n, spec, period) in [(0, A, 67), (1, B, 55)] {
        bank.start(pmc(n), spec, period);
        bank.on_entry(CounterSet::EMPTY);
    }
    assert_eq!(host.log(), ["pause 0", "pause 1", "resume 0", "resume 1"]);
    bank.changing(CounterSet::ALL);
    off_and_on(&mut bank, &[(0, A, 67), (1, B, 55)]);
    assert_eq!(host.log(), ["shut gate", "open gate"]);
}

#[test]
fn a_pool_opens_events_after_every_counter_took_what_is_parked() {
    let host = Host::default();
    let strategy = Strategy { reuse: Reuse::Pool(2), ..Strategy::preset("pool").unwrap() };
    let mut bank = Bank::new(host.clone(), strategy);
    let c = PerfEvtSel::from_bits(0x53_00c0).spec();
    for (n, spec) in [(0, A), (1, B)] {
        bank.start(pmc(n), spec, 100);
    }
    bank.on_entry(CounterSet::EMPTY);
    for n in 0..2 {
        bank.pause(pmc(n));
        bank.stop(pmc(n), false);
    }
    host.log();
    // The first counter wants an event that is not there; the second the one that the first once had.
    bank.start(pmc(0), c, 100);
    bank.start(pmc(1), A, 100);
    bank.on_entry(CounterSet::EMPTY);
    let log = host.log();
    assert_eq!(log, ["period 0 100", "resume 0", "release 1", "open 2 0xc0 100"], "the event nobody wanted gave way");
    assert_eq!((bank.held(), bank.stats().counts.held_max), (2, 2));
}

#[test]
fn among_lost_records_the_last_one_left_is_not_taken_for_the_count() {
    let (mut bank, host) = bank("gate");
    bank.start(pmc(0), A, 100);
    bank.on_entry(CounterSet::EMPTY);
    host.0.borrow_mut().counts = vec![230];
    host.0.borrow_mut().records = vec![(0, 110)];
    assert!(bank.signalled().certain, "an event that goes on is aimed anew");
    assert_eq!(bank.take(pmc(0)), 230, "read, not from the record");
}

#[test]
fn after_an_early_signal_of_a_counter_that_is_off_its_period_is_set_anew() {
    for complete in [true, false] {
        let (mut bank, host) = bank("gate");
        bank.start(pmc(0), A, 100);
        bank.on_entry(CounterSet::EMPTY);
        host.0.borrow_mut().counts = vec![98];
        host.0.borrow_mut().complete = complete;
        if complete {
            host.0.borrow_mut().records = vec![(0, 98)];
        }
        // Off before the kick: perf began the period anew at 98.
        bank.pause(pmc(0));
        bank.stop(pmc(0), true);
        bank.signalled();
        host.log();
        bank.start(pmc(0), A, 2);
        assert!(host.log().contains(&"period 0 2".to_owned()), "the same aim is not the same period");
    }
}

fn counters(of: impl IntoIterator<Item = usize>) -> CounterSet {
    of.into_iter().map(pmc).collect()
}

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

#[test]
fn clocks_of_a_thread_leave_it_most_of_its_time() {
    let (mut bank, host) = clock("deferred");
    for n in 0..8 {
        bank.start(pmc(n), A, 1);
    }
    assert_eq!(host.0.borrow().periods, [1, 2, 4, 8, 16, 32, 32, 32].map(|factor| factor * SHORTEST));
}

#[test]
fn a_short_rest_is_no_period_to_go_on_with() {
    let (mut bank, host) = clock("virtual");
    for (period, answer) in [(1, AfterOverflow::Aim), (4 * SHORTEST, AfterOverflow::Leave)] {
        bank.start(pmc(0), A, period);
        bank.on_entry(CounterSet::EMPTY);
        assert_eq!(bank.overflowed(pmc(0), false), answer, "after {period}");
        bank.set_period(pmc(0), 1 << 47);
        assert_eq!(bank.overflowed(pmc(0), false), AfterOverflow::Leave);
        bank.pause(pmc(0));
        bank.stop(pmc(0), true);
    }
    // Other hosts' events need no such care.
    host.0.borrow_mut().shortest = 1;
    bank.start(pmc(0), A, 1);
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

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
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
    /// Whatever guest and signals do, the events of a thread expire at most twice in the host's shortest period, and each
    /// once in 32 such periods beyond that.
    #[test]
    fn no_sequence_starves_the_thread(
        preset in prop::sample::select(vec!["recreate", "reuse", "reuse-lazy", "paused-flag", "pool", "gate", "virtual"]),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let (mut bank, host) = clock(preset);
        let mut on = CounterSet::EMPTY;
        for step in steps {
            match step {
                Step::Start { n, spec, period } => {
                    let Some(counter) = CounterId::from_index(n) else { continue };
                    bank.pause(counter);
                    bank.start(counter, PerfEvtSel::from_bits(0x53_0000 | spec as u64).spec(), period);
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
                    host.0.borrow_mut().records = vec![(event, count)];
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
            let script = host.0.borrow();
            let enabled = script.periods.iter().zip(&script.enabled).filter(|&(_, &enabled)| enabled);
            let shares = || enabled.clone().map(|(&period, _)| 1024 * SHORTEST / period);
            let (all, events) = (shares().sum::<u64>(), shares().count());
            prop_assert!(events <= MAX_COUNTERS + MAX_POOL);
            prop_assert!(all <= 2 * 1024 + 32 * events as u64 && shares().all(|one| one <= 1024), "{} of {}", all, events);
        }
    }
}
