//! Counters without host events: a virtual clock counts and a timer signals, at no cost, behind [`host_pmu::floor`].

use host_pmu::backend::Scale;
use host_pmu::floor::{Floor, Setting, Timer};

use crate::clock::Clock;
use crate::side::SimHost;

/// Counts a clock at the TSC rate, or at a given rate.
pub(crate) type SimFloor = Floor<ClockTimer>;

/// A vCPU thread's clock and a timer by it.
#[derive(Debug)]
pub struct ClockTimer {
    pub(crate) clock: Clock,
    setting: Setting,
}

/// Creates the counters of one vCPU thread; `counts_per_ms` at the TSC rate is its frequency in kHz.
pub(crate) fn floor(clock: Clock, counts_per_ms: u64) -> SimFloor {
    Floor::by(ClockTimer { clock, setting: Setting::OFF }, Scale::new(counts_per_ms, 1_000_000), 1000, 0)
}

impl ClockTimer {
    /// Returns the ns until the timer signals.
    pub const fn ns_to_signal(&self) -> u64 {
        let Setting { first, .. } = self.setting;
        if first == u64::MAX { u64::MAX } else { first.saturating_sub(self.clock.now()) }
    }

    /// Takes the timer's signal; returns whether one was due. Several merge.
    pub const fn take_signal(&mut self) -> bool {
        let now = self.clock.now();
        let due = self.setting.first <= now;
        if due {
            self.setting.first = self.setting.next(now);
        }
        due
    }
}

impl Timer for ClockTimer {
    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn set(&mut self, setting: Setting) {
        self.setting = setting;
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
    fn is_quiet(&mut self) -> bool {
        !self.timer.clock.slice_is_over() && self.timer.ns_to_signal() > 0
    }
}
