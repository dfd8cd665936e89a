//! No host event at all: the time-stamp counter counts and a timer signals.
//!
//! The floor arm is an estimated lower bound: guest, exits and vPMU without host events. Whatever its event, a counter
//! advances by one per TSC tick, as the clock stand-ins do after scaling, or at a given pace beside arms that count
//! something rarer. For a PMI the timer costs one call, before the guest's handler, and further ones where the guest
//! starts its counters by itself: see [`crate::arming`].

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

#[derive(Clone, Copy, Debug, Default)]
struct Clocked {
    running: bool,
    /// TSC at its start.
    since: u64,
    /// Counts handed over since then.
    taken: u64,
}

/// Counts TSC ticks; signals by one timer per vCPU.
#[derive(Debug)]
pub struct Floor {
    counters: [Clocked; MAX_COUNTERS],
    running: CounterSet,
    timer: sys::ThreadTimer,
    tsc_khz: u64,
    pace: Scale,
    arming: Arming,
    /// TSC at which the timer fires first; 0 if it is not armed.
    first: u64,
    /// Ticks between the times after that.
    every: u64,
    signal_ns: Recorder,
    entries: u64,
}

impl Floor {
    /// Creates a floor for the calling thread, the one that the timer signals. One count per TSC tick.
    pub fn new(tsc_khz: u64) -> Result<Self, TimerError> {
        Self::with_pace(tsc_khz, Scale::ONE)
    }

    /// Creates the host side of the floor with `counts` per millisecond in place of the TSC's rate.
    pub fn counting_per_ms(tsc_khz: u64, counts: u64) -> Result<Self, TimerError> {
        Self::with_pace(tsc_khz, Scale::new(counts, tsc_khz))
    }

    fn with_pace(tsc_khz: u64, pace: Scale) -> Result<Self, TimerError> {
        let least = sys::cheapest_call_ns().saturating_mul(INTERVAL_CALLS).saturating_mul(tsc_khz / 1000) / 1000;
        Ok(Self {
            counters: [Clocked::default(); MAX_COUNTERS],
            running: CounterSet::EMPTY,
            timer: sys::ThreadTimer::new(kick::signal())?,
            tsc_khz: tsc_khz.max(1),
            pace,
            arming: Arming::new(tsc_khz / 1000).with_least_interval(least),
            first: 0,
            every: 1,
            signal_ns: Recorder::reserved(),
            entries: 0,
        })
    }

    /// Returns the number of guest entries so far.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    fn ns(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000 / u128::from(self.tsc_khz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Notes that the VMM sees the timer's signal at `now`, by TSC, `since_return` ns after KVM_RUN's return. The
    /// signal of an overflow is the first at which its counter was due; one of no overflow has no latency.
    fn saw_signal_at(&mut self, now: u64, since_return: u64) {
        let Some(due) = self.arming.take_signalled().filter(|_| self.first > 0) else { return };
        let ahead = due.saturating_sub(self.first);
        let fired = self.first.saturating_add(ahead.next_multiple_of(self.every));
        // The counter was due while a signal before was on its way: that one brought it.
        let fired = if fired > now { due } else { fired };
        let late = self.ns(now.saturating_sub(fired));
        // It fired before that return, or after it.
        self.signal_ns.record(if late >= since_return { late - since_return } else { late });
    }

    fn set(&mut self, setting: Setting) {
        // Neither value is refused: both are in range, and the timer lives as long as this.
        let _ = match setting {
            Setting::At { first, every } => {
                let now = sys::rdtsc();
                // A time in the past is late by the VMM, not by the signal.
                (self.first, self.every) = (first.max(now), every.max(1));
                self.timer.arm(self.ns(first.saturating_sub(now)).max(1), self.ns(every).max(1))
            }
            Setting::Off => {
                self.first = 0;
                self.timer.arm(0, 0)
            }
        };
    }
}

