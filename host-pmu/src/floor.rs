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
use crate::backend::Scale;
use crate::kick::{self, TimerError};
use crate::side::HostPmu;
use crate::stats::{HostSide, Recorder};
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

    /// Returns how late the VMM is to see, `since_return` ns after KVM_RUN's return, the signal of a counter that was `due`; `None`
    /// if that is not known.
    fn latency_ns(&self, _due: u64, _since_return: u64) -> Option<u64> {
        None
    }
}

/// The time-stamp counter, and a timer that signals the thread that made it.
#[derive(Debug)]
pub struct TscTimer {
    timer: kick::Timer,
    tsc_khz: u64,
    /// TSC at which the timer fires first; 0 if it is not armed.
    first: u64,
    /// Ticks between the times after that.
    every: u64,
}

impl TscTimer {
    fn ns(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000 / u128::from(self.tsc_khz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Returns the latency of a signal that is seen at `now`. The signal of an overflow is the first at which its counter was due.
    fn latency_at(&self, now: u64, due: u64, since_return: u64) -> Option<u64> {
        if self.first == 0 {
            return None;
        }
        let ahead = due.saturating_sub(self.first);
        let fired = self.first.saturating_add(ahead.next_multiple_of(self.every));
        // The counter was due while a signal before was on its way: that one brought it.
        let fired = if fired > now { due } else { fired };
        let late = self.ns(now.saturating_sub(fired));
        // It fired before that return, or after it.
        Some(if late >= since_return { late - since_return } else { late })
    }
}

impl Timer for TscTimer {
    fn now(&self) -> u64 {
        sys::rdtsc()
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::At { first, every } => {
                let now = sys::rdtsc();
                // A time in the past is late by the VMM, not by the signal.
                (self.first, self.every) = (first.max(now), every.max(1));
                self.timer.arm(self.ns(first.saturating_sub(now)).max(1), self.ns(every).max(1));
            }
            Setting::Off => {
                self.first = 0;
                self.timer.arm(0, 0);
            }
        }
    }

    fn latency_ns(&self, due: u64, since_return: u64) -> Option<u64> {
        self.latency_at(sys::rdtsc(), due, since_return)
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
    signal_ns: Recorder,
    entries: u64,
}

impl Floor {
    /// Creates a floor for the calling thread, the one that the timer signals, with so many counts per millisecond; `tsc_khz`: one
    /// count per TSC tick.
    pub fn new(tsc_khz: u64, counts_per_ms: u64) -> Result<Self, TimerError> {
        let least = sys::cheapest_call_ns().saturating_mul(INTERVAL_CALLS).saturating_mul(tsc_khz / 1000) / 1000;
        let timer = TscTimer { timer: kick::Timer::new()?, tsc_khz: tsc_khz.max(1), first: 0, every: 1 };
        let pace = if counts_per_ms == tsc_khz { Scale::ONE } else { Scale::new(counts_per_ms, tsc_khz) };
        let floor = Self::by(timer, pace, Arming::new(tsc_khz / 1000, least));
        Ok(Self { signal_ns: Recorder::reserved(), ..floor })
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
            signal_ns: Recorder::default(),
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
        HostSide { signal_ns: self.signal_ns.clone(), ..HostSide::default() }
    }

    fn restart_account(&mut self) {
        (self.entries, self.arming.calls) = (0, 0);
        self.signal_ns.reset();
    }

    /// A signal of no overflow has no latency.
    fn saw_signals(&mut self, since_return: u64) {
        let due = self.arming.take_signalled();
        if let Some(late) = due.and_then(|due| self.timer.latency_ns(due, since_return)) {
            self.signal_ns.record(late);
        }
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

    #[test]
    fn a_signal_is_late_by_the_time_since_the_timers_first_one_for_a_due_counter() {
        let mut timer = Floor::new(1_000_000, 1_000_000).unwrap().timer;
        for (first, due, found, since_return, late, why) in [
            (1000, 1000, 1050, 20, Some(30), "seen by the return at 1030"),
            (1000, 1000, 1050, 60, Some(50), "it fired after the return"),
            (1000, 700, 1040, 0, Some(40), "a timer that is late"),
            (1000, 1120, 1450, 0, Some(250), "that at 1100 was early, those after 1200 merged with it"),
            (1000, 1120, 1190, 0, Some(70), "due while the signal of 1100 was on its way"),
            (0, 1120, 1450, 0, None, "the timer is off"),
        ] {
            (timer.first, timer.every) = (first, 100);
            assert_eq!(timer.latency_at(found, due, since_return), late, "{why}");
        }
    }

    #[test]
    fn a_signal_of_no_overflow_has_no_latency() {
        let mut floor = Floor::new(1_000_000, 1_000_000).unwrap();
        floor.timer.first = 1;
        for recorded in [0, 1] {
            floor.saw_signals(0);
            assert_eq!(floor.account(&mut Counts::default()).signal_ns.histogram().len(), recorded);
            floor.arming.overflowed(CounterId::gp(0).unwrap(), 1);
        }
    }
}
