//! A host in memory: it counts the bursts that were executed, signals as perf does, and fails on demand.

use std::cell::RefCell;
use std::rc::Rc;

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{Source, Spec, Vendor};
use host_pmu::backend::scheduling::{Assignment, Processor, SHORTEST_PERIOD};
use host_pmu::backend::{Backend, HostError, Overflow};
use host_pmu::strategy::{Pause, Strategy};

use super::{Armed, Burst};

/// Cycles, as the NMI watchdog counts them.
const CYCLES: Spec = PerfEvtSel::from_bits(0x53_003c).spec();

#[derive(Debug)]
struct Event {
    id: u64,
    spec: Spec,
    running: bool,
    total: u64,
    /// Counts to the signal, for what samples; after it the period begins anew.
    left: Option<u64>,
    period: u64,
    /// It signalled since its period was set.
    signalled: bool,
    lost: bool,
}

/// Misbehaviour of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) open: bool,
    pub(crate) period: bool,
    pub(crate) resume: bool,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Option<Event>>,
    failing: Failing,
    sched_in: bool,
    now: u64,
    /// Failures that were handed out: opens, periods, pinned events.
    failures: [u64; 3],
    /// Overflows nobody asked for yet: id and count.
    overflowed: Vec<(u64, u64)>,
    /// It records overflows.
    records: bool,
    /// An event signals a few counts before its period is over, as a clock may.
    early: bool,
    /// Records are lost until they are next asked for.
    losing: bool,
    /// Times that records were lost.
    lost_records: u64,
    /// Events may go on while their counters are off.
    goes_on: bool,
    /// State of the gate, if it has one: open or not.
    gate: Option<bool>,
    /// The leader of the gate is in error state.
    gate_lost: bool,
    opened: u64,
    /// perf's rules for hardware events; without them every event counts.
    rules: Option<Rules>,
    /// An event went to error state and signalled its owner, who has not taken that signal.
    error_signal: bool,
}

/// A release of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release(pub(crate) u16, pub(crate) u16);

impl Release {
    /// Returns whether an event that goes to error state signals its owner (f4b07fd62d4d).
    fn signals_errors(self) -> bool {
        self >= Self(6, 15)
    }

    /// Returns whether records of hardware events reach a ring that they share with others (bd2756811766; without
    /// stable's backport).
    fn shares_rings(self) -> bool {
        self >= Self(6, 2)
    }

    /// Returns whether a period of 1 makes a BTS event of branch instructions, in guest mode too (until 91dcfae0ff2b).
    fn traces_branches(self) -> bool {
        self < Self(6, 19)
    }
}

/// perf's rules on a host with hardware events.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) processor: Processor,
    pub(crate) release: Release,
    /// Pinned events of cycles that other users have on the CPU: the NMI watchdog's, those of a `perf stat -a`.
    pub(crate) others: usize,
}

impl Event {
    /// Returns its counts of `burst`.
    fn counts(&self, burst: Burst) -> u64 {
        let select = match self.spec.0 {
            Source::Selector(selection) => u64::from(selection.code()) | u64::from(selection.select() >> 8) << 16,
            Source::Fixed { index, .. } => [0xc0, 0x3c, 0x13c, 0x1a4][usize::from(index)],
        };
        burst.count(select, self.spec.kernel(), self.spec.user())
    }
}

impl State {
    /// Puts events on counters, as perf does when one is enabled: those of other users first, then the thread's in the
    /// order in which they were opened. A pinned one without a counter goes to error state.
    fn schedule(&mut self) {
        let Some(Rules { processor, release, others }) = &self.rules else { return };
        let mut assignment = Assignment::default();
        for _ in 0..*others {
            assignment.add([processor.allows(CYCLES)]);
        }
        if let Some(open) = self.gate {
            let group = self.events.iter().flatten().filter(|e| e.running);
            if open && !self.gate_lost && !assignment.add(group.map(|e| processor.allows(e.spec))) {
                self.gate_lost = true;
                self.error_signal |= release.signals_errors();
            }
            return;
        }
        let mut enabled: Vec<_> = self.events.iter_mut().flatten().filter(|e| e.running && !e.lost).collect();
        enabled.sort_unstable_by_key(|e| e.id);
        for event in enabled {
            event.lost = !assignment.add([processor.allows(event.spec)]);
            self.error_signal |= event.lost && release.signals_errors();
        }
    }

