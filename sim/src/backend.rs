//! Host events with the costs of a model.
//!
//! The count of an event is the progress of its base while the event ran, times its rate. Each operation advances the clock of
//! the vCPU by its cost.

use std::cell::Cell;
use std::rc::Rc;

use arch_pmu::spec::{MAX_COUNTERS, Source, Spec};
use host_pmu::backend::scheduling::SHORTEST_PERIOD;
use host_pmu::backend::{Backend, HostError, Overflow};
use host_pmu::strategy::{MAX_POOL, OnOverflow, Pause, Strategy};

use crate::clock::Clock;
pub use crate::event::Creates;
use crate::event::{Base, EventState, Running, code};
use crate::model::{Cost, Costs, CountBase, Model};
use crate::stream::{Purpose, draw};

/// umask << 8 | event code of UnHalted Core Cycles, in whose rate a clock's shortest period is given.
const CYCLES: u16 = 0x3c;

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
    /// Counters that the host has left for them.
    room: usize,
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
    /// Events stop at an overflow.
    one_shot: bool,
    /// Events of counters that are off go on.
    goes_on: bool,
    /// State of the gate, `true` if it is open; `None` without a gate.
    gate: Option<bool>,
    /// The events behind the gate found no counters together.
    gate_lost: bool,
    opened: u64,
    creates: Creates,
}

impl SimBackend {
    /// Creates the events of a thread under `strategy`; `on_host` counts the events of the whole host.
    #[must_use]
    pub fn new(model: Rc<Model>, clock: Clock, on_host: Rc<Cell<u64>>, strategy: &Strategy) -> Self {
        let follows_time = model.base != CountBase::Exits;
        let free = model.host.counters - model.host.taken;
        let shortest_period = match model.base {
            CountBase::ThreadTime => model.rate(CYCLES).counts(model.host.shortest_period).max(1),
            CountBase::GuestTime => SHORTEST_PERIOD,
            CountBase::Exits => 1,
        };
        Self {
            shortest_period,
            room: if model.base == CountBase::GuestTime { free as usize } else { usize::MAX },
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
            // As in the real backend, tracepoints (which count exits) cannot stop.
            one_shot: strategy.overflow == OnOverflow::Stop && follows_time,
            goes_on: strategy.pause == Pause::Virtual,
            gate: strategy.gate.then_some(false),
            gate_lost: false,
            opened: 0,
            creates: Creates::default(),
        }
    }

    /// Returns the thread's clock.
    #[must_use]
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
        let held = self.table.len() - self.free.len();
        if held > 0 {
            let (costs, stream) = (&self.model.costs, self.clock.streams().of(Purpose::Switch));
            let ns = costs.switch.sample(stream)
                + costs.switch_held.sample_n(held as u64, stream)
                + costs.switch_running.sample_n(self.running.len() as u64, stream);
            self.clock.host(ns);
        }
    }

    /// Returns the counts of events created so far.
    #[must_use]
    pub const fn creates(&self) -> Creates {
        self.creates
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

    #[inline]
    fn spend(&mut self, purpose: Purpose, cost: impl FnOnce(&Costs) -> &Cost) {
        self.clock.spend(cost(&self.model.costs), purpose);
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
        let times = self.clock.times();
        let place = self.running.len();
        if place >= self.room || self.gate_lost {
            return self.lose(at);
        }
        let state = &mut self.table[at];
        state.running = true;
        state.since = state.base.of(times);
        state.place = place;
        if state.can_signal() {
            let common = self.mixed.then(|| self.base.of(times));
            self.look_at = self.look_at.min(state.next(times, common));
        }
        self.running.push(at);
    }

    /// Leaves an event without a counter: a pinned one enters error state and counts no more until it is enabled again. A group has all of
    /// its counters or none.
    #[cold]
    fn lose(&mut self, at: usize) {
        if self.gate.is_none() {
            self.table[at].lost = true;
            return;
        }
        self.gate_lost = true;
        while let Some(at) = self.running.get(0) {
            self.halt(at);
        }
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
        let place = state.place;
        self.running.leave(&mut self.table, place);
        if self.running.is_empty() {
            (self.look_at, self.exact) = (u64::MAX, !self.mixed);
        } else if was == self.look_at {
            self.exact = false;
        }
        self.interrupts(expiries);
    }
}

impl Backend for SimBackend {
    type Event = Event;

