//! Host events with the costs of a model.
//!
//! The count of an event is the progress of its base while the event ran, times its rate. Each operation advances the clock of
//! the vCPU by its cost.
#![expect(clippy::inline_always, reason = "a call takes as long as its work, and knows which operation it is")]

use std::cell::Cell;
use std::rc::Rc;

use arch_pmu::spec::{MAX_COUNTERS, Spec};
use host_pmu::backend::model::{Event, Host, ModelBackend, Op};
use host_pmu::backend::scheduling::{CounterMask, SHORTEST_PERIOD};
use host_pmu::backend::{Facts, HostError, Overflow};
use host_pmu::bank::Bank;
use host_pmu::strategy::{MAX_POOL, Pause, Strategy};

use crate::clock::Clock;
use crate::event::{Base, EventCount, code};
use crate::model::{CountBase, Model};
use crate::price::Prices;
use crate::side::SimHost;
use crate::stream::{Purpose, draw};

/// umask << 8 | event code of UnHalted Core Cycles, in whose rate a clock's shortest period is given.
const CYCLES: u16 = 0x3c;

/// Events whose counters are remembered.
const KNOWN: usize = 32;

/// Host events of one vCPU thread.
pub(crate) type SimBackend = ModelBackend<SimThread>;
type Events = host_pmu::backend::model::Events<EventCount>;

/// A vCPU's thread, on whose clock events count.
#[derive(Debug)]
pub struct SimThread {
    model: Rc<Model>,
    clock: Clock,
    /// Number of hardware events on the host, including other users'.
    on_host: Rc<Cell<u64>>,
    /// The counters of some events that were opened, by their codes, so that the next open of one need not look for them.
    known: Box<[Option<(Spec, CounterMask)>; KNOWN]>,
    /// The base of all events so far; where they have several, one that advances at least as fast as each.
    base: Base,
    mixed: bool,
    /// Lower bound of the next signal, in that base.
    look_at: u64,
    /// The clock's time until when its slice lasts and nothing signals, as far as is known: one look at each entry.
    quiet_until: u64,
    /// True if `look_at` is the next signal, and not only a bound below it.
    exact: bool,
    /// Overflows not yet taken: id and count.
    overflowed: Vec<(u64, u64)>,
    /// The next expiry's cost is charged already.
    told: u64,
    /// Events of counters that are off go on.
    goes_on: bool,
}

/// Creates the events of a thread under `strategy`; `on_host` counts the events of the whole host.
pub(crate) fn sim_backend(model: Rc<Model>, clock: Clock, on_host: Rc<Cell<u64>>, strategy: &Strategy) -> SimBackend {
    let shortest_period = match model.base {
        CountBase::ThreadTime => model.rate(CYCLES).counts(model.host.shortest_period).max(1),
        CountBase::GuestTime => SHORTEST_PERIOD,
        CountBase::Exits => 1,
    };
    let goes_on = strategy.pause == Pause::Virtual;
    let one_pace = model.base != CountBase::GuestTime;
    let facts = Facts { gate: strategy.gate, virtual_pauses: goes_on, one_pace, shortest_period, blind: false };
    let others = model.others();
    let thread = SimThread {
        known: Box::new([None; KNOWN]),
        base: Base::Exits,
        mixed: false,
        exact: true,
        model,
        clock,
        on_host,
        look_at: u64::MAX,
        quiet_until: 0,
        overflowed: Vec::with_capacity(2 * (MAX_POOL + MAX_COUNTERS)),
        told: 0,
        goes_on,
    };
    ModelBackend::new(thread, facts, others)
}

impl SimThread {
    /// Acts on a switch of the thread out and in again: perf took its events off the PMU and put them on.
    fn switched(&mut self, events: &Events) {
        self.price().switch(events.held() as u64, events.running as u64);
    }

    /// Notes the base of an event that will be opened.
    fn notes_base(&mut self, base: Base, events: &Events) {
        if events.table.is_empty() {
            self.base = base;
        } else if self.base != base && !self.mixed {
            self.mixed = true;
            self.base = Base::Thread { least: 0 };
            self.find_next(events);
        }
    }

