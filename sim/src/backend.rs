//! Host events with the costs of a model.
//!
//! The count of an event is the progress of its base while the event ran, times its rate. Each operation advances the clock of
//! the vCPU by its cost.

use std::cell::Cell;
use std::rc::Rc;

use arch_pmu::spec::{MAX_COUNTERS, Spec};
use host_pmu::backend::scheduling::{Assignment, CounterMask, SHORTEST_PERIOD};
use host_pmu::backend::{Backend, HostError, Overflow};
use host_pmu::strategy::{MAX_POOL, Pause, Strategy};

use crate::clock::Clock;
use crate::event::{Base, EventState, Running, code};
use crate::model::{CountBase, Model};
use crate::price::Prices;
use crate::stream::{Purpose, draw};

/// umask << 8 | event code of UnHalted Core Cycles, in whose rate a clock's shortest period is given.
const CYCLES: u16 = 0x3c;

/// Events whose counters are remembered.
const KNOWN: usize = 32;

/// Index of an event in the backend's table.
#[derive(Debug, PartialEq, Eq)]
pub struct Event(usize);

/// Host events of one vCPU thread.
#[derive(Debug)]
pub struct SimBackend {
    model: Rc<Model>,
    clock: Clock,
    /// Number of hardware events on the host, including other users'.
    on_host: Rc<Cell<u64>>,
    table: Vec<EventState>,
    free: Vec<usize>,
    /// Indices of the running events; their order has no effect.
    running: Running,
    /// The counters with the events of other users alone; `None` where events need none.
    others: Option<Box<Assignment>>,
    /// Counters in use, by others or by running events.
    busy: CounterMask,
    /// The counters of some events that were opened, by their codes, so that the next open of one need not look for them.
    known: Box<[Option<(Spec, CounterMask)>; KNOWN]>,
    /// Shortest period of a clock, in counts; 1: the host has none.
    shortest_period: u64,
    /// The base of all events so far; where they have several, one that advances at least as fast as each.
    base: Base,
    mixed: bool,
    /// Lower bound of the next signal, in that base.
    look_at: u64,
    /// True if `next` is the next signal, and not only a bound below it.
    exact: bool,
    /// Overflows not yet taken: id and count.
    overflowed: Vec<(u64, u64)>,
    /// The next expiry's cost is charged already.
    told: u64,
    /// Events of counters that are off go on.
    goes_on: bool,
    /// State of the gate, `true` if it is open; `None` without a gate.
    gate: Option<bool>,
    /// The events behind the gate found no counters together.
    gate_lost: bool,
    opened: u64,
}

impl SimBackend {
    /// Creates the events of a thread under `strategy`; `on_host` counts the events of the whole host.
    pub fn new(model: Rc<Model>, clock: Clock, on_host: Rc<Cell<u64>>, strategy: &Strategy) -> Self {
        let others = model.needs_counters().then(|| {
            let mut others = Box::<Assignment>::default();
            for event in model.host.pmu.others() {
                // One that finds no counter is its user's loss.
                others.add([event]);
            }
            others
        });
        let shortest_period = match model.base {
            CountBase::ThreadTime => model.rate(CYCLES).counts(model.host.shortest_period).max(1),
            CountBase::GuestTime => SHORTEST_PERIOD,
            CountBase::Exits => 1,
        };
        Self {
            shortest_period,
            known: Box::new([None; KNOWN]),
            busy: others.as_ref().map_or(0, |others| others.busy()),
            others,
            base: Base::Exits,
            mixed: false,
            exact: true,
            model,
            clock,
            on_host,
            table: Vec::new(),
            free: Vec::new(),
            running: Running::default(),
            look_at: u64::MAX,
            overflowed: Vec::with_capacity(2 * (MAX_POOL + MAX_COUNTERS)),
            told: 0,
            goes_on: strategy.pause == Pause::Virtual,
            gate: strategy.gate.then_some(false),
            gate_lost: false,
            opened: 0,
        }
    }

    /// Returns the thread's clock.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the thread's clock.
    pub const fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Yields the CPU if the slice is over.
    #[inline]
    pub fn preempt_if_due(&mut self) {
        if self.clock.preempt_if_due() {
            self.switched();
        }
    }

    /// Sleeps until `at`, then waits for a slice.
    pub fn sleep_until(&mut self, at: u64) {
        self.clock.sleep_until(at);
        self.switched();
    }