    fn open(&mut self, spec: Spec, period: u64) -> Result<Event, HostError> {
        let first = self.on_host.get() == 0;
        self.spend(Purpose::Open, |costs| if first { &costs.open_first } else { &costs.open_more });
        let refused = self.model.host.refused_permille;
        if refused > 0 && draw(self.clock.streams().of(Purpose::Refused), 1000) < refused {
            return Err(HostError::Os { call: "perf_event_open", errno: 16, remedy: "" });
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
            running: false,
            place: 0,
            let_in: true,
            lost: false,
            anchored: None,
            limit: u64::from(self.one_shot),
        };
        state.aim(0, period);
        let at = self.free.pop().unwrap_or(self.table.len());
        if at == self.table.len() {
            self.table.push(state);
        } else {
            self.table[at] = state;
        }
        match spec.0 {
            Source::Selector(_) => self.creates.gp += 1,
            Source::Fixed { .. } => self.creates.fixed += 1,
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
        self.spend(Purpose::Release, |costs| if last { &costs.release_last } else { &costs.release });
        self.on_host.set(self.on_host.get() - 1);
        let state = &mut self.table[event.0];
        (state.id, state.let_in, state.lost) = (0, false, false);
        self.free.push(event.0);
    }

    #[expect(clippy::inline_always, reason = "its result, with all that an error has, would go through memory")]
    #[inline(always)]
    fn pause(&mut self, event: &mut Event) -> Result<u64, HostError> {
        self.halt(event.0);
        self.spend(Purpose::Pause, |costs| &costs.pause);
        let state = &mut self.table[event.0];
        (state.let_in, state.anchored) = (false, None);
        if state.lost { Err(HostError::PinnedLost) } else { Ok(state.rate.counts(state.ran)) }
    }

    #[expect(clippy::inline_always, reason = "its result, with all that an error has, would go through memory")]
    #[inline(always)]
    fn resume(&mut self, event: &mut Event, spent: bool) -> Result<(), HostError> {
        self.spend(Purpose::Resume, |costs| &costs.resume);
        if spent && self.one_shot {
            // IOC_REFRESH adds to the limit; IOC_ENABLE leaves an event whose limit is used up without one.
            self.table[event.0].limit += 1;
        }
        (self.table[event.0].let_in, self.table[event.0].lost) = (true, false);
        self.forget_anchors();
        if self.gate != Some(false) {
            let stream = self.clock.streams().of(Purpose::ResumeOther);
            let others = self.model.costs.resume_other.sample_n(self.running.len() as u64, stream);
            self.clock.host(others);
            self.run(event.0);
        }
        Ok(())
    }

    #[expect(clippy::inline_always, reason = "its result, with all that an error has, would go through memory")]
    #[inline(always)]
    fn set_period(&mut self, event: &mut Event, period: u64) -> Result<(), HostError> {
        let moves_first = self.moves_first(event, period);
        self.spend(Purpose::Period, |costs| if moves_first { &costs.period_running } else { &costs.period });
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
        self.interrupts(expiries);
        Ok(())
    }

    #[inline]
    fn read(&mut self, event: &mut Event) -> Result<u64, HostError> {
        self.spend(Purpose::Read, |costs| &costs.read);
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
                // RDPMC.
                CountBase::GuestTime => true,
                // The real backend, too, keeps no anchor over a switch.
                CountBase::ThreadTime => state.anchored == Some(times.now - times.thread),
                CountBase::Exits => false,
            };
        if !known {
            return None;
        }
        self.spend(Purpose::Read, |costs| &costs.peek);
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

    fn stops_at_overflow(&self) -> bool {
        self.one_shot
    }

    fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    fn open_gate(&mut self) -> Result<(), HostError> {
        self.spend(Purpose::Resume, |costs| &costs.resume);
        (self.gate, self.gate_lost) = (Some(true), false);
        for at in 0..self.table.len() {
            if self.table[at].let_in && !self.table[at].running {
                self.spend(Purpose::ResumeOther, |costs| &costs.resume_other);
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
        (self.look_at, self.exact) = (u64::MAX, !self.mixed);
        self.interrupts(expiries);
        self.spend(Purpose::Pause, |costs| &costs.pause);
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
    fn slept(&mut self) -> bool {
        self.clock.take_slept()
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.now()
    }
}

mod expiry;
#[cfg(test)]
mod tests;
