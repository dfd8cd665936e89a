//! A host for the model backend: it counts the bursts that were executed, signals as perf does, and fails on demand.

use std::cell::Cell;
use std::rc::Rc;

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{Source, Spec, Vendor};
use host_pmu::backend::model::{Event, Host, ModelBackend, Op};
use host_pmu::backend::scheduling::{Assignment, CounterMask, Processor, SHORTEST_PERIOD};
use host_pmu::backend::{Facts, HostError, Overflow};
use host_pmu::strategy::{Pause, Strategy};

use super::{Armed, Burst};

/// Cycles, as the NMI watchdog counts them.
const CYCLES: Spec = PerfEvtSel::from_bits(0x53_003c).spec();

/// The count of an event.
#[derive(Debug)]
pub(crate) struct Count {
    spec: Spec,
    total: u64,
    /// Counts to the signal, for what samples; after it the period begins anew.
    left: Option<u64>,
    period: u64,
    /// It signalled since its period was set.
    signalled: bool,
}

/// Misbehaviour of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) open: bool,
    pub(crate) period: bool,
    pub(crate) resume: bool,
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

impl Rules {
    fn taken(&self) -> Assignment {
        let mut assignment = Assignment::default();
        (0..self.others).for_each(|_| _ = assignment.add([self.processor.allows(CYCLES)]));
        assignment
    }
}

impl Count {
    /// Returns its counts of `burst`.
    fn of(&self, burst: Burst) -> u64 {
        let select = match self.spec.0 {
            Source::Selector(selection) => u64::from(selection.code()) | u64::from(selection.select() >> 8) << 16,
            Source::Fixed { index, .. } => [0xc0, 0x3c, 0x13c, 0x1a4][usize::from(index)],
        };
        burst.count(select, self.spec.kernel(), self.spec.user())
    }
}

/// The host's side of a script.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) failing: Failing,
    pub(crate) sched_in: bool,
    pub(crate) now: Cell<u64>,
    /// Failures that were handed out: opens, periods, pinned events.
    pub(crate) failures: Cell<[u64; 3]>,
    /// Overflows nobody asked for yet: id and count.
    pub(crate) overflowed: Vec<(u64, u64)>,
    /// It records overflows.
    pub(crate) records: bool,
    /// An event signals a few counts before its period is over, as a clock may.
    pub(crate) early: bool,
    /// Records are lost until they are next asked for.
    pub(crate) losing: bool,
    /// Times that records were lost.
    pub(crate) lost_records: u64,
    /// Events may go on while their counters are off.
    pub(crate) goes_on: bool,
    pub(crate) opened: u64,
    /// Events that are open, for when the bank is gone.
    pub(crate) held: Rc<Cell<u64>>,
    /// perf's rules for hardware events; without them every event counts.
    pub(crate) rules: Option<Rules>,
    /// Errors whose signals were taken.
    pub(crate) errors_taken: u64,
}

type Events = host_pmu::backend::model::Events<Count>;
/// A host in memory.
pub(crate) type ScriptedHost = ModelBackend<Script>;

const REFUSED: HostError = HostError::Os { call: "scripted", errno: 22, remedy: "" };

/// Builds a host with events as `strategy` wants them.
pub(crate) fn host(strategy: &Strategy, script: Script) -> ScriptedHost {
    let others = script.rules.as_ref().map(Rules::taken);
    let virtual_pauses = strategy.pause == Pause::Virtual;
    let shortest_period = if script.rules.is_some() { SHORTEST_PERIOD } else { 1 };
    let facts = Facts { gate: strategy.gate, virtual_pauses, one_pace: false, blind: !script.records, shortest_period };
    ModelBackend::new(Script { goes_on: virtual_pauses, ..script }, facts, others)
}

impl Script {
    /// A host with hardware events by perf's rules.
    pub(crate) fn by_rules(rules: Rules) -> Self {
        Self { records: rules.release.shares_rings(), rules: Some(rules), ..Self::default() }
    }

    fn fails(&self, what: usize) {
        let mut failures = self.failures.get();
        failures[what] += 1;
        self.failures.set(failures);
    }

    /// Returns whether a period of 1 makes a BTS event of this one.
    fn is_bts(&self, spec: Spec, period: u64) -> bool {
        let branches = spec.raw_config() == Some(0xc4);
        let traces = |rules: &Rules| rules.release.traces_branches() && rules.processor.vendor() == Vendor::Intel;
        self.rules.as_ref().is_some_and(traces) && branches && period == 1
    }
}

/// Sets how many counters other users have.
pub(crate) fn set_others(host: &mut ScriptedHost, others: usize) {
    if let Some(rules) = &mut host.host.rules {
        rules.others = others;
        let taken = rules.taken();
        host.set_others(Some(taken));
    }
}