    /// Acts on a switch of the thread out and in again: perf took its events off the PMU and put them on.
    fn switched(&mut self) {
        let (held, running) = (self.table.len() - self.free.len(), self.running.len());
        self.price().switch(held as u64, running as u64);
    }

    /// Notes the base of an event that will be opened.
    fn notes_base(&mut self, base: Base) {
        if self.table.is_empty() {
            self.base = base;
        } else if self.base != base && !self.mixed {
            self.mixed = true;
            self.base = Base::Thread { least: 0 };
            self.find_next();
        }
    }

    fn base_of(&self, spec: Spec) -> Base {
        match self.model.base {
            CountBase::GuestTime => Base::guest(spec.user(), spec.kernel()),
            CountBase::ThreadTime => Base::Thread { least: self.model.host.shortest_period },
            CountBase::Exits => Base::Exits,
        }
    }

    /// Returns the counters that may count an event.
    #[inline]
    fn allowed(&mut self, spec: Spec) -> CounterMask {
        let code = usize::from(code(spec));
        let known = &mut self.known[(code ^ code >> 8) % KNOWN];
        match known {
            Some((of, allowed)) if *of == spec => *allowed,
            _ => known.insert((spec, self.model.host.pmu.allows(spec))).1,
        }
    }

    #[inline]
    fn price(&mut self) -> Prices<'_> {
        Prices { costs: &self.model.costs, clock: &mut self.clock }
    }

    /// Forgets the anchors because an event was enabled, for which all others of the thread stopped a moment.
    #[inline]
    fn forget_anchors(&mut self) {
        if self.goes_on {
            self.table.iter_mut().for_each(|state| state.anchored = None);
        }
    }

    #[expect(clippy::inline_always, reason = "a call takes as long as its work")]
    #[inline(always)]
    fn run(&mut self, at: usize) {
        if self.gate_lost {
            return;
        }
        let times = self.clock.times();
        let place = self.running.len();
        let state = &mut self.table[at];
        // A fixed counter has few events that could use it.
        let free = (state.allowed & !self.busy).checked_ilog2().map_or(0, |counter| 1 << counter);
        let found = free != 0 || self.others.is_none();
        state.counter = free;
        self.busy |= free;
        state.running = true;
        state.since = state.base.of(times);
        state.place = place;
        if state.can_signal() {
            let common = self.mixed.then(|| self.base.of(times));
            self.look_at = self.look_at.min(state.next(times, common));
        }
        self.running.push(at);
        if !found {
            self.reschedule();
        }
    }

    /// Puts the running events on counters anew, in the order in which they were opened. A pinned one that finds none goes to
    /// error state and counts no more until it is enabled again. A group has all of its counters or none.
    #[cold]
    fn reschedule(&mut self) {
        let Some(mut assignment) = self.others.as_deref().copied() else { return };
        let others = assignment.len();
        if self.gate.is_some() {
            let Self { running, table, .. } = &*self;
            self.gate_lost = !assignment.add(running.iter().map(|at| table[at].allowed));
            if self.gate_lost {
                while let Some(at) = self.running.get(0) {
                    self.halt(at);
                }
                return;
            }
        } else {
            let mut after = 0;
            while let Some(at) = self.opened_after(after) {
                after = self.table[at].id;
                if !assignment.add([self.table[at].allowed]) {
                    self.halt(at);
                    self.table[at].lost = true;
                }
            }
        }
        let mut after = 0;
        let in_order = self.gate.is_none();
        for number in others..assignment.len() {
            let at = if in_order { self.opened_after(after) } else { self.running.get(number - others) };
            let Some(at) = at else { break };
            after = self.table[at].id;
            self.table[at].counter = assignment.counter_of(number);
        }
        self.busy = assignment.busy();
    }

    /// Returns the running event that was opened next after the one with this number.
    fn opened_after(&self, id: u64) -> Option<usize> {
        self.running.iter().filter(|&at| self.table[at].id > id).min_by_key(|&at| self.table[at].id)
    }

    #[expect(clippy::inline_always, reason = "a call takes as long as its work")]
    #[inline(always)]
    fn halt(&mut self, at: usize) {
        let times = self.clock.times();
        let state = &mut self.table[at];
        if !state.running {
            return;
        }
        let expiries = state.expiries(times);
        let was = state.signals_at();
        state.ran = state.ran(times);
        state.running = false;
        self.busy &= !state.counter;
        let place = state.place;
        self.running.leave(&mut self.table, place);
        if self.running.is_empty() {
            (self.look_at, self.exact) = (u64::MAX, !self.mixed);
        } else if was == self.look_at {
            self.exact = false;
        }
        self.price().expiries(expiries);
    }
}