    fn base_of(&self, spec: Spec) -> Base {
        match self.model.base {
            CountBase::GuestTime => Base::guest(spec.user(), spec.kernel()),
            CountBase::ThreadTime => Base::Thread { least: self.model.host.shortest_period },
            CountBase::Exits => Base::Exits,
        }
    }

    #[inline]
    fn price(&mut self) -> Prices<'_> {
        Prices { costs: &self.model.costs, clock: &mut self.clock }
    }

    /// Anchors every event, or none, of a thread whose counts are looked at without a host operation.
    #[inline]
    fn anchor(&self, at: Option<u64>, events: &mut Events) {
        if self.goes_on {
            events.table.iter_mut().for_each(|event| event.count.anchored = at);
        }
    }
}

impl Host for SimThread {
    type Count = EventCount;

    #[inline(always)]
    fn pay(&mut self, op: Op, events: &mut Events) -> Result<(), HostError> {
        let on_host = self.on_host.get();
        self.price().pay(op, on_host, events.held() as u64);
        match op {
            Op::Open { .. } => {
                let refused = self.model.host.refused_permille;
                if refused > 0 && draw(self.clock.streams().of(Purpose::Refused), 1000) < refused {
                    return Err(HostError::Os { call: "perf_event_open", errno: 16, remedy: "" });
                }
            }
            Op::Release(_) => self.on_host.set(on_host - 1),
            // Enabling an event stops all others of the thread for a moment.
            Op::Resume { .. } => self.anchor(None, events),
            Op::Read(_) => {
                // The real backend reads a group, so it knows the counts of all events then.
                let times = self.clock.times();
                self.anchor(Some(times.now - times.thread), events);
            }
            _ => {}
        }
        Ok(())
    }

    #[inline(always)]
    fn open(&mut self, spec: Spec, period: u64, events: &mut Events) -> EventCount {
        let base = self.base_of(spec);
        self.notes_base(base, events);
        self.on_host.set(self.on_host.get() + 1);
        self.anchor(None, events);
        EventCount::new(base, self.model.rate(code(spec)), spec.samples(), period)
    }

    #[inline(always)]
    fn start(&mut self, count: &mut EventCount) {
        let times = self.clock.times();
        count.running = true;
        count.since = count.base.of(times);
        if count.samples {
            let common = self.mixed.then(|| self.base.of(times));
            self.look_at = self.look_at.min(count.next(times, common));
            self.signals_after(count.due.saturating_sub(count.ran));
        }
    }

    #[inline(always)]
    fn stop(&mut self, count: &mut EventCount) -> u64 {
        let times = self.clock.times();
        let expiries = count.expiries(times);
        self.exact &= count.signals_at() != self.look_at;
        count.ran += count.base.of(times) - count.since;
        count.running = false;
        expiries
    }

    fn all_stopped(&mut self) {
        (self.look_at, self.exact) = (u64::MAX, !self.mixed);
    }

    #[inline(always)]
    fn set_period(&mut self, at: usize, period: u64, events: &mut Events) -> Result<(), HostError> {
        let moves_first = self.moves_first(at, period, events);
        self.price().period(moves_first);
        let times = self.clock.times();
        let count = &mut events.table[at].count;
        if !count.running {
            count.aim(count.count(times), period);
            return Ok(());
        }
        let (was, expiries) = (count.signals_at(), count.expiries(times));
        count.aim(count.count(times), period);
        if count.samples {
            let next = count.next(times, self.mixed.then(|| self.base.of(times)));
            if next <= self.look_at {
                self.look_at = next;
                let left = count.due.saturating_sub(count.ran(times));
                self.signals_after(left);
            } else if was == self.look_at {
                self.exact = false;
            }
        }
        self.price().expiries(expiries);
        Ok(())
    }

    #[inline(always)]
    fn count(&mut self, count: &mut EventCount) -> u64 {
        count.count(self.clock.times())
    }