    /// Returns whether a period of 1 makes a BTS event of this one.
    fn is_bts(&self, spec: Spec, period: u64) -> bool {
        let branches = spec.raw_config() == Some(0xc4);
        let traces = |rules: &Rules| rules.release.traces_branches() && rules.processor.vendor() == Vendor::Intel;
        self.rules.as_ref().is_some_and(traces) && branches && period == 1
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedHost(Rc<RefCell<State>>);

const REFUSED: HostError = HostError::Os { call: "scripted", errno: 22, remedy: "" };

impl ScriptedHost {
    /// Builds a host with events as `strategy` wants them, with records of overflows or without any.
    pub(crate) fn for_strategy(strategy: &Strategy, records: bool) -> Self {
        let (gate, goes_on) = (strategy.gate.then_some(false), strategy.pause == Pause::Virtual);
        Self(Rc::new(RefCell::new(State { records, goes_on, gate, ..State::default() })))
    }

    /// Builds a host with hardware events by perf's rules.
    pub(crate) fn by_rules(strategy: &Strategy, rules: Rules) -> Self {
        let records = rules.release.shares_rings();
        let host = Self::for_strategy(strategy, records);
        host.0.borrow_mut().rules = Some(rules);
        host
    }

    /// Sets how many counters other users have.
    pub(crate) fn set_others(&self, others: usize) {
        let mut state = self.0.borrow_mut();
        if let Some(rules) = &mut state.rules {
            rules.others = others;
        }
        state.schedule();
    }

    /// Takes the signal of an event that went to error state.
    pub(crate) fn take_error_signal(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().error_signal)
    }

    /// Returns whether it has the rules of perf.
    pub(crate) fn has_rules(&self) -> bool {
        self.0.borrow().rules.is_some()
    }

    /// Builds a host whose events signal a little early.
    pub(crate) fn clock(strategy: &Strategy) -> Self {
        let host = Self::for_strategy(strategy, true);
        host.0.borrow_mut().early = true;
        host
    }

    /// Counts a `burst` that the guest executes; returns whether any event signalled.
    pub(crate) fn run(&self, burst: Burst) -> bool {
        let mut signalled = false;
        let state = &mut *self.0.borrow_mut();
        let early = if state.early { 3 } else { 0 };
        let State { events, overflowed, gate, gate_lost, losing, .. } = state;
        if *gate == Some(false) || *gate_lost {
            return false;
        }
        for event in events.iter_mut().flatten().filter(|e| e.running && !e.lost) {
            let n = event.counts(burst);
            let Some(left) = event.left else {
                event.total += n;
                continue;
            };
            let left = left.saturating_sub(early).max(1);
            if n < left {
                event.total += n;
                event.left = event.left.map(|left| left - n);
                continue;
            }
            signalled = true;
            event.total += n;
            // Counts that an event gains after its overflow are not in the record. Several overflows before a kick are recorded
            // at their end: the model has one overflow of a counter for them.
            let several = event.signalled || n - left >= event.period;
            let since = if several { 0 } else { n - left };
            event.signalled = true;
            event.left = Some(event.period - (n - left) % event.period);
            if !*losing {
                overflowed.push((event.id, event.total - since));
            }
        }
        signalled
    }

    /// Records of overflows are lost from now until they are next asked for.
    pub(crate) fn lose_records(&self) {
        self.0.borrow_mut().losing = true;
    }

    /// Returns how often records were lost.
    pub(crate) fn lost_records(&self) -> u64 {
        self.0.borrow().lost_records
    }

    pub(crate) fn set_failing(&self, failing: Failing) {
        self.0.borrow_mut().failing = failing;
    }

    /// Takes their counters from all events that run.
    pub(crate) fn lose(&self) {
        let mut state = self.0.borrow_mut();
        match state.gate {
            Some(open) => state.gate_lost |= open,
            None => state.events.iter_mut().flatten().filter(|e| e.running).for_each(|e| e.lost = true),
        }
    }

    pub(crate) fn new_slice(&self) {
        self.0.borrow_mut().sched_in = true;
    }

    pub(crate) fn open_events(&self) -> usize {
        self.0.borrow().events.iter().flatten().count()
    }

    pub(crate) fn failures(&self) -> [u64; 3] {
        self.0.borrow().failures
    }

    /// Events that run, sorted.
    pub(crate) fn armed(&self) -> Vec<Armed> {
        let state = self.0.borrow();
        if state.gate == Some(false) || state.gate_lost {
            return Vec::new();
        }
        let mut armed: Vec<_> = state
            .events
            .iter()
            .flatten()
            .filter(|e| e.running && !e.lost && (e.spec.user() || e.spec.kernel()))
            .map(|e| {
                let event = match e.spec.0 {
                    Source::Selector(_) => e.spec.raw_config().unwrap_or_default(),
                    Source::Fixed { index, .. } => (1 << 63) | (32 + u64::from(index)),
                };
                (event, e.spec.kernel(), e.spec.user(), e.left.unwrap_or(0))
            })
            .collect();
        armed.sort_unstable();
        armed
    }
}

impl Backend for ScriptedHost {
    type Event = usize;