impl Backend for SimBackend {
    type Event = Event;

    fn open(&mut self, spec: Spec, period: u64) -> Result<Event, HostError> {
        let first = self.on_host.get() == 0;
        self.price().open(first);
        let refused = self.model.host.refused_permille;
        if refused > 0 && draw(self.clock.streams().of(Purpose::Refused), 1000) < refused {
            return Err(HostError::Os { call: "perf_event_open", errno: 16, remedy: "" });
        }
        let allowed = if self.others.is_some() { self.allowed(spec) } else { 0 };
        if self.gate.is_some() && self.others.is_some() {
            // validate_group: the new event beside those of the group that are enabled, on an idle PMU.
            let enabled = self.table.iter().filter(|state| state.let_in).map(|state| state.allowed);
            if !Assignment::default().add(enabled.chain([allowed])) {
                return Err(HostError::GateTooLarge);
            }
        }
        self.opened += 1;
        let base = self.base_of(spec);
        self.notes_base(base);
        let mut state = EventState {
            id: self.opened,
            base,
            rate: self.model.rate(code(spec)),
            samples: spec.samples(),
            ran: 0,
            since: 0,
            period,
            signal_at: 0,
            due: 0,
            allowed,
            counter: 0,
            running: false,
            place: 0,
            let_in: true,
            lost: false,
            anchored: None,
        };
        state.aim(0, period);
        let at = self.free.pop().unwrap_or(self.table.len());
        if at == self.table.len() {
            self.table.push(state);
        } else {
            self.table[at] = state;
        }
        self.on_host.set(self.on_host.get() + 1);
        self.forget_anchors();
        if self.gate != Some(false) {
            self.run(at);
        }
        Ok(Event(at))
    }

    fn release(&mut self, event: Event) {
        let last = self.on_host.get() == 1;
        self.halt(event.0);
        self.price().release(last);
        self.on_host.set(self.on_host.get() - 1);
        let state = &mut self.table[event.0];
        (state.id, state.let_in, state.lost) = (0, false, false);
        self.free.push(event.0);
    }

    #[expect(clippy::inline_always, reason = "its result, with all that an error has, would go through memory")]
    #[inline(always)]
    fn pause(&mut self, event: &mut Event) -> Result<u64, HostError> {
        self.halt(event.0);
        self.price().pause();
        let state = &mut self.table[event.0];
        (state.let_in, state.anchored) = (false, None);
        if state.lost { Err(HostError::PinnedLost) } else { Ok(state.rate.counts(state.ran)) }
    }

    #[expect(clippy::inline_always, reason = "its result, with all that an error has, would go through memory")]
    #[inline(always)]
    fn resume(&mut self, event: &mut Event) -> Result<(), HostError> {
        let beside = (self.gate != Some(false)).then_some(self.running.len() as u64);
        self.price().resume(beside);
        (self.table[event.0].let_in, self.table[event.0].lost) = (true, false);
        self.forget_anchors();
        if beside.is_some() {
            self.run(event.0);
        }
        Ok(())
    }

    #[expect(clippy::inline_always, reason = "its result, with all that an error has, would go through memory")]
    #[inline(always)]
    fn set_period(&mut self, event: &mut Event, period: u64) -> Result<(), HostError> {
        let moves_first = self.moves_first(event, period);
        self.price().period(moves_first);
        let times = self.clock.times();
        let state = &mut self.table[event.0];
        if !state.running {
            state.aim(state.rate.counts(state.ran), period);
            return Ok(());
        }
        let (was, expiries) = (state.signals_at(), state.expiries(times));
        state.aim(state.count(times), period);
        if state.can_signal() {
            let next = state.next(times, self.mixed.then(|| self.base.of(times)));
            if next <= self.look_at {
                self.look_at = next;
            } else if was == self.look_at {
                self.exact = false;
            }
        }
        self.price().expiries(expiries);
        Ok(())
    }

    #[inline]
    fn read(&mut self, event: &mut Event) -> Result<u64, HostError> {
        self.price().read();
        let times = self.clock.times();
        if self.goes_on {
            // The real backend reads a group.
            self.table.iter_mut().for_each(|state| state.anchored = Some(times.now - times.thread));
        }
        let state = &self.table[event.0];
        if state.lost { Err(HostError::PinnedLost) } else { Ok(state.count(times)) }
    }

