//! No host event at all: a clock counts and a timer signals.
//!
//! The floor arm is an estimated lower bound: guest, exits and vPMU without host events. Whatever its event, a counter
//! advances by one per TSC tick, as the clock stand-ins do after scaling, or at a given pace beside arms that count
//! something rarer. For a PMI the timer costs one call, before the guest's handler, and further ones where the guest
//! starts its counters by itself: see [`crate::arming`]. Clock and timer are a thread's, or a simulated one's.

use std::fmt;

use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use counts::Counts;

use crate::arming::{Arming, Setting};
use crate::backend::{HostError, Scale};
use crate::kick;
use crate::side::HostPmu;
use crate::stats::HostSide;
use crate::sys;

/// The timer's signals follow each other no sooner than after so many system calls of this host: where handling one
/// takes longer than the time to the next, as under a tracer, the thread would come to nothing else, not even to the
/// check whether so many were in vain.
const INTERVAL_CALLS: u64 = 40;

/// A clock and a timer by it.
pub trait Timer: fmt::Debug {
    /// Returns the time.
    fn now(&self) -> u64;

    /// Sets the timer anew.
    fn set(&mut self, setting: Setting);
}

/// The time-stamp counter, and a timer that signals the thread that made it.
#[derive(Debug)]
pub struct TscTimer {
    timer: kick::Timer,
    tsc_khz: u64,
}

impl TscTimer {
    fn ns(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000 / u128::from(self.tsc_khz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl Timer for TscTimer {
    fn now(&self) -> u64 {
        sys::rdtsc()
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::At { first, every } => {
                let left = first.saturating_sub(sys::rdtsc());
                self.timer.arm(self.ns(left).max(1), self.ns(every).max(1));
            }
            Setting::Off => self.timer.arm(0, 0),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Clocked {
    /// Time of its start.
    since: u64,
    /// Counts handed over since then.
    taken: u64,
}

/// Counts the time; signals by one timer per vCPU.
#[derive(Debug)]
pub struct Floor<T = TscTimer> {
    /// Clock and timer.
    pub timer: T,
    counters: [Clocked; MAX_COUNTERS],
    running: CounterSet,
    /// Counts per unit of time.
    pace: Scale,
    arming: Arming,
    entries: u64,
}

impl Floor {
    /// Creates a floor for the calling thread, the one that the timer signals, with so many counts per millisecond; `tsc_khz`: one
    /// count per TSC tick.
    pub fn new(tsc_khz: u64, counts_per_ms: u64) -> Result<Self, HostError> {
        let least = sys::cheapest_call_ns().saturating_mul(INTERVAL_CALLS).saturating_mul(tsc_khz / 1000) / 1000;
        let timer = TscTimer { timer: kick::Timer::new()?, tsc_khz: tsc_khz.max(1) };
        let pace = if counts_per_ms == tsc_khz { Scale::ONE } else { Scale::new(counts_per_ms, tsc_khz) };
        Ok(Self::by(timer, pace, Arming::new(tsc_khz / 1000, least)))
    }
}

impl<T: Timer> Floor<T> {
    /// Creates the counters of one vCPU by a clock, at so many counts per unit of its time.
    pub fn by(timer: T, pace: Scale, arming: Arming) -> Self {
        Self {
            timer,
            counters: [Clocked::default(); MAX_COUNTERS],
            running: CounterSet::EMPTY,
            pace,
            arming,
            entries: 0,
        }
    }
}

impl<T: Timer> HostCounters for Floor<T> {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        Reprogram::Now
    }

    fn overflowed(&mut self, counter: CounterId, _near: bool) -> AfterOverflow {
        self.arming.overflowed(counter, self.timer.now());
        AfterOverflow::Reprogram
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        if !self.running.contains(counter) {
            return 0;
        }
        let clocked = &mut self.counters[counter.index()];
        let total = self.pace.to_guest(self.timer.now().saturating_sub(clocked.since));
        let gathered = total.saturating_sub(clocked.taken);
        clocked.taken = total;
        gathered
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        let gathered = self.take(counter);
        self.running.remove(counter);
        gathered
    }

    fn start(&mut self, counter: CounterId, _spec: Spec, period: u64) {
        let now = self.timer.now();
        self.counters[counter.index()] = Clocked { since: now, taken: 0 };
        self.running.insert(counter);
        self.arming.started(counter, now, self.pace.to_host(period));
    }

    fn set_period(&mut self, counter: CounterId, period: u64) {
        self.arming.moved(counter, self.timer.now(), self.pace.to_host(period));
    }

    fn keeps_nothing_for(&self) -> CounterSet {
        self.running.complement()
    }

    fn on_entry(&mut self, _enabled: CounterSet) {
        self.entries += 1;
        if let Some(setting) = self.arming.entry(self.running, || self.timer.now()) {
            self.timer.set(setting);
        }
    }
}

impl<T: Timer> HostPmu for Floor<T> {
    #[inline]
    fn passes_entry(&mut self) -> bool {
        let quiet = self.running.is_empty() && self.arming.passes_in_handler();
        self.entries += u64::from(quiet);
        quiet
    }

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
            self.timer.set(setting);
        }
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::*;

    #[test]
    fn a_paced_counter_counts_by_the_millisecond() {
        let mut floor = Floor::new(2_000_000, 100).unwrap();
        let before = sys::rdtsc();
        floor.start(CounterId::gp(0).unwrap(), PerfEvtSel::from_bits(0).spec(), 50);
        let Some(Setting::At { first, .. }) = floor.arming.entry(floor.running, || before) else { panic!() };
        let slack = sys::rdtsc() - before;
        assert!((1_000_000..=1_000_000 + slack).contains(&(first - before)), "50 counts are half a millisecond");
    }
}