    fn open(&mut self, spec: Spec, period: u64) -> Result<usize, HostError> {
        let mut state = self.0.borrow_mut();
        if state.failing.open {
            state.failures[0] += 1;
            return Err(REFUSED);
        }
        assert!(period > 0, "perf refuses a period of 0 for what samples");
        if let (Some(rules), Some(_)) = (&state.rules, state.gate) {
            // validate_group: those that are enabled behind a shut gate, and this one.
            let enabled = state.events.iter().flatten().filter(|e| e.running).map(|e| e.spec);
            if !Assignment::default().add(enabled.chain([spec]).map(|spec| rules.processor.allows(spec))) {
                state.failures[0] += 1;
                return Err(HostError::GateTooLarge);
            }
        }
        if state.is_bts(spec, period) {
            state.failures[0] += 1;
            return Err(REFUSED);
        }
        let left = spec.samples().then_some(period);
        state.opened += 1;
        let id = state.opened;
        let event = Some(Event { id, spec, running: true, total: 0, left, period, signalled: false, lost: false });
        let free = state.events.iter().position(Option::is_none);
        let at = match free {
            Some(at) => {
                state.events[at] = event;
                at
            }
            None => {
                state.events.push(event);
                state.events.len() - 1
            }
        };
        state.schedule();
        Ok(at)
    }

    fn release(&mut self, event: usize) {
        let released = self.0.borrow_mut().events[event].take();
        assert!(released.is_some(), "released twice");
    }

    fn pause(&mut self, event: &mut usize) -> Result<u64, HostError> {
        let total = self.read(event)?;
        self.with(*event, |e| e.running = false);
        Ok(total)
    }

    fn resume(&mut self, event: &mut usize) -> Result<(), HostError> {
        if self.0.borrow().failing.resume {
            return Err(REFUSED);
        }
        // IOC_ENABLE clears the error state.
        self.with(*event, |e| (e.running, e.lost) = (true, false));
        self.0.borrow_mut().schedule();
        Ok(())
    }

