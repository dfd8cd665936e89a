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
    /// The stored next signal equals the one that a look at every event finds, with events of one base and of several.
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

/// A backend of model development-host whose events go on while their counters are off, with these costs and none else.
fn going_on(expiry: u64, first: u64, later: u64) -> SimBackend {
    let (backend, _) = one_shot();
    let mut model = Model::clone(&backend.model);
    let free = Cost::fixed(0);
    (model.costs.open_first, model.costs.open_more, model.costs.pause) = (free.clone(), free.clone(), free);
    (model.costs.expiry, model.costs.period_running) = (Cost::fixed(expiry), Cost::fixed(first));
    model.costs.period = Cost::fixed(later);
    let clock = Clock::new(Schedule::new(u64::MAX, 1, 0, None), Streams::new(1, 0, 0));
    SimBackend::new(Rc::new(model), clock, Rc::default(), &Strategy::preset("virtual").unwrap())
}

#[test]
fn an_expiry_that_ends_no_run_in_ring_3_costs_the_thread_an_interrupt() {
    let cycles = PerfEvtSel::from_bits(0x0053_003c).spec();
    let after = |backend: &mut SimBackend, act: &dyn Fn(&mut SimBackend)| {
        let before = backend.clock.now();
        act(backend);
        backend.clock.now() - before
    };
    let mut backend = going_on(1000, 0, 0);
    let mut event = backend.open(cycles, PERIOD).unwrap();
    backend.clock.host(3_500_000);
    assert_eq!(after(&mut backend, &|b| assert_eq!(b.take_signals(), 1)), 3000, "three periods were over");
    let mut records = Vec::new();
    backend.overflowed(&mut |it| records.push(it.count));
    assert_eq!(records, [2 * PERIOD, 3 * PERIOD], "two records end a virtual pause, more are not kept");
    backend.clock.user(500_000);
    backend.signals_in_ring_3();
    assert_eq!(after(&mut backend, &|b| assert_eq!(b.take_signals(), 1)), 0, "the vCPU charges its signal");
    backend.clock.host(1_000_000);
    let before = backend.clock.now();
    backend.pause(&mut event).unwrap();
    assert_eq!(backend.clock.now() - before, 1000, "it expired before it was paused");
}

#[test]
fn a_period_costs_most_where_it_moves_the_next_expiry_of_all() {
    let mut backend = going_on(0, 100, 1);
    let [mut near, mut far] = [0x003c, 0x00c0].map(|event| {
        let spec = PerfEvtSel::from_bits(0x0053_0000 | event).spec();
        backend.open(spec, PERIOD << (event & 1)).unwrap()
    });
    let mut set = |event: &mut Event, period| {
        let before = backend.clock.now();
        backend.set_period(event, period).unwrap();
        backend.clock.now() - before
    };
    assert_eq!(set(&mut far, 4 * PERIOD), 100, "as near as the other");
    assert_eq!(set(&mut far, 5 * PERIOD), 1, "a later one");
    assert_eq!(set(&mut near, 2 * PERIOD), 100, "the next one");
    assert_eq!(set(&mut far, PERIOD), 100, "the next one from now on");
}

#[test]
fn clocks_of_a_thread_share_the_bound_of_a_real_one() {
    let backend = going_on(0, 0, 0);
    assert_eq!(backend.shortest_period(), 2 * 57_000);
}