    #[inline]
    fn overflowed(&mut self, report: &mut dyn FnMut(Overflow)) -> bool {
        self.overflowed.drain(..).for_each(|(id, count)| report(Overflow { id, count, at: None }));
        true
    }

    #[inline]
    fn allows(&mut self, spec: Spec) -> CounterMask {
        let code = usize::from(code(spec));
        let known = &mut self.known[(code ^ code >> 8) % KNOWN];
        match known {
            Some((of, allowed)) if *of == spec => *allowed,
            _ => known.insert((spec, self.model.host.pmu.allows(spec))).1,
        }
    }

    #[inline(always)]
    fn peek(&mut self, event: &Event<EventCount>) -> Option<u64> {
        let (times, count) = (self.clock.times(), &event.count);
        let known = self.goes_on
            && match self.model.base {
                // The model says what a look costs; without that it is the cost of the real backend.
                CountBase::GuestTime => true,
                // The real backend, too, keeps no anchor over a switch.
                CountBase::ThreadTime => count.anchored == Some(times.now - times.thread),
                CountBase::Exits => false,
            };
        if !known {
            return None;
        }
        let peek = self.model.costs.peek.as_ref()?;
        self.clock.spend(peek, Purpose::Read);
        Some(count.count(self.clock.times()))
    }

    #[inline]
    fn may_have_switched(&self) -> bool {
        self.clock.switched_in
    }

    #[inline]
    fn sched_in(&mut self) -> bool {
        std::mem::take(&mut self.clock.switched_in)
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.now()
    }
}

impl SimThread {
    /// Returns the ns of ring 3 until the next signal.
    pub fn user_ns_to_signal(&mut self, events: &Events) -> u64 {
        if !self.exact {
            self.find_next(events);
        }
        let times = self.clock.times();
        if !self.mixed {
            let counts = self.base.in_user_mode() && self.look_at < u64::MAX;
            return if counts { self.look_at.saturating_sub(self.base.of(times)) } else { u64::MAX };
        }
        let left = sampling(events)
            .filter(|count| count.base.in_user_mode())
            .map(|count| count.signals_at().saturating_sub(count.base.of(times)));
        left.min().unwrap_or(u64::MAX)
    }

    /// Returns whether a signal may be due.
    #[inline]
    pub fn may_signal(&self) -> bool {
        self.base.of(self.clock.times()) >= self.look_at
    }

    /// Notes that an event signals after so much of its base.
    #[inline]
    fn signals_after(&mut self, left: u64) {
        self.quiet_until = self.quiet_until.min(self.clock.now().saturating_add(left));
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.clock.now() < self.quiet_until
    }

    /// Returns whether the slice is over, or a signal may be due.
    #[inline(never)]
    fn look_for_due(&mut self) -> bool {
        let due = self.clock.slice_is_over() || self.may_signal();
        if !due {
            self.be_quiet();
        }
        due
    }

    /// Finds how long nothing is due: no base of time advances faster than the clock.
    #[inline]
    fn be_quiet(&mut self) {
        let times = self.clock.times();
        let left = if self.base == Base::Exits { 0 } else { self.look_at.saturating_sub(self.base.of(times)) };
        self.quiet_until = times.now.saturating_add(left).min(self.clock.schedule.ends);
    }

    /// Takes the due signals; each event is then armed for its next period, as by perf.
    #[inline]
    pub fn take_signals(&mut self, events: &mut Events) -> u64 {
        // A signal is rarely due.
        if self.is_quiet() { 0 } else { self.signals_due(events) }
    }