/// Takes their counters from all events that run, on a host without perf's rules.
pub(crate) fn lose(host: &mut ScriptedHost) {
    host.set_others(Some(Assignment::default()));
    host.set_others(None);
}

/// Takes the signal of an event that went to error state.
pub(crate) fn take_error_signal(host: &mut ScriptedHost) -> bool {
    let taken = std::mem::replace(&mut host.host.errors_taken, host.errors);
    taken < host.errors && host.host.rules.as_ref().is_some_and(|rules| rules.release.signals_errors())
}

/// Counts a `burst` that the guest executes; returns whether any event signalled.
pub(crate) fn run(host: &mut ScriptedHost, burst: Burst) -> bool {
    // An answer that is wrong half of the time.
    host.facts.one_pace = host.host.opened.is_multiple_of(2) && host.host.rules.is_none();
    let mut signalled = false;
    let ScriptedHost { host: Script { early, overflowed, losing, .. }, events, .. } = host;
    let early = if *early { 3 } else { 0 };
    for event in events.table.iter_mut().filter(|event| event.running) {
        let count = &mut event.count;
        let n = count.of(burst);
        let Some(left) = count.left else {
            count.total += n;
            continue;
        };
        let left = left.saturating_sub(early).max(1);
        count.total += n;
        if n < left {
            count.left = count.left.map(|left| left - n);
            continue;
        }
        signalled = true;
        // Counts that an event gains after its overflow are not in the record. Several overflows before a kick are recorded
        // at their end: the model has one overflow of a counter for them.
        let several = count.signalled || n - left >= count.period;
        let since = if several { 0 } else { n - left };
        count.signalled = true;
        count.left = Some(count.period - (n - left) % count.period);
        if !*losing {
            overflowed.push((event.id, count.total - since));
        }
    }
    signalled
}

/// Events that run, sorted.
pub(crate) fn armed(host: &ScriptedHost) -> Vec<Armed> {
    let mut armed: Vec<_> = host
        .events
        .running()
        .filter(|count| count.spec.user() || count.spec.kernel())
        .map(|count| {
            let event = match count.spec.0 {
                Source::Selector(_) => count.spec.raw_config().unwrap_or_default(),
                Source::Fixed { index, .. } => (1 << 63) | (32 + u64::from(index)),
            };
            (event, count.spec.kernel(), count.spec.user(), count.left.unwrap_or(0))
        })
        .collect();
    armed.sort_unstable();
    armed
}

impl Host for Script {
    type Count = Count;

    fn pay(&mut self, op: Op, _: &mut Events) -> Result<(), HostError> {
        match op {
            Op::Open { spec, period } => {
                assert!(period > 0, "perf refuses a period of 0 for what samples");
                if self.failing.open || self.is_bts(spec, period) {
                    self.fails(0);
                    return Err(REFUSED);
                }
            }
            Op::Release(_) => self.held.set(self.held.get() - 1),
            Op::Resume { .. } | Op::OpenGate if self.failing.resume => return Err(REFUSED),
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, spec: Spec, period: u64, _: &mut Events) -> Count {
        self.opened += 1;
        self.held.set(self.held.get() + 1);
        Count { spec, total: 0, left: spec.samples().then_some(period), period, signalled: false }
    }

    fn set_period(&mut self, at: usize, period: u64, events: &mut Events) -> Result<(), HostError> {
        assert!(period > 0, "perf refuses a period of 0");
        let count = &mut events.table[at].count;
        if self.failing.period || self.is_bts(count.spec, period) {
            self.fails(1);
            return Err(REFUSED);
        }
        assert!(count.spec.samples(), "perf refuses a period for what only counts");
        (count.left, count.period, count.signalled) = (Some(period), period, false);
        Ok(())
    }

    fn count(&mut self, count: &mut Count) -> u64 {
        count.total
    }

    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        // Without records of hardware events there is none; other hosts without them have some.
        let visible = self.records || self.rules.is_none();
        let visited = self.overflowed.drain(..).filter(|_| visible);
        visited.for_each(|(id, count)| visit(Overflow { id, count, at: None }));
        let lost = std::mem::take(&mut self.losing);
        self.lost_records += u64::from(lost);
        self.records && !lost
    }

    fn allows(&mut self, spec: Spec) -> CounterMask {
        self.rules.as_ref().map_or(0, |rules| rules.processor.allows(spec))
    }

    fn told(&self, error: &HostError) {
        self.fails(if *error == HostError::PinnedLost { 2 } else { 0 });
    }

    /// Returns the counts of some events; others must be read.
    fn peek(&mut self, event: &Event<Count>) -> Option<u64> {
        (self.goes_on && self.rules.is_none() && event.id % 2 == 1).then_some(event.count.total)
    }

    fn sched_in(&mut self) -> bool {
        std::mem::take(&mut self.sched_in)
    }

    fn now_ns(&self) -> u64 {
        self.now.set(self.now.get() + 1);
        self.now.get()
    }
}