    fn pauses_virtually(&self) -> bool {
        self.goes_on
    }

    fn counts_at_one_pace(&self) -> bool {
        self.model.base != CountBase::GuestTime
    }

    fn shortest_period(&self) -> u64 {
        self.shortest_period
    }

    #[inline]
    fn peek(&mut self, event: &Event) -> Option<u64> {
        let times = self.clock.times();
        let state = &self.table[event.0];
        let known = self.goes_on
            && !state.lost
            && state.running
            && match self.model.base {
                // As the real backend, unless the model has another.
                CountBase::GuestTime => self.model.costs.peek.is_some(),
                // The real backend, too, keeps no anchor over a switch.
                CountBase::ThreadTime => state.anchored == Some(times.now - times.thread),
                CountBase::Exits => false,
            };
        if !known {
            return None;
        }
        let peek = self.model.costs.peek.as_ref()?;
        self.clock.spend(peek, Purpose::Read);
        Some(self.table[event.0].count(self.clock.times()))
    }

    fn id(&self, event: &Event) -> u64 {
        self.table[event.0].id
    }

    #[inline]
    fn overflowed(&mut self, report: &mut dyn FnMut(Overflow)) -> bool {
        self.overflowed.drain(..).for_each(|(id, count)| report(Overflow { id, count, at: None }));
        true
    }

    fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    fn open_gate(&mut self) -> Result<(), HostError> {
        self.price().open_gate();
        (self.gate, self.gate_lost) = (Some(true), false);
        for at in 0..self.table.len() {
            if self.table[at].let_in && !self.table[at].running {
                self.price().let_in();
                self.run(at);
            }
        }
        Ok(())
    }

    fn shut_gate(&mut self, report: &mut dyn FnMut(u64, u64)) -> Result<(), HostError> {
        self.gate = Some(false);
        let times = self.clock.times();
        let mut expiries = 0;
        for at in self.running.iter() {
            let state = &mut self.table[at];
            expiries += state.expiries(times);
            state.ran = state.ran(times);
            state.running = false;
        }
        self.running.clear();
        self.busy = self.others.as_ref().map_or(0, |others| others.busy());
        (self.look_at, self.exact) = (u64::MAX, !self.mixed);
        self.price().expiries(expiries);
        let members = (self.table.len() - self.free.len()) as u64;
        self.price().shut_gate(members);
        if self.gate_lost {
            return Err(HostError::PinnedLost);
        }
        for state in self.table.iter().filter(|state| state.id != 0) {
            report(state.id, state.rate.counts(state.ran));
        }
        Ok(())
    }

    fn leave_gate(&mut self) {
        (self.gate, self.gate_lost) = (None, false);
    }

    fn is_lost(&self, event: &Event) -> bool {
        self.table[event.0].lost
    }

    fn is_gate_lost(&self) -> bool {
        self.gate_lost
    }

    #[inline]
    fn sched_in(&mut self) -> bool {
        self.clock.take_switched_in()
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.now()
    }
}

/// An event whose counter is off is paused after its second expiry: further ones need no record of their own.
const TOLD: u64 = 2;

impl SimBackend {
    /// Returns the ns of ring 3 until the next signal.
    pub fn user_ns_to_signal(&mut self) -> u64 {
        if !self.exact {
            self.find_next();
        }
        let times = self.clock.times();
        if !self.mixed {
            let counts = self.base.in_user_mode() && self.look_at < u64::MAX;
            return if counts { self.look_at.saturating_sub(self.base.of(times)) } else { u64::MAX };
        }
        let states = self.running.iter().map(|at| &self.table[at]);
        let left = states
            .filter(|state| state.can_signal() && state.base.in_user_mode())
            .map(|state| state.signals_at().saturating_sub(state.base.of(times)));
        left.min().unwrap_or(u64::MAX)
    }

    /// Returns whether a signal may be due.
    #[inline]
    pub fn may_signal(&self) -> bool {
        self.base.of(self.clock.times()) >= self.look_at
    }

    /// Takes the due signals; each event is then armed for its next period, as by perf.
    #[inline]
    pub fn take_signals(&mut self) -> u64 {
        // Called at each entry; rarely due.
        if self.may_signal() { self.signals_due() } else { 0 }
    }