    #[inline(never)]
    fn signals_due(&mut self, events: &mut Events) -> u64 {
        if !self.may_signal() {
            return 0;
        }
        let times = self.clock.times();
        let (mut signals, mut look_at) = (0, u64::MAX);
        let common = self.mixed.then(|| self.base.of(times));
        let Self { overflowed, goes_on, .. } = self;
        let mut expiries = 0;
        for Event { id, count, running, .. } in &mut events.table {
            if !*running || !count.samples {
                continue;
            }
            let ran = count.ran(times);
            if ran >= count.due {
                signals += 1;
                // Only the last one of several overflows of an event counts.
                overflowed.retain(|&(of, _)| of != *id);
                expiries += count.expiries(times);
                let late = count.rate.counts(ran) - count.signal_at;
                let passed = if late < count.period { 0 } else { late / count.period.max(1) };
                count.anchored = Some(times.now - times.thread);
                let reached = count.signal_at + passed * count.period;
                let reached_at = reached.max(count.rate.counts(count.due));
                // Several elapsed periods are one overflow of the counter. Each has a record, which counts where an event goes on:
                // it is paused after its second one while its counter is off, and further ones need none.
                if *goes_on && passed > 0 {
                    overflowed.push((*id, reached_at - count.period));
                }
                overflowed.push((*id, reached_at));
                count.aim(reached, count.period);
            }
            look_at = look_at.min(count.next(times, common));
        }
        (self.look_at, self.exact) = (look_at, !self.mixed);
        self.be_quiet();
        // The cost of the one that ended the guest's run in ring 3 is that of its signal.
        let unseen = expiries.saturating_sub(std::mem::take(&mut self.told));
        self.price().expiries(unseen);
        signals
    }

    /// Notes that the guest's run in ring 3 ends with a signal, whose cost is not this backend's.
    pub fn signals_in_ring_3(&mut self) {
        self.told = 1;
    }

    /// Returns whether a new period moves the next expiry of all events: the host then programs its timer anew, which
    /// costs far more than noting a later one. An event that only counts guests has a counter of its own, and is
    /// stopped and started in any case.
    #[inline(always)]
    fn moves_first(&mut self, at: usize, period: u64, events: &Events) -> bool {
        let count = &events.table[at].count;
        if !count.running || self.mixed || !matches!(count.base, Base::Thread { .. }) {
            return count.running;
        }
        if !self.exact {
            self.find_next(events);
        }
        let next = self.base.of(self.clock.times()).saturating_add(count.rate.ns_for(period));
        count.signals_at() <= self.look_at || next <= self.look_at
    }

    /// Finds the next signal of the running events.
    fn find_next(&mut self, events: &Events) {
        let times = self.clock.times();
        let common = self.mixed.then(|| self.base.of(times));
        self.look_at = sampling(events).map(|count| count.next(times, common)).min().unwrap_or(u64::MAX);
        self.exact = !self.mixed;
    }
}

/// Returns the running events that signal.
fn sampling(events: &Events) -> impl Iterator<Item = &EventCount> {
    events.running().filter(|count| count.samples)
}

impl SimHost for Bank<SimBackend> {
    fn clock(&mut self) -> &mut Clock {
        &mut self.backend().host.clock
    }

    #[inline]
    fn preempt_if_due(&mut self) {
        let SimBackend { host, events, .. } = self.backend();
        if host.clock.preempt_if_due() {
            host.switched(events);
        }
    }

    fn sleep_until(&mut self, at: u64) {
        let SimBackend { host, events, .. } = self.backend();
        host.clock.sleep_until(at);
        host.switched(events);
    }

    fn user_ns_to_signal(&mut self) -> u64 {
        let SimBackend { host, events, .. } = self.backend();
        host.user_ns_to_signal(events)
    }

    fn take_signals(&mut self) -> u64 {
        let SimBackend { host, events, .. } = self.backend();
        host.take_signals(events)
    }

    fn signals_in_ring_3(&mut self) {
        self.backend().host.signals_in_ring_3();
    }

