//! Replays a trace: the accesses of a vCPU, at the guest's own pace, through the same vPMU and strategies.
//!
//! The guest's time between an entry and the next exit is the trace's; what the host does meanwhile costs what the model says. The
//! counts, too, are the trace's: those that the host side handed over belong to the guest's way between two exits, whatever the strategy.
//! So every register is the guest's own, and a value that it would have read otherwise is a divergence.

use std::collections::VecDeque;
use std::rc::Rc;

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use arch_pmu::msr::is_global_ctrl;
use arch_pmu::pmi::{Delivery, Lvtpc};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use counts::Counts;
use host_pmu::backend::model::{Event, Host, ModelBackend, Op};
use host_pmu::backend::scheduling::CounterMask;
use host_pmu::backend::{Facts, HostError, Overflow};
use host_pmu::bank::Bank;
use host_pmu::side::HostPmu as _;
use host_pmu::stats::HostSide;
use host_pmu::strategy::Strategy;
use host_pmu::trace::{CERTAIN, Kind, LVTPC, Row, UNKNOWN, counter};

use crate::clock::{Clock, Schedule};
use crate::event::code;
use crate::guest::Latency;
use crate::host;
use crate::model::{CountBase, Model, Rate};
use crate::price::Prices;
use crate::stream::{Purpose, Streams};

type TraceBackend = ModelBackend<TraceThread>;
type Events = host_pmu::backend::model::Events<TraceCount>;

/// A vCPU's thread, whose events count what a trace has.
#[derive(Debug)]
struct TraceThread {
    model: Rc<Model>,
    clock: Clock,
    /// Number of the part of the trace that goes on: what an event served before is over.
    part: u64,
    /// Counts that are still to be handed over in this part, by counter.
    due: [VecDeque<u64>; MAX_COUNTERS],
    /// Overflows not yet taken: id and count.
    fired: Vec<(u64, u64)>,
    /// No record of them was lost.
    complete: bool,
    /// Events of the host's other users.
    others: u64,
    switched: bool,
}

/// The count of a host event.
#[derive(Clone, Copy, Debug)]
struct TraceCount {
    rate: Rate,
    count: u64,
    samples: bool,
    /// A clock has ns of its period here, and its next end by that; while it does not run, what is left.
    period: u64,
    ends: u64,
    /// The counter that it serves in part `part`.
    serves: usize,
    part: u64,
}

impl TraceThread {
    fn backend(model: Rc<Model>, strategy: &Strategy, seed: u64, vcpu: u64) -> TraceBackend {
        let others = model.others();
        let one_pace = model.base != CountBase::GuestTime;
        let facts = Facts { gate: strategy.gate, one_pace, ..Facts::default() };
        let thread = Self {
            clock: Clock::new(Schedule::new(1, 1, 0, None), Streams::new(seed, 0, vcpu)),
            part: 0,
            due: Default::default(),
            fired: Vec::new(),
            complete: true,
            others: host::others(&model),
            switched: false,
            model,
        };
        ModelBackend::new(thread, facts, others)
    }

    #[inline]
    fn price(&mut self) -> Prices<'_> {
        Prices { costs: &self.model.costs, clock: &mut self.clock }
    }

    /// Takes the thread out and in again.
    fn switch(&mut self, events: &Events) {
        self.switched = true;
        self.price().switch(events.held() as u64, events.running as u64);
    }

    /// Returns whether a new period moves what ends first, by the model's pace of counts.
    fn moves_first(&self, at: usize, period: u64, events: &Events) -> bool {
        let Event { running, count, .. } = &events.table[at];
        if !running || self.model.base != CountBase::ThreadTime {
            return *running;
        }
        let first = events.running().filter(|count| count.samples).map(|count| count.ends).min().unwrap_or(u64::MAX);
        count.ends <= first || self.clock.now().saturating_add(period) <= first
    }

    /// Lets the event signal, as the trace has it.
    fn signal(&mut self, at: usize, events: &mut Events) {
        let event = &mut events.table[at];
        if event.count.samples {
            let count = self.count(&mut event.count);
            self.fired.push((event.id, count));
            event.count.ends = self.clock.now().saturating_add(event.count.period);
        }
    }
}

