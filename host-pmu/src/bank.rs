//! The host events of one vCPU, kept by a strategy.
//!
//! The algorithm is KVM's (`reprogram_counter`, arch/x86/kvm/pmu.c since Linux 5.5) with each of its choices taken from
//! [`Strategy`]. Zeroing an event after a pause is done here by remembering the count that was handed over, which costs
//! no host call.

mod gate;
mod overflow;
mod release;
mod stats;

use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram, Signalled, Touch};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, MAX_GP, Spec};

use crate::backend::step::StepCounts;
use crate::backend::{Backend, HostError};
use crate::side::HostPmu;
use crate::stats::{OpKind, OpStats};
use crate::strategy::{Apply, OnOverflow, Release, Reuse, Strategy};

use self::gate::Gate;
pub use self::stats::BankStats;

/// A host event and what the bank knows of it.
#[derive(Debug)]
struct Held<E> {
    event: E,
    /// The backend's number of it.
    id: u64,
    spec: Spec,
    running: bool,
    /// The part of its count that the vPMU has got.
    taken: u64,
    /// The count at which its counter overflows, as the host was last asked.
    aim: u64,
    /// Its count when it last overflowed, until the vPMU takes it.
    told: Option<u64>,
    /// It stopped itself at an overflow and was not resumed since.
    stopped: bool,
    /// The host may have stopped it without our knowing; it is not used again.
    doubtful: bool,
    /// Behind a gate: its count when the gate was shut, and whether it counts while the gate is open.
    shut_at: u64,
    lets_count: bool,
    /// Slices without a guest access, since its counter went off.
    idle_slices: u32,
    /// When it was paused, for release by time and for the pool's LRU order.
    parked_at: u64,
}

impl<E> Held<E> {
    /// What was gathered until its count was `total`, once.
    fn gather(&mut self, total: u64) -> u64 {
        let gathered = total.saturating_sub(self.taken);
        self.taken = self.taken.max(total);
        gathered
    }
}

/// A counter whose event is opened before the next entry.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    spec: Spec,
    period: u64,
}

/// Host events behind the vPMCs of one vCPU.
#[derive(Debug)]
pub struct Bank<B: Backend> {
    backend: B,
    strategy: Strategy,
    slots: [Option<Held<B::Event>>; MAX_COUNTERS],
    /// Parked events of no counter; its capacity is reserved up front.
    pool: Vec<Held<B::Event>>,
    pool_cap: usize,
    /// Counters that found no event, while there is a bound: what others take first needs not be given back for them.
    wanted: [Option<Wanted>; MAX_COUNTERS],
    /// Those that have one; a look at each at every entry would cost as much as the entry.
    wanting: CounterSet,
    gate: Gate,
    /// Counters whose overflow was heard and that no kick has looked at; `None` if any of them may have overflowed.
    heard: Option<CounterSet>,
    in_use: CounterSet,
    retries: CounterSet,
    backoff: Backoff,
    /// Counters whose event stopped at its overflow, since the last entry and before that. It stays so for one entry with a
    /// PMI: the handler is expected to turn the counter off first of all.
    stopped: CounterSet,
    left_stopped: CounterSet,
    held: u64,
    /// Events were opened or given back since the last entry, for which the thread may have slept.
    may_have_slept: bool,
    stats: BankStats,
}

/// Retries of a failing host get rarer: after 1, 2, 4 … entries, so that a guest is not stalled by them.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    failures: u32,
    entries_left: u32,
}

impl Backoff {
    const MOST: u32 = 10;

    fn failed(&mut self) {
        self.entries_left = 1 << self.failures.min(Self::MOST);
        self.failures += 1;
    }

    fn due(&mut self) -> bool {
        self.entries_left = self.entries_left.saturating_sub(1);
        self.entries_left == 0
    }
}