    #[inline]
    fn is_quiet(&mut self) -> bool {
        let host = &mut self.backend().host;
        host.is_quiet() || !host.look_for_due()
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;
    use host_pmu::backend::Backend as _;
    use host_pmu::backend::scheduling::Assignment;

    use super::*;
    use crate::clock::Schedule;
    use crate::model::Cost;
    use crate::stream::Streams;

    /// Counts in a millisecond of model development-host.
    const PERIOD: u64 = 2_000_000;

    fn backend_of(model: Rc<Model>, strategy: &str) -> SimBackend {
        let clock = Clock::new(Schedule::new(u64::MAX, 1, 0, None), Streams::new(1, 0, 0));
        sim_backend(model, clock, Rc::default(), &Strategy::preset(strategy).unwrap())
    }

    /// A backend of clocks, and an event of it.
    fn clock() -> (SimBackend, usize) {
        let model = Rc::new(Model::embedded("development-host").unwrap());
        assert_eq!(model.base, CountBase::ThreadTime);
        let mut backend = backend_of(model, "deferred");
        let event = backend.open(PerfEvtSel::from_bits(0x0053_003c).spec(), PERIOD).unwrap();
        (backend, event)
    }

    /// A backend of a Cascade Lake without hyper-threading and without other users, and as many events of branches as it counts.
    fn eight(strategy: &str) -> (SimBackend, Vec<usize>) {
        let model = Rc::new(Model::embedded("clx-ap-watchdog-off").unwrap());
        let mut backend = backend_of(model, strategy);
        let events = (0..8).map(|_| backend.open(branches(), PERIOD).unwrap()).collect();
        (backend, events)
    }

    fn branches() -> Spec {
        PerfEvtSel::from_bits(0x0053_00c4).spec()
    }

    #[test]
    fn the_event_that_was_opened_last_is_the_one_without_a_counter() {
        let (mut backend, mut events) = eight("reuse");
        backend.pause(&mut events[0]).unwrap();
        let last = backend.open(branches(), PERIOD).unwrap();
        let cycles = backend.open(PerfEvtSel::from_bits(0x0053_003c).spec(), PERIOD).unwrap();
        assert!(![&last, &cycles].into_iter().any(|event| backend.is_lost(event)), "cycles have a fixed counter");
        backend.resume(&mut events[0]).unwrap();
        let without =
            |backend: &SimBackend, events: &[usize]| events.iter().filter(|event| backend.is_lost(event)).count();
        assert_eq!((without(&backend, &events), backend.is_lost(&last), backend.is_lost(&cycles)), (0, true, false));
        backend.pause(&mut events[3]).unwrap();
        assert!(backend.is_lost(&last), "a free counter is none for an event in error state");
        let mut last = last;
        backend.resume(&mut last).unwrap();
        assert!(!backend.is_lost(&last) && backend.read(&mut last).is_ok(), "until it is enabled again");
    }

    #[test]
    fn a_group_that_would_not_fit_on_an_idle_pmu_is_refused() {
        let (mut backend, events) = eight("gate");
        assert_eq!(backend.open(branches(), PERIOD), Err(HostError::GateTooLarge));
        backend.open_gate().unwrap();
        assert!(!backend.is_gate_lost() && !events.iter().any(|event| backend.is_lost(event)));
        // One of another user is beside the group: the whole group has none.
        let mut others = Assignment::default();
        assert!(others.add([0x1]));
        backend.set_others(Some(others));
        assert!(backend.is_gate_lost() && backend.events.running == 0);
        assert_eq!(backend.shut_gate(), Err(HostError::PinnedLost));
    }

    #[test]
    fn a_switch_costs_for_each_event_held_and_more_for_each_that_runs() {
        let (mut backend, mut event) = clock();
        let mut model = Model::clone(&backend.host.model);
        (model.costs.switch, model.costs.switch_held) = (Cost::fixed(1000), Cost::fixed(100));
        model.costs.switch_running = Cost::fixed(10);
        backend.host.model = Rc::new(model);
        let cost = |backend: &mut SimBackend| {
            let before = backend.host.clock.now();
            backend.host.clock.sleep_until(before + 5);
            backend.host.switched(&backend.events);
            backend.host.clock.now() - before - 5
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
            let mut backend = backend_of(model, "reuse");
            let mut events: Vec<(usize, bool)> = Vec::new();
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
                        backend.resume(event).unwrap();
                        *on = true;
                    },
                    Step::SetPeriod(at, period) => if let Some((event, _)) = events.get_mut(at % count) {
                        backend.set_period(event, period).unwrap();
                    },
                    Step::User(ns) => backend.host.clock.user(ns),
                    Step::Kernel(ns) => backend.host.clock.kernel(ns * 1000),
                }
                let times = backend.host.clock.times();
                let running: Vec<_> = backend.events.running().copied().collect();
                let due = running.iter().filter(|state| state.ran(times) >= state.due).count() as u64;
                let in_user = running.iter().filter(|state| state.base.in_user_mode());
                let next = in_user.map(|state| state.due.saturating_sub(state.ran(times))).min().unwrap_or(u64::MAX);
                proptest::prop_assert_eq!(backend.host.user_ns_to_signal(&backend.events), next);
                proptest::prop_assert_eq!(backend.host.take_signals(&mut backend.events), due);
            }
        }
    }

    /// A backend of model development-host whose events go on while their counters are off, with these costs and none else.
    fn going_on(expiry: u64, first: u64, later: u64) -> SimBackend {
        let (backend, _) = clock();
        let mut model = Model::clone(&backend.host.model);
        let free = Cost::fixed(0);
        (model.costs.open_first, model.costs.open_more, model.costs.pause) = (free.clone(), free.clone(), free);
        (model.costs.expiry, model.costs.period_running) = (Cost::fixed(expiry), Cost::fixed(first));
        model.costs.period = Cost::fixed(later);
        backend_of(Rc::new(model), "virtual")
    }

    #[test]
    fn an_expiry_that_ends_no_run_in_ring_3_costs_the_thread_an_interrupt() {
        let cycles = PerfEvtSel::from_bits(0x0053_003c).spec();
        let after = |backend: &mut SimBackend, act: &dyn Fn(&mut SimBackend)| {
            let before = backend.host.clock.now();
            act(backend);
            backend.host.clock.now() - before
        };
        let mut backend = going_on(1000, 0, 0);
        let mut event = backend.open(cycles, PERIOD).unwrap();
        backend.host.clock.host(3_500_000);
        assert_eq!(
            after(&mut backend, &|b| assert_eq!(b.host.take_signals(&mut b.events), 1)),
            3000,
            "three periods were over"
        );
        let mut records = Vec::new();
        backend.overflowed(&mut |it| records.push(it.count));
        assert_eq!(records, [2 * PERIOD, 3 * PERIOD], "two records end a virtual pause, more are not kept");
        backend.host.clock.user(500_000);
        backend.host.signals_in_ring_3();
        assert_eq!(
            after(&mut backend, &|b| assert_eq!(b.host.take_signals(&mut b.events), 1)),
            0,
            "the vCPU charges its signal"
        );
        backend.host.clock.host(1_000_000);
        let before = backend.host.clock.now();
        backend.pause(&mut event).unwrap();
        assert_eq!(backend.host.clock.now() - before, 1000, "it expired before it was paused");
    }

    #[test]
    fn a_period_costs_most_where_it_moves_the_next_expiry_of_all() {
        let mut backend = going_on(0, 100, 1);
        let [mut near, mut far] = [0x003c, 0x00c0].map(|event| {
            let spec = PerfEvtSel::from_bits(0x0053_0000 | event).spec();
            backend.open(spec, PERIOD << (event & 1)).unwrap()
        });
        let mut set = |event: &mut usize, period| {
            let before = backend.host.clock.now();
            backend.set_period(event, period).unwrap();
            backend.host.clock.now() - before
        };
        assert_eq!(set(&mut far, 4 * PERIOD), 100, "as near as the other");
        assert_eq!(set(&mut far, 5 * PERIOD), 1, "a later one");
        assert_eq!(set(&mut near, 2 * PERIOD), 100, "the next one");
        assert_eq!(set(&mut far, PERIOD), 100, "the next one from now on");
    }

    #[test]
    fn clocks_of_a_thread_share_the_bound_of_a_real_one() {
        let backend = going_on(0, 0, 0);
        assert_eq!(backend.facts().shortest_period, 2 * 57_000);
    }
}