impl Host for TraceThread {
    type Count = TraceCount;

    fn pay(&mut self, op: Op, events: &mut Events) -> Result<(), HostError> {
        let (others, held) = (self.others, events.held() as u64);
        self.price().pay(op, others + held, held);
        Ok(())
    }

    fn open(&mut self, spec: Spec, period: u64, _: &mut Events) -> TraceCount {
        let rate = self.model.rate(code(spec));
        let period = rate.ns_for(period);
        TraceCount { rate, count: 0, samples: spec.samples(), period, ends: period, serves: 0, part: 0 }
    }

    fn start(&mut self, count: &mut TraceCount) {
        count.ends = count.ends.saturating_add(self.clock.now());
    }

    fn stop(&mut self, count: &mut TraceCount) -> u64 {
        count.ends = count.ends.saturating_sub(self.clock.now());
        0
    }

    fn set_period(&mut self, at: usize, period: u64, events: &mut Events) -> Result<(), HostError> {
        let period = events.table[at].count.rate.ns_for(period);
        let moves_first = self.moves_first(at, period, events);
        self.price().period(moves_first);
        let Event { running, count, .. } = &mut events.table[at];
        count.period = period;
        count.ends = if *running { self.clock.now().saturating_add(period) } else { period };
        Ok(())
    }

    /// Hands the event the next counts of its counter.
    fn count(&mut self, event: &mut TraceCount) -> u64 {
        let counts = if event.part == self.part { self.due[event.serves].pop_front() } else { None };
        event.count = event.count.saturating_add(counts.unwrap_or(0));
        event.count
    }

    fn overflowed(&mut self, report: &mut dyn FnMut(Overflow)) -> bool {
        self.fired.drain(..).for_each(|(id, count)| report(Overflow { id, count, at: None }));
        std::mem::replace(&mut self.complete, true)
    }

    fn allows(&mut self, spec: Spec) -> CounterMask {
        self.model.host.pmu.allows(spec)
    }

    fn may_have_switched(&self) -> bool {
        self.switched
    }

    fn sched_in(&mut self) -> bool {
        std::mem::take(&mut self.switched)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now()
    }
}

/// A place of a trace at which a replay differs from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Rows of the vCPU before it.
    pub row: u64,
    /// The row, with the trace's value.
    pub recorded: Row,
    /// The value of the replay; `None`: #GP, or no PMI; 1 for a PMI that the trace does not have.
    pub replayed: Option<u64>,
}

fn is_switch(row: &Row) -> bool {
    matches!(row.kind, Kind::Slice | Kind::Sleep)
}

/// A vCPU's trace on its way through a strategy.
#[derive(Debug)]
pub struct Replay {
    vpmu: Vpmu<Bank<TraceBackend>>,
    rows: u64,
    group: Vec<Row>,
    /// Time of the trace's last entry.
    entered: Option<u64>,
    /// The guest's own time so far, ns.
    thought: u64,
    /// PMIs that met a mask and may be deferred, and the one that the replay had not when the trace had it.
    held_back: bool,
    owed: Option<Row>,
    /// Times of the entry that brought a PMI, by the replay and by the trace.
    pmi_at: Option<(u64, u64)>,
    out: Replayed,
}

/// The findings of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Counts of the vPMU and its host side, with the PMIs of the replay, delivered as those of the trace.
    pub counts: Counts,
    /// Host operations.
    pub host: HostSide,
    /// Accesses.
    pub accesses: u64,
    /// Accesses with another value.
    pub divergences: u64,
    /// So many of them are values of counters.
    pub counter_divergences: u64,
    /// PMIs of the trace that reached the guest.
    pub pmis: u64,
    /// PMIs that came at another entry, or in one of both alone.
    pub pmis_differ: u64,
    /// PMIs that met a mask or merged, and did so at another entry or in one of both alone: no guest sees them.
    pub masked_differ: u64,
    /// PMIs that reached the guest in the trace alone.
    pub pmis_missing: u64,
    /// The first value or PMI that differs.
    pub first: Option<Divergence>,
    /// Rows that the trace lost.
    pub missing: u64,
    /// From a PMI's entry to the entry after the guest turned its counters on again, in the replay.
    pub handler: Latency,
    /// The trace's own time of that.
    pub recorded: Latency,
}