impl<B: Backend> Bank<B> {
    /// An empty bank.
    #[must_use]
    pub fn new(backend: B, strategy: Strategy) -> Self {
        let pool_cap = if let Reuse::Pool(k) = strategy.reuse { k } else { 0 };
        Self {
            backend,
            strategy,
            slots: std::array::from_fn(|_| None),
            pool: Vec::with_capacity(pool_cap),
            pool_cap,
            wanted: [None; MAX_COUNTERS],
            wanting: CounterSet::EMPTY,
            gate: Gate::default(),
            heard: Some(CounterSet::EMPTY),
            in_use: CounterSet::EMPTY,
            retries: CounterSet::EMPTY,
            backoff: Backoff::default(),
            stopped: CounterSet::EMPTY,
            left_stopped: CounterSet::EMPTY,
            held: 0,
            may_have_slept: false,
            stats: BankStats::default(),
        }
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> &BankStats {
        &self.stats
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Carries out one host operation, counted and timed.
    fn host<T>(&mut self, kind: OpKind, op: impl FnOnce(&mut B) -> Result<T, HostError>) -> Result<T, HostError> {
        host_op(&mut self.backend, &mut self.stats, kind, op)
    }

    fn open(&mut self, counter: CounterId, spec: Spec, period: u64) {
        if self.held == 0 {
            // Slices that began while nothing was held are not this event's.
            self.backend.sched_in();
        }
        self.may_have_slept = true;
        match self.host(OpKind::Open, |backend| backend.open(spec, period)) {
            Ok(event) => {
                self.backoff = Backoff::default();
                self.slots[counter.index()] = Some(Held {
                    id: self.backend.id(&event),
                    event,
                    spec,
                    running: true,
                    taken: 0,
                    aim: period,
                    told: None,
                    stopped: false,
                    doubtful: false,
                    shut_at: 0,
                    lets_count: true,
                    idle_slices: 0,
                    parked_at: 0,
                });
                self.held += 1;
                self.stats.held_max = self.stats.held_max.max(self.held);
            }
            Err(_) => {
                self.stats.failed_opens += 1;
                self.retries.insert(counter);
                self.backoff.failed();
            }
        }
    }

    /// Puts a paused event of `counter` into the pool, giving back the least recently used one if it is full.
    fn park(&mut self, counter: CounterId) {
        let Some(mut held) = self.slots[counter.index()].take() else { return };
        if self.pool.len() == self.pool_cap {
            self.release_oldest_of_pool();
        }
        held.parked_at = self.backend.now_ns();
        self.pool.push(held);
    }

    /// Makes the event in the slot, which has the right spec, count again.
    fn resume(&mut self, counter: CounterId, period: u64) -> bool {
        if self.backend.stops_at_overflow() {
            // It may have overflowed between the last kick and its pause, and what stopped itself is resumed otherwise.
            self.hear_overflows();
        }
        let gated = self.backend.has_gate();
        let Some(held) = &mut self.slots[counter.index()] else { return false };
        let (backend, stats) = (&mut self.backend, &mut self.stats);
        let aim = held.taken.saturating_add(period);
        let keeps = self.strategy.skip_period && held.aim == aim && !held.stopped;
        if held.spec.samples() && !keeps {
            let set = host_op(backend, stats, OpKind::Period, |b| b.set_period(&mut held.event, period));
            if set.is_err() {
                stats.refused_periods += 1;
                return false;
            }
        }
        held.aim = aim;
        // Behind a gate the event itself was not stopped, or is started with the others before the entry.
        if !gated {
            let spent = held.stopped;
            if host_op(backend, stats, OpKind::Resume, |b| b.resume(&mut held.event, spent)).is_err() {
                return false;
            }
            held.stopped = false;
        }
        held.running = true;
        held.told = None;
        held.idle_slices = 0;
        stats.reused += 1;
        true
    }

    /// Counters to start again after a failure, if their time has come.
    fn take_retries(&mut self) -> CounterSet {
        if self.retries.is_empty() || !self.backoff.due() {
            return CounterSet::EMPTY;
        }
        std::mem::take(&mut self.retries)
    }

    fn on_overflow(&self) -> OnOverflow {
        match self.strategy.overflow {
            // An event whose stop is not told must not be relied on to have stopped.
            OnOverflow::Stop if !self.backend.stops_at_overflow() => OnOverflow::Reprogram,
            policy => policy,
        }
    }

    /// Reads a running event.
    fn read(&mut self, counter: CounterId) -> u64 {
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        match host_op(&mut self.backend, &mut self.stats, OpKind::Read, |b| b.read(&mut held.event)) {
            Ok(total) => held.gather(total),
            Err(error) => {
                self.give_up(counter, &error);
                0
            }
        }
    }

    /// Opens what the counters that started still lack, making room as far as there is a bound.
    fn open_wanted(&mut self) {
        for counter in std::mem::take(&mut self.wanting) {
            let Some(Wanted { spec, period }) = self.wanted[counter.index()].take() else { continue };
            while self.held >= self.strategy.hold_max as u64 && self.release_oldest() {}
            self.open(counter, spec, period);
        }
    }
}

fn counter_at(index: usize) -> Option<CounterId> {
    CounterId::gp(index).or_else(|| CounterId::fixed(index - MAX_GP))
}

fn host_op<B: Backend, T>(
    backend: &mut B,
    stats: &mut BankStats,
    kind: OpKind,
    op: impl FnOnce(&mut B) -> Result<T, HostError>,
) -> Result<T, HostError> {
    let begin = backend.now_ns();
    let result = op(backend);
    stats.ops.record(kind, backend.now_ns().saturating_sub(begin));
    if let Err(error) = &result {
        stats.last_error = Some(error.clone());
    }
    result
}

impl<B: Backend> HostCounters for Bank<B> {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        match self.strategy.apply {
            Apply::AtOnce => Reprogram::Now,
            Apply::Deferred => Reprogram::AtEntry,
        }
    }

    fn overflowed(&mut self, counter: CounterId, near: bool) -> AfterOverflow {
        match self.on_overflow() {
            // perf is used as if one-shot: the next entry aims at the next overflow.
            OnOverflow::Reprogram => AfterOverflow::Reprogram,
            // An event with its old period signals too early, unless the counter is near its top again.
            OnOverflow::Keep if near => AfterOverflow::Aim,
            OnOverflow::Keep => AfterOverflow::Leave,
            OnOverflow::Stop => {
                self.stopped.insert(counter);
                AfterOverflow::Leave
            }
        }
    }

    fn signalled(&mut self) -> Signalled {
        let counters = self.whose_signal();
        // Without records the signal was that of a counter that overflowed, if there is one.
        let certain = counters != CounterSet::ALL || self.on_overflow() == OnOverflow::Keep;
        Signalled { counters, certain }
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        if !held.running {
            return 0;
        }
        let told = held.told.take();
        if let Some(total) = told
            && total >= held.aim
        {
            return held.gather(total);
        }
        // A clock may signal a little early: what it counted since is there by now.
        if told.is_none() && held.stopped && !held.doubtful {
            return 0;
        }
        if self.gate.is_shut() && self.backend.has_gate() {
            return held.gather(held.shut_at);
        }
        self.read(counter)
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        self.stopped.remove(counter);
        self.left_stopped.remove(counter);
        self.wanted[counter.index()] = None;
        if self.strategy.release == Release::Eager {
            let gathered = if self.slots[counter.index()].as_ref().is_some_and(|held| held.running) {
                self.read(counter)
            } else {
                0
            };
            if let Some(held) = self.slots[counter.index()].take() {
                self.release(held);
            }
            return gathered;
        }
        if self.backend.has_gate() {
            return self.pause_behind_gate(counter);
        }
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        if !held.running && self.strategy.skip_paused {
            return 0;
        }
        if held.stopped && !held.doubtful {
            held.running = false;
            return 0;
        }
        match host_op(&mut self.backend, &mut self.stats, OpKind::Pause, |b| b.pause(&mut held.event)) {
            Ok(total) => {
                held.running = false;
                held.gather(total)
            }
            Err(error) => {
                self.give_up(counter, &error);
                0
            }
        }
    }

    fn start(&mut self, counter: CounterId, spec: Spec, period: u64) {
        self.retries.remove(counter);
        let same = |held: &Held<B::Event>| held.spec == spec && !held.doubtful;
        let mut found = self.strategy.reuse != Reuse::None && self.slots[counter.index()].as_ref().is_some_and(same);
        if !found && matches!(self.strategy.reuse, Reuse::Pool(_)) {
            let parked = self.pool.iter().position(same).map(|at| self.pool.swap_remove(at));
            self.park(counter);
            found = parked.is_some();
            self.slots[counter.index()] = parked;
        }
        if found && self.resume(counter, period) {
            return;
        }
        if let Some(held) = self.slots[counter.index()].take() {
            self.release(held);
        }
        if self.strategy.hold_max == 0 {
            self.open(counter, spec, period);
        } else {
            self.wanted[counter.index()] = Some(Wanted { spec, period });
            self.wanting.insert(counter);
        }
    }

    fn stop(&mut self, counter: CounterId, own_enable: bool) {
        self.retries.remove(counter);
        self.wanted[counter.index()] = None;
        if !own_enable && matches!(self.strategy.reuse, Reuse::Pool(_)) {
            self.park(counter);
        } else if matches!(self.strategy.release, Release::IdleMs(_)) {
            let now = self.backend.now_ns();
            if let Some(held) = &mut self.slots[counter.index()] {
                held.parked_at = now;
            }
        }
    }

    fn set_period(&mut self, counter: CounterId, period: u64) {
        if let Some(wanted) = &mut self.wanted[counter.index()] {
            wanted.period = period;
        }
        let Some(held) = &mut self.slots[counter.index()] else { return };
        if !held.running || !held.spec.samples() {
            return;
        }
        let (backend, stats) = (&mut self.backend, &mut self.stats);
        let mut set = host_op(backend, stats, OpKind::Period, |b| b.set_period(&mut held.event, period));
        // 0 is no aim: the next start sets a period in any case.
        held.aim = if set.is_ok() { held.taken.saturating_add(period) } else { 0 };
        if set.is_err() {
            stats.refused_periods += 1;
        } else if held.stopped {
            set = host_op(backend, stats, OpKind::Resume, |b| b.resume(&mut held.event, true));
            held.stopped = false;
        }
        if set.is_err() {
            self.retries.insert(counter);
        }
    }

    fn touch(&mut self, counter: CounterId, touch: Touch) {
        let marks = match touch {
            Touch::Write => true,
            Touch::Read => self.strategy.mark.reads,
            Touch::GlobalCtrl => self.strategy.mark.global_ctrl,
        };
        if marks {
            self.in_use.insert(counter);
        }
    }

    fn on_entry(&mut self, enabled: CounterSet) {
        self.stats.entries += 1;
        self.open_wanted();
        if self.held == 0 {
            return;
        }
        match self.strategy.release {
            Release::Slices(slices) => {
                if self.backend.sched_in() {
                    self.release_after_slices(slices, enabled);
                }
            }
            Release::IdleMs(idle) => self.release_after_time(idle, enabled),
            Release::Hlt => self.release_after_halt(enabled),
            Release::Eager | Release::Never => {}
        }
        self.settle_gate();
        self.stats.held_sum += self.held;
    }

    fn due(&mut self, pmi: bool) -> CounterSet {
        let mut due = self.take_retries();
        let stopped = std::mem::take(&mut self.stopped);
        due.extend(std::mem::take(&mut self.left_stopped));
        if pmi {
            self.left_stopped = stopped;
        } else {
            due.extend(stopped);
        }
        due
    }

    fn pmi_not_handled(&mut self) -> CounterSet {
        std::mem::take(&mut self.left_stopped)
    }
}

impl<B: Backend> HostPmu for Bank<B> {
    fn held(&self) -> u64 {
        self.held
    }

    fn ops(&self) -> Option<&OpStats> {
        Some(&self.stats.ops)
    }

    fn stepper(&mut self) -> Option<&mut StepCounts> {
        self.backend.stepper()
    }
}

impl<B: Backend> Drop for Bank<B> {
    fn drop(&mut self) {
        for index in 0..MAX_COUNTERS {
            if let Some(held) = self.slots[index].take() {
                self.backend.release(held.event);
            }
        }
        for held in self.pool.drain(..) {
            self.backend.release(held.event);
        }
    }
}

#[cfg(test)]
mod tests;
