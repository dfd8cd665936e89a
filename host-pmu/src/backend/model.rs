//! A model of a thread's host events: which are open, enabled, behind a gate, on a hardware counter, in error state.
//!
//! How an event counts, when it overflows, and what an operation costs is left to a [`Host`]: the clock of the simulator, a
//! trace, a test's script. Hardware counters are assigned by perf's rules ([`scheduling`](super::scheduling)).
#![expect(clippy::inline_always, reason = "a call takes as long as its work; a result would go through memory")]

use std::fmt;

use arch_pmu::spec::Spec;

use super::scheduling::{Assignment, CounterMask};
use super::{Backend, Facts, HostError, Overflow};

/// An operation, before it has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens an event.
    Open {
        /// What it counts.
        spec: Spec,
        /// Its period.
        period: u64,
    },
    /// Releases the event with this number.
    Release(u64),
    /// Pauses the event with this number.
    Pause(u64),
    /// Enables an event.
    Resume {
        /// The event's number.
        id: u64,
        /// Number of events that run; `None` behind a gate that is shut.
        beside: Option<usize>,
    },
    /// Reads the event with this number.
    Read(u64),
    /// Opens the gate.
    OpenGate,
    /// Starts an event behind the gate that was opened.
    LetIn,
    /// Shuts the gate and reads its events.
    ShutGate,
    /// Interrupts of the thread by so many expiries of clocks that no signal told of.
    Expiries(u64),
}

/// The part of a host in which models differ.
pub trait Host: fmt::Debug + 'static {
    /// The count of one event.
    type Count: fmt::Debug;

    /// Pays for an operation.
    ///
    /// # Errors
    /// The host refuses it, and it has no effect.
    fn pay(&mut self, op: Op, events: &mut Events<Self::Count>) -> Result<(), HostError>;

    /// Returns the count of a new event, which does not run yet.
    fn open(&mut self, spec: Spec, period: u64, events: &mut Events<Self::Count>) -> Self::Count;

    /// Lets an event count.
    fn start(&mut self, _count: &mut Self::Count) {}

    /// Lets an event that runs count no more. Returns its expiries that are not paid for.
    fn stop(&mut self, _count: &mut Self::Count) -> u64 {
        0
    }

    /// Notes that no event runs any more.
    fn all_stopped(&mut self) {}

    /// Sets an event's period.
    ///
    /// # Errors
    /// The host refuses it.
    fn set_period(&mut self, at: usize, period: u64, events: &mut Events<Self::Count>) -> Result<(), HostError>;

    /// Returns an event's count.
    fn count(&mut self, count: &mut Self::Count) -> u64;

    /// Reports overflows, as [`Backend::overflowed`].
    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool;

    /// Returns the counters that may count an event.
    fn allows(&mut self, _spec: Spec) -> CounterMask {
        0
    }

    /// Notes that the caller is told of an error, other than by an operation that this host refused.
    fn told(&self, _error: &HostError) {}

    /// As [`Backend::peek`].
    fn peek(&mut self, _event: &Event<Self::Count>) -> Option<u64> {
        None
    }

    /// As [`Backend::may_have_switched`].
    fn may_have_switched(&self) -> bool {
        true
    }

    /// As [`Backend::sched_in`].
    fn sched_in(&mut self) -> bool;

    /// As [`Backend::now_ns`].
    fn now_ns(&self) -> u64;
}

/// An event, or a free place for one.
#[derive(Debug)]
pub struct Event<C> {
    /// Number of the event among all that were opened, from 1; 0: the place is free.
    pub id: u64,
    /// Its count.
    pub count: C,
    /// It is not paused; behind a gate it runs while that is open.
    pub enabled: bool,
    /// It counts.
    pub running: bool,
    /// A pinned event in error state: it found no counter, and runs again after it was enabled again.
    pub lost: bool,
    /// The counters that may count it; none: it needs none.
    allowed: CounterMask,
    /// Its counter while it runs.
    counter: CounterMask,
}

impl<C> Event<C> {
    #[inline(always)]
    fn stop(&mut self, host: &mut impl Host<Count = C>, busy: &mut CounterMask) -> u64 {
        self.running = false;
        *busy &= !self.counter;
        host.stop(&mut self.count)
    }
}

/// The events of a thread.
#[derive(Debug)]
pub struct Events<C> {
    /// Open events and free places.
    pub table: Vec<Event<C>>,
    free: Vec<usize>,
    /// How many run.
    pub running: usize,
}