impl Replayed {
    /// Adds another vCPU's.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.host.ops.merge(&other.host.ops);
        self.accesses += other.accesses;
        self.divergences += other.divergences;
        self.counter_divergences += other.counter_divergences;
        self.pmis += other.pmis;
        self.pmis_differ += other.pmis_differ;
        self.masked_differ += other.masked_differ;
        self.pmis_missing += other.pmis_missing;
        self.first = self.first.or(other.first);
        self.missing += other.missing;
        self.handler.merge(&other.handler);
        self.recorded.merge(&other.recorded);
    }
}

/// Most rows of what belongs together; a trace that has more of them is no trace of a vCPU.
const MOST_ROWS: usize = 4096;
/// Longest time of a replay, ns: a trace may say anything.
const MOST_NS: u64 = 1 << 57;
/// Most entries without rows that are counted one by one.
const MOST_PASSED: u64 = 4096;

impl Replay {
    /// Begins a replay of a vCPU with such a PMU under `strategy`, on a host of `model`.
    pub fn new(model: &Rc<Model>, pmu: PmuCaps, strategy: &Strategy, seed: u64, vcpu: u16) -> Self {
        let backend = TraceThread::backend(Rc::clone(model), strategy, seed, vcpu.into());
        Self {
            vpmu: Vpmu::new(pmu.bounded(), Bank::new(backend, strategy.clone())),
            rows: 0,
            group: Vec::new(),
            entered: None,
            thought: 0,
            held_back: false,
            owed: None,
            pmi_at: None,
            out: Replayed::default(),
        }
    }

    /// Replays the next rows; they take effect with the entry that follows them.
    pub fn feed(&mut self, rows: &[Row]) {
        let (mut from, mut is_plain, mut before) = (0, self.group.is_empty(), Kind::Entry);
        for (at, row) in rows.iter().enumerate() {
            // Counts after a switch are to be before it.
            is_plain &= !(row.kind.is_count() && matches!(before, Kind::Slice | Kind::Sleep));
            before = row.kind;
            if row.kind != Kind::Entry && at - from < MOST_ROWS - self.group.len() {
                continue;
            }
            let part = &rows[from..=at];
            from = at + 1;
            if std::mem::replace(&mut is_plain, true) {
                self.play(part);
                self.rows += part.len() as u64;
            } else {
                for row in part {
                    self.gather(*row);
                }
                self.play_gathered();
            }
        }
        for row in &rows[from..] {
            self.gather(*row);
        }
    }

    #[cold]
    fn gather(&mut self, row: Row) {
        self.group.push(row);
        if row.kind.is_count() {
            // Whether the thread was switched before its counts were handed over is the strategy's doing.
            let switches = self.group.iter().rev().skip(1).take_while(|row| is_switch(row)).count();
            let at = self.group.len() - 1 - switches;
            self.group[at..].rotate_right(1);
        }
    }

    #[cold]
    fn play_gathered(&mut self) {
        let mut group = std::mem::take(&mut self.group);
        self.play(&group);
        self.rows += group.len() as u64;
        group.clear();
        self.group = group;
    }

    fn backend(&mut self) -> &mut TraceBackend {
        self.vpmu.host().backend()
    }