    fn set_period(&mut self, event: &mut usize, period: u64) -> Result<(), HostError> {
        assert!(period > 0, "perf refuses a period of 0");
        let spec = self.with(*event, |e| e.spec);
        let is_bts = self.0.borrow().is_bts(spec, period);
        if self.0.borrow().failing.period || is_bts {
            self.0.borrow_mut().failures[1] += 1;
            return Err(REFUSED);
        }
        self.with(*event, |e| {
            assert!(e.spec.samples(), "perf refuses a period for what only counts");
            e.left = Some(period);
            e.period = period;
            e.signalled = false;
        });
        Ok(())
    }

    fn read(&mut self, event: &mut usize) -> Result<u64, HostError> {
        let (total, lost) = self.with(*event, |e| (e.total, e.lost));
        if lost {
            self.0.borrow_mut().failures[2] += 1;
            return Err(HostError::PinnedLost);
        }
        Ok(total)
    }

    fn id(&self, event: &usize) -> u64 {
        self.with(*event, |e| e.id)
    }

    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        let mut state = self.0.borrow_mut();
        // Without records of hardware events there is none; other hosts without them have some.
        let visible = state.records || state.rules.is_none();
        let visited = state.overflowed.drain(..).filter(|_| visible);
        visited.for_each(|(id, count)| visit(Overflow { id, count, at: None }));
        let lost = std::mem::take(&mut state.losing);
        state.lost_records += u64::from(lost);
        state.records && !lost
    }

    fn pauses_virtually(&self) -> bool {
        self.0.borrow().goes_on
    }

    /// Returns an answer that is wrong half of the time.
    fn counts_at_one_pace(&self) -> bool {
        self.0.borrow().opened.is_multiple_of(2) && !self.has_rules()
    }

    fn shortest_period(&self) -> u64 {
        if self.has_rules() { SHORTEST_PERIOD } else { 1 }
    }

    fn is_blind(&self) -> bool {
        !self.0.borrow().records
    }

    fn is_lost(&self, event: &usize) -> bool {
        let lost = self.with(*event, |e| e.lost);
        self.0.borrow_mut().failures[2] += u64::from(lost);
        lost
    }

    fn is_gate_lost(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let lost = state.gate_lost && state.gate.is_some();
        state.failures[2] += u64::from(lost);
        lost
    }

    fn leave_gate(&mut self) {
        let mut state = self.0.borrow_mut();
        assert!(state.events.iter().all(Option::is_none), "events outlive their gate");
        (state.gate, state.gate_lost) = (None, false);
    }

    /// Returns the counts of some events; others must be read.
    fn peek(&mut self, event: &usize) -> Option<u64> {
        let goes_on = self.pauses_virtually() && !self.has_rules();
        self.with(*event, |e| (goes_on && !e.lost && e.id % 2 == 1).then_some(e.total))
    }

    fn has_gate(&self) -> bool {
        self.0.borrow().gate.is_some()
    }

    fn open_gate(&mut self) -> Result<(), HostError> {
        let mut state = self.0.borrow_mut();
        if state.failing.resume {
            return Err(REFUSED);
        }
        (state.gate, state.gate_lost) = (Some(true), false);
        state.schedule();
        Ok(())
    }

    fn shut_gate(&mut self, visit: &mut dyn FnMut(u64, u64)) -> Result<(), HostError> {
        let mut state = self.0.borrow_mut();
        state.gate = Some(false);
        if state.gate_lost {
            state.failures[2] += 1;
            return Err(HostError::PinnedLost);
        }
        state.events.iter().flatten().for_each(|e| visit(e.id, e.total));
        Ok(())
    }

    fn sched_in(&mut self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().sched_in)
    }

    fn now_ns(&self) -> u64 {
        let mut state = self.0.borrow_mut();
        state.now += 1;
        state.now
    }
}

impl ScriptedHost {
    fn with<T>(&self, event: usize, change: impl FnOnce(&mut Event) -> T) -> T {
        change(self.0.borrow_mut().events[event].as_mut().expect("an event that was released is used"))
    }
}