impl<C> Events<C> {
    /// Returns the number of open events.
    #[inline]
    pub fn held(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// Returns the open events.
    pub fn iter(&self) -> impl Iterator<Item = &Event<C>> {
        self.table.iter().filter(|event| event.id != 0)
    }

    /// Returns the counts of those that run.
    #[inline]
    pub fn running(&self) -> impl Iterator<Item = &C> {
        self.table.iter().filter(|event| event.running).map(|event| &event.count)
    }
}

/// Returns the last of these counters; 0: there is none. A fixed counter has few events that could use it.
const fn last(counters: CounterMask) -> CounterMask {
    match counters.checked_ilog2() {
        Some(counter) => 1 << counter,
        None => 0,
    }
}

/// Host events of one thread of `host`.
#[derive(Debug)]
pub struct ModelBackend<H: Host> {
    /// How events count, and what operations cost.
    pub host: H,
    /// The events.
    pub events: Events<H::Count>,
    /// Times that an event, or those behind the gate, went to error state.
    pub errors: u64,
    /// The counters with the events of other users alone; `None` where events need none.
    others: Option<Box<Assignment>>,
    /// Counters in use, by others or by running events.
    busy: CounterMask,
    /// What it can do.
    pub facts: Facts,
    /// There is a gate, and it is shut.
    shut: bool,
    /// The events behind the gate found no counters together: they are in error state.
    pub gate_lost: bool,
    opened: u64,
}

impl<H: Host> ModelBackend<H> {
    /// Creates the events of a thread. `others` has the counters of other users; `None`: events need no counters.
    pub fn new(host: H, facts: Facts, others: Option<Assignment>) -> Self {
        let mut new = Self {
            host,
            events: Events { table: Vec::new(), free: Vec::new(), running: 0 },
            errors: 0,
            others: None,
            busy: 0,
            shut: facts.gate,
            facts,
            gate_lost: false,
            opened: 0,
        };
        new.set_others(others);
        new
    }

    /// Gives other users these counters. Events that run find others, or go to error state.
    pub fn set_others(&mut self, others: Option<Assignment>) {
        self.others = others.map(Box::new);
        self.busy = self.others.as_ref().map_or(0, |others| others.busy());
        self.reschedule();
    }

    #[inline(always)]
    fn pay(&mut self, op: Op) -> Result<(), HostError> {
        self.host.pay(op, &mut self.events)
    }

    /// Returns whether a new event fits beside those of the group that are enabled, on an idle PMU (`validate_group`).
    fn group_fits(&self, new: CounterMask) -> bool {
        let enabled = self.events.table.iter().filter(|event| event.enabled).map(|event| event.allowed);
        let all = enabled.chain([new]);
        // Nearly always each finds a counter without another moving.
        let mut busy = 0;
        let each = all.clone().all(|allowed| {
            let free = last(allowed & !busy);
            busy |= free;
            free != 0
        });
        each || Assignment::default().add(all)
    }

    fn tell(&self, error: HostError) -> HostError {
        self.host.told(&error);
        error
    }

    #[inline(always)]
    fn run(&mut self, at: usize) {
        if self.gate_lost {
            return;
        }
        let event = &mut self.events.table[at];
        let free = last(event.allowed & !self.busy);
        (event.counter, event.running) = (free, true);
        self.busy |= free;
        self.host.start(&mut event.count);
        self.events.running += 1;
        if free == 0 && self.others.is_some() {
            self.reschedule();
        }
    }

    #[inline(always)]
    fn halt(&mut self, at: usize) {
        if self.events.table[at].running {
            let Self { host, events, busy, .. } = self;
            events.running -= 1;
            let expiries = events.table[at].stop(host, busy);
            self.stopped(expiries);
        }
    }

    /// Stops all events that run.
    fn halt_all(&mut self) {
        let Self { host, events, busy, .. } = self;
        events.running = 0;
        let expiries = events.table.iter_mut().filter(|event| event.running).map(|event| event.stop(host, busy)).sum();
        self.stopped(expiries);
    }

    #[inline(always)]
    fn stopped(&mut self, expiries: u64) {
        if self.events.running == 0 {
            self.host.all_stopped();
        }
        if expiries > 0 {
            // An interrupt cannot be refused.
            let _ = self.pay(Op::Expiries(expiries));
        }
    }

    /// Puts the running events on counters anew, in the order in which they were opened. A pinned one that finds none goes to
    /// error state and counts no more until it is enabled again. A group has all of its counters or none.
    #[cold]
    fn reschedule(&mut self) {
        let Some(mut assignment) = self.others.as_deref().copied() else { return };
        let others = assignment.added();
        let table = &self.events.table;
        let mut running: Vec<_> = (0..table.len()).filter(|&at| table[at].running).collect();
        if !self.facts.gate {
            running.sort_unstable_by_key(|&at| self.events.table[at].id);
            running.retain(|&at| {
                let fits = assignment.add([self.events.table[at].allowed]);
                if !fits {
                    self.halt(at);
                    self.events.table[at].lost = true;
                    self.errors += 1;
                }
                fits
            });
        } else if !assignment.add(running.iter().map(|&at| self.events.table[at].allowed)) {
            self.gate_lost = true;
            self.errors += 1;
            self.halt_all();
            running.clear();
        }
        for (number, at) in (others..).zip(running) {
            self.events.table[at].counter = assignment.counter_of(number);
        }
        self.busy = assignment.busy();
    }
}

impl<H: Host> Backend for ModelBackend<H> {
    type Event = usize;

