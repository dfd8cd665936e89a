//! The host events of one vCPU, kept by a strategy.
//!
//! The algorithm is KVM's (`reprogram_counter`, arch/x86/kvm/pmu.c since Linux 5.5) with each of its choices taken from
//! [`Strategy`]. Zeroing an event after a pause is done here by remembering the count that was handed over, which costs
//! no host call.

use std::time::Duration;

use crate::backend::step::StepCounts;
use crate::backend::{Backend, HostError};
use crate::counters::{HostCounters, Touch};
use crate::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use crate::stats::{OpKind, OpStats};
use crate::strategy::{Apply, Release, Reuse, Strategy};

/// A host event and what the bank knows of it.
#[derive(Debug)]
struct Held<E> {
    event: E,
    spec: Spec,
    running: bool,
    /// The part of its count that the vPMU has got.
    taken: u64,
    /// Slices without a guest access, since its counter went off.
    idle_slices: u32,
    /// When it was paused, for release by time and for the pool's LRU order.
    parked_at: u64,
}

/// What a bank did and what went wrong.
#[derive(Clone, Debug, Default)]
pub struct BankStats {
    /// Host operations.
    pub ops: OpStats,
    /// Starts served by an event that was there.
    pub reused: u64,
    /// Periods the host refused.
    pub refused_periods: u64,
    /// Opens that failed.
    pub failed_opens: u64,
    /// Pinned events found in error state.
    pub pinned_errors: u64,
    /// Most events held at once.
    pub held_max: u64,
    /// Events held, summed over entries.
    pub held_sum: u64,
    /// Guest entries.
    pub entries: u64,
    /// Sched slices that began while events were held.
    pub sched_ins: u64,
    /// The last failure.
    pub last_error: Option<HostError>,
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
    in_use: CounterSet,
    retries: CounterSet,
    backoff: Backoff,
    held: u64,
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
            in_use: CounterSet::EMPTY,
            retries: CounterSet::EMPTY,
            backoff: Backoff::default(),
            held: 0,
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

    fn release(&mut self, held: Held<B::Event>) {
        // Releasing cannot fail: close frees the descriptor whatever it returns.
        let _ = self.host(OpKind::Release, |backend| {
            backend.release(held.event);
            Ok(())
        });
        self.held -= 1;
    }

    /// Gives up an event that failed; its counter is tried again.
    fn give_up(&mut self, counter: CounterId, error: &HostError) {
        if *error == HostError::PinnedLost {
            self.stats.pinned_errors += 1;
        }
        self.retries.insert(counter);
        if let Some(held) = self.slots[counter.index()].take() {
            self.release(held);
        }
    }

