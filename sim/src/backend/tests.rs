use arch_pmu::intel::PerfEvtSel;

use super::*;
use crate::sched::Schedule;
use crate::stream::Streams;

/// Counts in a millisecond of model development-host.
const PERIOD: u64 = 2_000_000;

/// A backend of events that stop themselves, and one such event.
fn one_shot() -> (SimBackend, Event) {
    let model = Rc::new(Model::embedded("development-host").unwrap());
    let strategy = Strategy::preset("deferred").unwrap();
    assert_eq!((strategy.overflow, model.base), (OnOverflow::Stop, CountBase::ThreadTime));
    let clock = Clock::new(Schedule::new(u64::MAX, 1, 0, None), Streams::new(1, 0, 0));
    let mut backend = SimBackend::new(model, clock, Rc::default(), &strategy);
    let event = backend.open(PerfEvtSel::from_bits(0x0053_003c).spec(), PERIOD).unwrap();
    (backend, event)
}

/// Signals in each of three stretches that are longer than the period.
fn signals(backend: &mut SimBackend) -> [u64; 3] {
    std::array::from_fn(|_| {
        backend.clock_mut().user(2_000_000);
        backend.take_signals()
    })
}

#[test]
fn an_event_stops_itself_until_it_is_resumed_as_spent() {
    let (mut backend, mut event) = one_shot();
    assert_eq!(signals(&mut backend), [1, 0, 0]);
    backend.set_period(&mut event, PERIOD).unwrap();
    backend.resume(&mut event, true).unwrap();
    assert_eq!(signals(&mut backend), [1, 0, 0]);
}

#[test]
fn a_switch_costs_for_each_event_held_and_more_for_each_that_runs() {
    let (mut backend, mut event) = one_shot();
    let mut model = Model::clone(&backend.model);
    (model.costs.switch, model.costs.switch_held) = (Cost::fixed(1000), Cost::fixed(100));
    model.costs.switch_running = Cost::fixed(10);
    backend.model = Rc::new(model);
    let cost = |backend: &mut SimBackend| {
        let before = backend.clock.now();
        backend.sleep_until(before + 5);
        backend.clock.now() - before - 5
    };
    let other = backend.open(PerfEvtSel::from_bits(0x0053_00c0).spec(), PERIOD).unwrap();
    assert_eq!(cost(&mut backend), 1220);
    backend.pause(&mut event).unwrap();
    assert_eq!(cost(&mut backend), 1210);
    backend.release(event);
    assert_eq!(cost(&mut backend), 1110);
    backend.release(other);
    assert_eq!(cost(&mut backend), 0);
}

#[test]
fn a_resume_with_the_wrong_word_changes_the_limit_as_in_the_kernel() {
    let (mut backend, mut event) = one_shot();
    assert_eq!(signals(&mut backend), [1, 0, 0]);
    backend.set_period(&mut event, PERIOD).unwrap();
    backend.resume(&mut event, false).unwrap();
    assert_eq!(signals(&mut backend), [1, 1, 1], "IOC_ENABLE leaves no limit");

    let (mut backend, mut event) = one_shot();
    backend.pause(&mut event).unwrap();
    backend.resume(&mut event, true).unwrap();
    assert_eq!(signals(&mut backend), [1, 1, 0], "IOC_REFRESH makes it two");
}