    #[inline]
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn open(&mut self, spec: Spec, period: u64) -> Result<usize, HostError> {
        self.pay(Op::Open { spec, period })?;
        let allowed = if self.others.is_some() { self.host.allows(spec) } else { 0 };
        if self.facts.gate && self.others.is_some() && !self.group_fits(allowed) {
            return Err(self.tell(HostError::GateTooLarge));
        }
        self.opened += 1;
        let id = self.opened;
        let count = self.host.open(spec, period, &mut self.events);
        // Each branch has its own: what both had in common would be copied.
        let event = |count| Event { id, count, enabled: true, running: false, lost: false, allowed, counter: 0 };
        let at = if let Some(at) = self.events.free.pop() {
            self.events.table[at] = event(count);
            at
        } else {
            self.events.table.push(event(count));
            self.events.table.len() - 1
        };
        if !self.shut {
            self.run(at);
        }
        Ok(at)
    }

    #[inline(always)]
    fn release(&mut self, at: usize) {
        let id = self.events.table[at].id;
        debug_assert_ne!(id, 0, "released twice");
        self.halt(at);
        // A release cannot be refused.
        let _ = self.pay(Op::Release(id));
        let event = &mut self.events.table[at];
        (event.id, event.enabled, event.lost) = (0, false, false);
        self.events.free.push(at);
    }

    #[inline(always)]
    fn pause(&mut self, at: &mut usize) -> Result<u64, HostError> {
        self.halt(*at);
        self.pay(Op::Pause(self.events.table[*at].id))?;
        let event = &mut self.events.table[*at];
        event.enabled = false;
        if event.lost {
            return Err(self.tell(HostError::PinnedLost));
        }
        Ok(self.host.count(&mut event.count))
    }

    #[inline(always)]
    fn resume(&mut self, at: &mut usize) -> Result<(), HostError> {
        let beside = (!self.shut).then_some(self.events.running);
        self.pay(Op::Resume { id: self.events.table[*at].id, beside })?;
        let event = &mut self.events.table[*at];
        (event.enabled, event.lost) = (true, false);
        if beside.is_some() && !event.running {
            self.run(*at);
        }
        Ok(())
    }

    #[inline(always)]
    fn set_period(&mut self, at: &mut usize, period: u64) -> Result<(), HostError> {
        self.host.set_period(*at, period, &mut self.events)
    }

    #[inline(always)]
    fn read(&mut self, at: &mut usize) -> Result<u64, HostError> {
        self.pay(Op::Read(self.events.table[*at].id))?;
        let event = &mut self.events.table[*at];
        if event.lost {
            return Err(self.tell(HostError::PinnedLost));
        }
        Ok(self.host.count(&mut event.count))
    }

    fn id(&self, at: &usize) -> u64 {
        self.events.table[*at].id
    }

    #[inline]
    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        self.host.overflowed(visit)
    }

    #[inline(always)]
    fn peek(&mut self, at: &usize) -> Option<u64> {
        let event = &self.events.table[*at];
        if event.running { self.host.peek(event) } else { None }
    }

    fn open_gate(&mut self) -> Result<(), HostError> {
        self.pay(Op::OpenGate)?;
        (self.shut, self.gate_lost) = (false, false);
        for at in 0..self.events.table.len() {
            if self.events.table[at].enabled && !self.events.table[at].running {
                self.pay(Op::LetIn)?;
                self.run(at);
            }
        }
        Ok(())
    }

    fn shut_gate(&mut self) -> Result<(), HostError> {
        self.shut = true;
        self.halt_all();
        self.pay(Op::ShutGate)?;
        if self.gate_lost {
            return Err(self.tell(HostError::PinnedLost));
        }
        Ok(())
    }

    #[inline]
    fn shut_at(&mut self, at: &usize) -> Option<u64> {
        Some(self.host.count(&mut self.events.table[*at].count))
    }

    fn leave_gate(&mut self) {
        debug_assert_eq!(self.events.held(), 0, "events outlive their gate");
        (self.facts.gate, self.shut, self.gate_lost) = (false, false, false);
    }

    #[inline]
    fn may_have_switched(&self) -> bool {
        self.host.may_have_switched()
    }

    #[inline]
    fn sched_in(&mut self) -> bool {
        self.host.sched_in()
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn is_lost(&self, at: &usize) -> bool {
        self.events.table[*at].lost.then(|| self.tell(HostError::PinnedLost)).is_some()
    }

    fn is_gate_lost(&self) -> bool {
        self.gate_lost.then(|| self.tell(HostError::PinnedLost)).is_some()
    }
}