    #[inline(never)]
    fn signals_due(&mut self) -> u64 {
        let times = self.clock.times();
        let (mut signals, mut look_at) = (0, u64::MAX);
        let common = self.mixed.then(|| self.base.of(times));
        let Self { table, running, overflowed, goes_on, .. } = self;
        let mut expiries = 0;
        for at in running.iter() {
            let state = &mut table[at];
            if !state.can_signal() {
                continue;
            }
            let ran = state.ran(times);
            if ran >= state.due {
                signals += 1;
                // Only the last one of several overflows of an event counts.
                overflowed.retain(|&(id, _)| id != state.id);
                expiries += state.expiries(times);
                let count = state.rate.counts(ran);
                let late = count - state.signal_at;
                let passed = if late < state.period { 0 } else { late / state.period.max(1) };
                state.anchored = Some(times.now - times.thread);
                let reached = state.signal_at + passed * state.period;
                let reached_at = reached.max(state.rate.counts(state.due));
                // Several elapsed periods are one overflow of the counter. Each has a record, which counts where an event goes on.
                let told = if *goes_on { passed.min(TOLD - 1) } else { 0 };
                overflowed.extend((0..=told).rev().map(|before| (state.id, reached_at - before * state.period)));
                state.aim(reached, state.period);
            }
            look_at = look_at.min(state.next(times, common));
        }
        (self.look_at, self.exact) = (look_at, !self.mixed);
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
    #[inline]
    fn moves_first(&mut self, event: &Event, period: u64) -> bool {
        let state = &self.table[event.0];
        if !state.running || self.mixed || !matches!(state.base, Base::Thread { .. }) {
            return state.running;
        }
        if !self.exact {
            self.find_next();
        }
        let state = &self.table[event.0];
        let next = self.base.of(self.clock.times()).saturating_add(state.rate.ns_for(period));
        state.signals_at() <= self.look_at || next <= self.look_at
    }

    /// Finds the next signal of the running events.
    fn find_next(&mut self) {
        let times = self.clock.times();
        let common = self.mixed.then(|| self.base.of(times));
        let states = self.running.iter().map(|at| &self.table[at]).filter(|state| state.can_signal());
        self.look_at = states.map(|state| state.next(times, common)).min().unwrap_or(u64::MAX);
        self.exact = !self.mixed;
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::*;
    use crate::clock::Schedule;
    use crate::model::Cost;
    use crate::stream::Streams;

    /// Counts in a millisecond of model development-host.
    const PERIOD: u64 = 2_000_000;

    /// A backend of clocks, and an event of it.
    fn clock() -> (SimBackend, Event) {
        let model = Rc::new(Model::embedded("development-host").unwrap());
        let strategy = Strategy::preset("deferred").unwrap();
        assert_eq!(model.base, CountBase::ThreadTime);
        let clock = Clock::new(Schedule::new(u64::MAX, 1, 0, None), Streams::new(1, 0, 0));
        let mut backend = SimBackend::new(model, clock, Rc::default(), &strategy);
        let event = backend.open(PerfEvtSel::from_bits(0x0053_003c).spec(), PERIOD).unwrap();
        (backend, event)
    }

    /// A backend of a Cascade Lake without hyper-threading and without other users, and as many events of branches as it counts.
    fn eight(strategy: &str) -> (SimBackend, Vec<Event>) {
        let model = Rc::new(Model::embedded("clx-ap-watchdog-off").unwrap());
        let clock = Clock::new(Schedule::new(u64::MAX, 1, 0, None), Streams::new(1, 0, 0));
        let mut backend = SimBackend::new(model, clock, Rc::default(), &Strategy::preset(strategy).unwrap());
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
            |backend: &SimBackend, events: &[Event]| events.iter().filter(|event| backend.is_lost(event)).count();
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
        (backend.busy, backend.others) = (0x1, Some(Box::new(others)));
        backend.shut_gate(&mut |_, _| ()).unwrap();
        backend.open_gate().unwrap();
        assert!(backend.is_gate_lost() && backend.running.is_empty());
        assert_eq!(backend.shut_gate(&mut |_, _| ()), Err(HostError::PinnedLost));
    }

    #[test]
    fn a_switch_costs_for_each_event_held_and_more_for_each_that_runs() {
        let (mut backend, mut event) = clock();
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
                        backend.resume(event).unwrap();
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
        let (backend, _) = clock();
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
}