impl HostCounters for Floor {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        Reprogram::Now
    }

    fn overflowed(&mut self, counter: CounterId, _near: bool) -> AfterOverflow {
        self.arming.overflowed(counter, sys::rdtsc());
        AfterOverflow::Reprogram
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        let clocked = &mut self.counters[counter.index()];
        if !clocked.running {
            return 0;
        }
        let total = self.pace.to_guest(sys::rdtsc().saturating_sub(clocked.since));
        let gathered = total.saturating_sub(clocked.taken);
        clocked.taken = total;
        gathered
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        let gathered = self.take(counter);
        self.counters[counter.index()].running = false;
        self.running.remove(counter);
        gathered
    }

    fn start(&mut self, counter: CounterId, _spec: Spec, period: u64) {
        let now = sys::rdtsc();
        self.counters[counter.index()] = Clocked { running: true, since: now, taken: 0 };
        self.running.insert(counter);
        self.arming.started(counter, now, self.pace.to_host(period));
    }

    fn stop(&mut self, _counter: CounterId, _own_enable: bool) {}

    fn set_period(&mut self, counter: CounterId, period: u64) {
        self.arming.moved(counter, sys::rdtsc(), self.pace.to_host(period));
    }

    fn touch(&mut self, _counter: CounterId) {}

    fn keeps_nothing_for(&self) -> CounterSet {
        self.running.complement()
    }

    fn on_entry(&mut self, _enabled: CounterSet) {
        self.entries += 1;
        if let Some(setting) = self.arming.entry(self.running, sys::rdtsc) {
            self.set(setting);
        }
    }

    fn due(&mut self) -> CounterSet {
        CounterSet::EMPTY
    }
}

impl HostPmu for Floor {
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

    fn saw_signals(&mut self, since_return: u64) {
        self.saw_signal_at(sys::rdtsc(), since_return);
    }

    fn rest(&mut self) {
        if let Some(setting) = self.arming.rest() {
            self.set(setting);
        }
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::*;

    #[test]
    fn a_paced_counter_counts_by_the_millisecond() {
        let mut floor = Floor::counting_per_ms(2_000_000, 100).unwrap();
        let counter = CounterId::gp(0).unwrap();
        let before = sys::rdtsc();
        floor.start(counter, PerfEvtSel::from_bits(0).spec(), 50);
        let Some(Setting::At { first, .. }) = floor.arming.entry(floor.running, || before) else { panic!() };
        let slack = sys::rdtsc() - before;
        assert!((1_000_000..=1_000_000 + slack).contains(&(first - before)), "50 counts are half a millisecond");
    }

    #[test]
    fn a_signal_is_late_by_the_time_since_the_timers_first_one_for_a_due_counter() {
        let mut floor = Floor::new(1_000_000).unwrap();
        let counter = CounterId::gp(0).unwrap();
        let values = |floor: &mut Floor| -> Vec<u64> {
            let times = floor
                .account(&mut Counts::default())
                .signal_ns
                .histogram()
                .iter_recorded()
                .map(|step| step.value_iterated_to())
                .collect();
            floor.restart_account();
            times
        };
        // The counter is due at `due` and found at `found`, `since_return` ns after the return.
        let overflow = |floor: &mut Floor, due: u64, found: u64, since_return: u64| {
            floor.arming.entry(CounterSet::EMPTY, || due);
            floor.arming.moved(counter, due, 0);
            floor.arming.overflowed(counter, found);
            floor.saw_signal_at(found, since_return);
            values(floor)
        };
        (floor.first, floor.every) = (1000, 100);
        assert_eq!(overflow(&mut floor, 1000, 1050, 20), [30], "seen by the return at 1030");
        assert_eq!(overflow(&mut floor, 1000, 1050, 60), [50], "it fired after the return");
        assert_eq!(overflow(&mut floor, 700, 1040, 0), [40], "a timer that is late");
        assert_eq!(
            overflow(&mut floor, 1120, 1450, 0),
            [250],
            "that at 1100 was early, those after 1200 merged with it"
        );
        assert_eq!(overflow(&mut floor, 1120, 1190, 0), [70], "due while the signal of 1100 was on its way");
        floor.saw_signal_at(1400, 0);
        assert!(values(&mut floor).is_empty(), "an early signal, of no overflow");
        floor.first = 0;
        assert_eq!(overflow(&mut floor, 1120, 1450, 0), [0; 0], "the timer is off");
    }
}