    /// Replays what belongs to one entry.
    fn play(&mut self, group: &[Row]) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        let think = self.entered.map_or(0, |entered| first.at.saturating_sub(entered));
        let clock = &mut self.backend().host.clock;
        let think = think.min(MOST_NS.saturating_sub(clock.now()));
        clock.host(think);
        self.thought += think;
        self.entered = Some(last.at);
        if last.kind == Kind::Entry {
            self.pass_entries(last.value.min(MOST_PASSED));
        }
        let (mut entered, mut restarts, mut nmi) = (false, false, false);
        let mut at = 0;
        while at < group.len() {
            let row = &group[at];
            let from = at + usize::from(!row.kind.is_count());
            let until = from + group[from..].iter().take_while(|row| row.kind.is_count()).count();
            if matches!(row.kind, Kind::Pmi | Kind::Entry) && !std::mem::replace(&mut entered, true) {
                self.pass_entries(1);
            }
            // What an access left to the entry is handed over there, whatever the thread did meanwhile.
            if !is_switch(row) {
                self.hand_over(&group[from..until]);
            }
            match row.kind {
                Kind::Count | Kind::Overflow | Kind::Sleep => {}
                Kind::Read | Kind::Write | Kind::Rdpmc | Kind::ReadFault | Kind::WriteFault | Kind::RdpmcFault => {
                    restarts |= row.kind == Kind::Write && row.value != 0 && is_global_ctrl(row.register);
                    self.access(row, self.rows + at as u64);
                }
                // What cannot be set is what no guest could have set either.
                Kind::State => self.vpmu.wrmsr(row.register, row.value).unwrap_or_default(),
                Kind::Signal => self.signal(row.value, group[..at].iter().all(is_switch)),
                Kind::Slice => {
                    let TraceBackend { host, events, .. } = self.backend();
                    host.switch(events);
                }
                Kind::Pmi | Kind::LatePmi => {
                    self.pmi(row, self.rows + at as u64);
                    nmi |= row.brings_pmi();
                }
                Kind::Lost => self.out.missing = self.out.missing.saturating_add(row.value),
                Kind::Entry => {
                    while self.vpmu.take_pmi() {
                        self.surplus_pmi(row, self.rows + at as u64);
                    }
                }
            }
            at = until.max(at + 1);
        }
        let now = self.backend().host.clock.now();
        if restarts && let Some((began, recorded)) = self.pmi_at.take() {
            self.out.handler.record(now - began);
            self.out.recorded.record(last.at.saturating_sub(recorded));
        }
        if nmi {
            self.pmi_at = Some((now, last.at));
        }
    }

    /// Enters the guest so often; most entries have nothing to do.
    fn pass_entries(&mut self, entries: u64) {
        for _ in 0..entries {
            if !(self.vpmu.is_quiet() && self.vpmu.host().passes_entry()) {
                self.vpmu.enter();
            }
        }
    }

    /// Has the events of these counters hand over the counts that the trace has next. What is left from before is theirs as well.
    fn hand_over(&mut self, counts: &[Row]) {
        let bank = self.vpmu.host();
        bank.backend().host.part += 1;
        let mut fresh = CounterSet::EMPTY;
        for row in counts {
            let Some(counter) = CounterId::from_index(row.register as usize) else { continue };
            let at = bank.event(counter).copied();
            let backend = bank.backend();
            let is_gate_lost = backend.gate_lost;
            let TraceBackend { host, events, .. } = backend;
            let mut event = at.and_then(|at| events.table.get_mut(at));
            if let Some(event) = &mut event {
                (event.count.serves, event.count.part) = (counter.index(), host.part);
            }
            // An event in error state counts nothing.
            if event.is_some_and(|event| event.lost || is_gate_lost) {
                continue;
            }
            let due = &mut host.due[counter.index()];
            let is_first = !fresh.contains(counter);
            fresh.insert(counter);
            let before = if is_first && !due.is_empty() { due.drain(..).fold(0, u64::saturating_add) } else { 0 };
            due.push_back(row.value.saturating_add(before));
        }
    }

    fn access(&mut self, row: &Row, place: u64) {
        // The exit itself is in the guest's time: a row has the time after it.
        let TraceThread { model, clock, .. } = &mut self.backend().host;
        clock.spend(&model.costs.vmm, Purpose::Vmm);
        self.out.accesses += 1;
        if (row.kind, row.register) == (Kind::Rdpmc, UNKNOWN) {
            return;
        }
        let (answer, expected) = match row.kind {
            Kind::Write => (self.vpmu.wrmsr(row.register, row.value).map(|()| row.value), Some(row.value)),
            Kind::WriteFault => (self.vpmu.wrmsr(row.register, row.value).map(|()| row.value), None),
            Kind::Rdpmc => (self.vpmu.rdpmc(row.register), Some(row.value)),
            Kind::RdpmcFault => (self.vpmu.rdpmc(row.register), None),
            Kind::ReadFault => (self.vpmu.rdmsr(row.register), None),
            _ => (self.vpmu.rdmsr(row.register), Some(row.value)),
        };
        if answer.ok() != expected {
            self.out.divergences += 1;
            self.out.counter_divergences += u64::from(counter(row.kind, row.register).is_some());
            self.diverges(*row, place, answer.ok());
        }
    }

    fn signal(&mut self, behind: u64, ended_run: bool) {
        let all = CounterSet::ALL.into_iter().all(|counter| behind & 1 << counter.index() != 0);
        self.out.counts.signals += 1;
        let signalled = if all { 0 } else { behind & !CERTAIN };
        self.backend().host.complete = !all;
        // The cost of the one that ended the guest's run is in its time.
        let expired = u64::from(signalled.count_ones()).saturating_sub(u64::from(ended_run));
        self.backend().host.price().expiries(expired);
        for counter in CounterSet::ALL {
            if signalled & 1 << counter.index() != 0
                && let Some(event) = self.vpmu.host().event(counter).copied()
            {
                let backend = self.backend();
                if !backend.gate_lost && !backend.events.table[event].lost {
                    backend.host.signal(event, &mut backend.events);
                }
            }
        }
        self.out.counts.empty_kicks += u64::from(self.vpmu.kick() == 0);
    }

    /// Replays a PMI of the trace.
    fn pmi(&mut self, row: &Row, place: u64) {
        let delivery = Lvtpc::from_bits(row.value as u32).delivery();
        let late = row.kind == Kind::LatePmi;
        // A late one was the vPMU's when it met the mask.
        let came = if late { std::mem::take(&mut self.held_back) } else { self.vpmu.take_pmi() };
        self.held_back |= came && delivery == Delivery::Masked;
        let brings = u64::from(row.brings_pmi());
        self.out.pmis += brings;
        if came {
            self.out.counts.pmis += brings;
        } else {
            self.out.pmis_missing += brings;
            self.out.pmis_differ += brings;
            self.out.masked_differ += 1 - brings;
            self.owed = Some(*row);
            if brings > 0 {
                self.diverges(*row, place, None);
            }
        }
    }

    /// Replays a PMI that the trace does not have at this entry: one that it had before, or one more.
    fn surplus_pmi(&mut self, entry: &Row, place: u64) {
        if let Some(row) = self.owed.take() {
            let brings = u64::from(row.brings_pmi());
            self.out.counts.pmis += brings;
            self.out.pmis_missing -= brings;
            self.held_back |= brings == 0;
        } else {
            self.out.counts.pmis += 1;
            self.out.pmis_differ += 1;
            self.diverges(Row { kind: Kind::Pmi, register: LVTPC, value: 0, ..*entry }, place, Some(1));
        }
    }

    fn diverges(&mut self, recorded: Row, row: u64, replayed: Option<u64>) {
        self.out.first.get_or_insert(Divergence { row, recorded, replayed });
    }

    /// Returns the host's time so far, ns: operations, switches of the thread, and the vPMU's work at exits. The exits themselves are in
    /// the guest's time.
    pub fn host_ns(&mut self) -> u64 {
        self.backend().host.clock.now() - self.thought
    }

    /// Takes what was found since the last call. Rows after the last entry have no effect yet.
    pub fn take(&mut self) -> Replayed {
        let Replayed { mut counts, .. } = self.out;
        counts.merge(&std::mem::take(self.vpmu.counts()));
        let host = self.vpmu.host().account(&mut counts);
        self.vpmu.host().restart_account();
        // A PMI that has not come may come yet.
        let owed = self.owed.is_some_and(|row| row.brings_pmi()).into();
        let out = std::mem::replace(&mut self.out, Replayed { pmis_missing: owed, ..Replayed::default() });
        Replayed { counts, host, pmis_missing: out.pmis_missing - owed, ..out }
    }

    /// Ends the replay, and takes the rest.
    pub fn finish(mut self) -> Replayed {
        let rest = self.take();
        Replayed { pmis_missing: rest.pmis_missing + self.out.pmis_missing, ..rest }
    }
}
