//! Counters without host events: a virtual clock counts and a timer signals, at no cost, behind [`host_pmu::floor`].

use host_pmu::arming::{Arming, Setting};
use host_pmu::backend::Scale;
use host_pmu::floor::{Floor, Timer};
use host_pmu::side::HostPmu;

use crate::clock::Clock;
use crate::side::SimHost;

/// Counts a clock at the TSC rate, or at a given rate.
pub(crate) type SimFloor = Floor<ClockTimer>;

/// A vCPU thread's clock and a timer by it.
#[derive(Debug)]
pub struct ClockTimer {
    pub(crate) clock: Clock,
    /// Time of the timer's next signal; `u64::MAX` if not armed.
    next: u64,
    /// Time between the signals after it.
    every: u64,
}

/// Creates the counters of one vCPU thread; `counts_per_ms` at the TSC rate is its frequency in kHz.
pub(crate) fn floor(clock: Clock, counts_per_ms: u64) -> SimFloor {
    let timer = ClockTimer { clock, next: u64::MAX, every: 0 };
    Floor::by(timer, Scale::new(counts_per_ms, 1_000_000), Arming::new(1000, 0))
}

impl ClockTimer {
    /// Returns the ns until the timer signals.
    pub const fn ns_to_signal(&self) -> u64 {
        if self.next == u64::MAX { u64::MAX } else { self.next.saturating_sub(self.clock.now()) }
    }

    /// Takes the timer's signal; returns whether one was due. Several merge.
    pub const fn take_signal(&mut self) -> bool {
        let now = self.clock.now();
        let due = self.next <= now;
        if due {
            self.next = now + self.every - (now - self.next) % self.every;
        }
        due
    }
}

impl Timer for ClockTimer {
    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn set(&mut self, setting: Setting) {
        (self.next, self.every) = match setting {
            Setting::At { first, every } => (first, every),
            Setting::Off => (u64::MAX, 0),
        };
    }
}

impl SimHost for SimFloor {
    fn clock(&mut self) -> &mut Clock {
        &mut self.timer.clock
    }

    fn user_ns_to_signal(&mut self) -> u64 {
        self.timer.ns_to_signal()
    }

    fn take_signals(&mut self) -> u64 {
        u64::from(self.timer.take_signal())
    }

    #[inline]
    fn pass_entry(&mut self) -> bool {
        !self.timer.clock.slice_is_over() && self.timer.ns_to_signal() > 0 && self.passes_entry()
    }
}
