//! Counters without host events: a virtual clock counts and a timer signals, at no cost. The counterpart of
//! `host_pmu::floor`, with the same rule for the timer.

use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use counts::Counts;
use host_pmu::arming::{Arming, Setting};
use host_pmu::side::HostPmu;
use host_pmu::stats::HostSide;

use crate::clock::Clock;
use crate::side::SimHost;

#[derive(Clone, Copy, Debug, Default)]
struct Clocked {
    since: u64,
    taken: u64,
}

/// Counts a clock at the TSC rate, or at a given rate.
#[derive(Debug)]
pub struct SimFloor {
    clock: Clock,
    counts_per_ms: u64,
    counters: [Clocked; MAX_COUNTERS],
    running: CounterSet,
    arming: Arming,
    /// Time of the timer's next signal; `u64::MAX` if not armed.
    next: u64,
    /// Time between the signals after it.
    every: u64,
    entries: u64,
}

impl SimFloor {
    /// Creates the counters of one vCPU thread; `counts_per_ms` at the TSC rate is its frequency in kHz.
    pub fn new(clock: Clock, counts_per_ms: u64) -> Self {
        Self {
            clock,
            counts_per_ms: counts_per_ms.max(1),
            counters: [Clocked::default(); MAX_COUNTERS],
            running: CounterSet::EMPTY,
            arming: Arming::new(1000),
            next: u64::MAX,
            every: 0,
            entries: 0,
        }
    }

    fn counts(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.counts_per_ms) / 1_000_000) as u64
    }

    fn ns_of(&self, counts: u64) -> u64 {
        let ns = (u128::from(counts) * 1_000_000).div_ceil(u128::from(self.counts_per_ms));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    const fn set(&mut self, setting: Setting) {
        (self.next, self.every) = match setting {
            Setting::At { first, every } => (first, every),
            Setting::Off => (u64::MAX, 0),
        };
    }
}

impl HostCounters for SimFloor {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        Reprogram::Now
    }

    fn overflowed(&mut self, counter: CounterId, _near: bool) -> AfterOverflow {
        self.arming.overflowed(counter, self.clock.now());
        AfterOverflow::Reprogram
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        if !self.running.contains(counter) {
            return 0;
        }
        let total = self.counts(self.clock.now() - self.counters[counter.index()].since);
        let clocked = &mut self.counters[counter.index()];
        let gathered = total - clocked.taken;
        clocked.taken = total;
        gathered
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        let gathered = self.take(counter);
        self.running.remove(counter);
        gathered
    }

    fn start(&mut self, counter: CounterId, _spec: Spec, period: u64) {
        self.counters[counter.index()] = Clocked { since: self.clock.now(), taken: 0 };
        self.running.insert(counter);
        self.arming.started(counter, self.clock.now(), self.ns_of(period));
    }

    fn stop(&mut self, _counter: CounterId, _own_enable: bool) {}

    fn set_period(&mut self, counter: CounterId, period: u64) {
        self.arming.moved(counter, self.clock.now(), self.ns_of(period));
    }

    fn touch(&mut self, _counter: CounterId) {}

    fn keeps_nothing_for(&self) -> CounterSet {
        self.running.complement()
    }

    fn on_entry(&mut self, _enabled: CounterSet) {
        self.entries += 1;
        let now = self.clock.now();
        if let Some(setting) = self.arming.entry(self.running, || now) {
            self.set(setting);
        }
    }

    fn due(&mut self) -> CounterSet {
        CounterSet::EMPTY
    }
}

impl HostPmu for SimFloor {
    fn held(&self) -> u64 {
        0
    }

    fn account(&mut self, counts: &mut Counts) -> HostSide {
        counts.entries += self.entries;
        counts.timer_calls += self.arming.calls;
        HostSide::default()
    }

    fn restart_account(&mut self) {
        (self.entries, self.arming.calls) = (0, 0);
    }

    fn rest(&mut self) {
        if let Some(setting) = self.arming.rest() {
            self.set(setting);
        }
    }
}

impl SimHost for SimFloor {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn user_ns_to_signal(&mut self) -> u64 {
        if self.next == u64::MAX { u64::MAX } else { self.next.saturating_sub(self.clock.now()) }
    }

    /// Takes the timer's signal. Several merge.
    fn take_signals(&mut self) -> u64 {
        let now = self.clock.now();
        let due = self.next <= now;
        if due {
            self.next = now + self.every - (now - self.next) % self.every;
        }
        u64::from(due)
    }

    #[inline]
    fn pass_entry(&mut self) -> bool {
        let is_quiet = self.running.is_empty() && self.arming.passes_in_handler();
        let passes = is_quiet && !self.clock.slice_is_over() && self.user_ns_to_signal() > 0;
        self.entries += u64::from(passes);
        passes
    }
}
