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

/// One of the things that a strategy or a guest does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Opens an event of these rings.
    Open(bool, bool, u64),
    Pause(usize),
    Resume(usize),
    SetPeriod(usize, u64),
    User(u64),
    Kernel(u64),
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        2 => (any::<bool>(), 1..60_000u64).prop_map(|(user, period)| Step::Open(user, true, period)),
        1 => (1..60_000u64).prop_map(|period| Step::Open(true, true, period)),
        3 => (0..8usize).prop_map(Step::Pause),
        3 => (0..8usize).prop_map(Step::Resume),
        3 => (0..8usize, 1..60_000u64).prop_map(|(at, period)| Step::SetPeriod(at, period)),
        4 => (0..20_000u64).prop_map(Step::User),
        2 => (0..20_000u64).prop_map(Step::Kernel),
    ]
}

proptest::proptest! {
    /// What is kept of the next signal is what a look at every event finds, with events of one base and of several.
    #[test]
    fn the_next_signal_is_that_of_all_events(
        steps in proptest::collection::vec(step(), 1..60), one_base: bool,
    ) {
        let model = Rc::new(Model::embedded("clx-ap-watchdog-on").unwrap());
        let clock = Clock::new(Schedule::new(u64::MAX, 1, 0, None), Streams::new(1, 0, 0));
        let mut backend = SimBackend::new(model, clock, Rc::default(), &Strategy::preset("reuse").unwrap());
        let mut events: Vec<(Event, bool)> = Vec::new();
        for step in steps {
            let count = events.len().max(1);
            match step {
                Step::Open(user, kernel, period) if events.len() < 8 => {
                    let (user, kernel) = if one_base { (true, true) } else { (user, kernel) };
                    let bits = 0x0050_003c | u64::from(user) << 16 | u64::from(kernel) << 17;
                    events.push((backend.open(PerfEvtSel::from_bits(bits).spec(), period).unwrap(), true));
                }
                Step::Open(..) => {}
                Step::Pause(at) => if let Some((event, on)) = events.get_mut(at % count).filter(|(_, on)| *on) {
                    backend.pause(event).unwrap();
                    *on = false;
                },
                Step::Resume(at) => if let Some((event, on)) = events.get_mut(at % count).filter(|(_, on)| !*on) {
                    backend.resume(event, false).unwrap();
                    *on = true;
                },
                Step::SetPeriod(at, period) => if let Some((event, _)) = events.get_mut(at % count) {
                    backend.set_period(event, period).unwrap();
                },
                Step::User(ns) => backend.clock_mut().user(ns),
                Step::Kernel(ns) => backend.clock_mut().kernel(ns * 1000),
            }
            let times = backend.clock.times();
            let running: Vec<_> = backend.running.iter().map(|at| backend.table[at]).collect();
            let due = running.iter().filter(|state| state.ran(times) >= state.due).count() as u64;
            let in_user = running.iter().filter(|state| state.base.in_user_mode());
            let next = in_user.map(|state| state.due.saturating_sub(state.ran(times))).min().unwrap_or(u64::MAX);
            proptest::prop_assert_eq!(backend.user_ns_to_signal(), next);
            proptest::prop_assert_eq!(backend.take_signals(), due);
        }
    }
}