    fn open(&mut self, counter: CounterId, spec: Spec, period: u64) {
        if self.held == 0 {
            // Slices that began while nothing was held are not this event's.
            self.backend.sched_in();
        }
        match self.host(OpKind::Open, |backend| backend.open(spec, period)) {
            Ok(event) => {
                self.backoff = Backoff::default();
                self.slots[counter.index()] =
                    Some(Held { event, spec, running: true, taken: 0, idle_slices: 0, parked_at: 0 });
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
            let oldest = (0..self.pool.len()).min_by_key(|&i| self.pool[i].parked_at);
            if let Some(oldest) = oldest {
                let evicted = self.pool.swap_remove(oldest);
                self.release(evicted);
            }
        }
        held.parked_at = self.backend.now_ns();
        self.pool.push(held);
    }

    /// Makes the event in the slot, which has the right spec, count again.
    fn resume(&mut self, counter: CounterId, period: u64) -> bool {
        let Some(held) = &mut self.slots[counter.index()] else { return false };
        let (backend, stats) = (&mut self.backend, &mut self.stats);
        if held.spec.samples() {
            let set = host_op(backend, stats, OpKind::Period, |b| b.set_period(&mut held.event, period));
            if set.is_err() {
                stats.refused_periods += 1;
                return false;
            }
        }
        match host_op(backend, stats, OpKind::Resume, |b| b.resume(&mut held.event)) {
            Ok(()) => {
                held.running = true;
                held.idle_slices = 0;
                stats.reused += 1;
                true
            }
            Err(_) => false,
        }
    }

    /// KVM's `kvm_pmu_cleanup`: once per slice, gives back what no guest access marked and whose own enable is off.
    fn release_after_slices(&mut self, slices: u32, enabled: CounterSet) {
        self.stats.sched_ins += 1;
        for index in 0..MAX_COUNTERS {
            let Some(held) = &mut self.slots[index] else { continue };
            let Some(counter) = counter_at(index) else { continue };
            if enabled.contains(counter) || self.in_use.contains(counter) {
                held.idle_slices = 0;
                continue;
            }
            held.idle_slices += 1;
            if held.idle_slices >= slices
                && let Some(held) = self.slots[index].take()
            {
                self.release(held);
            }
        }
        for held in &mut self.pool {
            held.idle_slices += 1;
        }
        self.release_from_pool(|held| held.idle_slices >= slices);
        self.in_use = CounterSet::EMPTY;
    }

    fn release_after_time(&mut self, idle: Duration, enabled: CounterSet) {
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        let now = self.backend.now_ns();
        let expired = |parked_at: u64| now.saturating_sub(parked_at) >= idle;
        for index in 0..MAX_COUNTERS {
            let counter_enabled = counter_at(index).is_some_and(|counter| enabled.contains(counter));
            let slot = &mut self.slots[index];
            if let Some(held) = slot.take_if(|held| !held.running && !counter_enabled && expired(held.parked_at)) {
                self.release(held);
            }
        }
        self.release_from_pool(|held| expired(held.parked_at));
    }

    fn release_from_pool(&mut self, dead: impl Fn(&Held<B::Event>) -> bool) {
        while let Some(at) = self.pool.iter().position(&dead) {
            let held = self.pool.swap_remove(at);
            self.release(held);
        }
    }
}

fn counter_at(index: usize) -> Option<CounterId> {
    CounterId::gp(index).or_else(|| CounterId::fixed(index - crate::spec::MAX_GP))
}

fn host_op<B: Backend, T>(
    backend: &mut B,
    stats: &mut BankStats,
    kind: OpKind,
    op: impl FnOnce(&mut B) -> Result<T, HostError>,
) -> Result<T, HostError> {
    let begin = backend.now_ns();
    let result = op(backend);
    stats.ops.record(kind, Duration::from_nanos(backend.now_ns().saturating_sub(begin)));
    if let Err(error) = &result {
        stats.last_error = Some(error.clone());
    }
    result
}

impl<B: Backend> HostCounters for Bank<B> {
    fn apply(&self) -> Apply {
        self.strategy.apply
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        if !held.running {
            return 0;
        }
        match host_op(&mut self.backend, &mut self.stats, OpKind::Read, |b| b.read(&mut held.event)) {
            Ok(total) => {
                let gathered = total.saturating_sub(held.taken);
                held.taken = total;
                gathered
            }
            Err(error) => {
                self.give_up(counter, &error);
                0
            }
        }
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        if self.strategy.release == Release::Eager {
            let gathered = self.take(counter);
            if let Some(held) = self.slots[counter.index()].take() {
                self.release(held);
            }
            return gathered;
        }
        let Some(held) = &mut self.slots[counter.index()] else { return 0 };
        if !held.running && self.strategy.skip_paused {
            return 0;
        }
        match host_op(&mut self.backend, &mut self.stats, OpKind::Pause, |b| b.pause(&mut held.event)) {
            Ok(total) => {
                let gathered = total.saturating_sub(held.taken);
                held.taken = total;
                held.running = false;
                gathered
            }
            Err(error) => {
                self.give_up(counter, &error);
                0
            }
        }
    }

    fn start(&mut self, counter: CounterId, spec: Spec, period: u64) {
        self.retries.remove(counter);
        let same = |held: &Held<B::Event>| held.spec == spec;
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
        self.open(counter, spec, period);
    }

    fn stop(&mut self, counter: CounterId, own_enable: bool) {
        self.retries.remove(counter);
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
        let Some(held) = &mut self.slots[counter.index()] else { return };
        if !held.running || !held.spec.samples() {
            return;
        }
        let set =
            host_op(&mut self.backend, &mut self.stats, OpKind::Period, |b| b.set_period(&mut held.event, period));
        if set.is_err() {
            self.stats.refused_periods += 1;
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
            Release::Eager | Release::Never => {}
        }
        self.stats.held_sum += self.held;
    }

    fn take_retries(&mut self) -> CounterSet {
        if self.retries.is_empty() || !self.backoff.due() {
            return CounterSet::EMPTY;
        }
        std::mem::take(&mut self.retries)
    }

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
