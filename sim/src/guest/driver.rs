//! The guest's PMU driver: the register accesses of `guest/payload/c/pmu.c`, one for one.

use arch_pmu::intel::{IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_CTRL};

use super::events::{EVNTSEL_EN, Event, FIXED, Move};
use super::state::{Guest, NOBODY};
use crate::side::SimHost;

impl<H: SimHost> Guest<H> {
    /// Mirrors `x86_pmu_disable`.
    pub(super) fn pmu_disable(&mut self) {
        if !self.enabled {
            self.go(4);
            return;
        }
        if self.is_intel() {
            self.go(10);
            self.disable_counters();
            self.go(1);
        } else {
            self.go(8);
            self.disable_counters();
        }
    }

    pub(super) fn disable_counters(&mut self) {
        self.enabled = false;
        if !self.is_intel() {
            return self.amd_disable_all();
        }
        self.wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
    }

    /// Mirrors `x86_pmu_enable`. Overflow handlers see the map of the previously active events until here.
    pub(super) fn pmu_enable(&mut self) {
        if !self.is_intel() {
            self.enabled = true;
            return self.amd_enable_all();
        }
        self.map = [NOBODY; 64];
        for n in 0..self.events.active_count {
            let at = self.events.active(n);
            if let Some(index) = self.events.all[at].index {
                self.map[usize::from(index)] = at as u8;
            }
        }
        self.enabled = true;
        self.go(103);
        if self.events.active_count > 0 {
            self.go(3);
            self.go(6 * self.events.active_count as u64);
        }
        self.wrmsr(IA32_PERF_GLOBAL_CTRL, self.global_ctrl);
        self.go(1);
    }

    /// Mirrors `x86_pmu_stop` with PERF_EF_UPDATE.
    pub(super) fn stop(&mut self, at: usize) {
        let event = self.events.all[at];
        if event.is_fixed() {
            self.go(6);
            self.set_fixed(&event, 0, 12);
            self.go(4);
        } else {
            self.go(9);
            self.wrmsr(event.config_msr, event.config & !EVNTSEL_EN);
            if self.is_intel() {
                self.go(4);
            } else {
                self.amd_stopped(at);
            }
        }
        self.read_counter(at);
        self.go(12);
    }

    /// Mirrors `x86_perf_event_update`.
    pub(super) fn update(&mut self, at: usize) {
        self.go(1);
        self.read_counter(at);
        self.go(11);
    }

    fn read_counter(&mut self, at: usize) {
        let now = self.rdmsr(self.events.all[at].counter_msr);
        self.events.all[at].update(now);
    }

    /// Mirrors `x86_pmu_start` with PERF_EF_RELOAD.
    fn start(&mut self, at: usize) {
        self.go(16);
        self.set_period(at, Some(5));
        let event = self.events.all[at];
        if event.is_fixed() {
            self.go(5);
            self.set_fixed(&event, event.fixed_bits, 13);
        } else if self.is_intel() {
            self.go(9);
            self.wrmsr(event.config_msr, event.config);
        } else {
            self.amd_start(at);
        }
        self.go(1);
    }

    /// Mirrors `pmu_program`: an event that was just opened gets its counter ready.
    pub(super) fn program(&mut self, at: usize) {
        let event = self.events.all[at];
        if event.is_fixed() {
            self.go(5);
            self.set_fixed(&event, 0, 12);
            self.go(1);
        } else {
            self.go(8);
            self.wrmsr(event.config_msr, event.config & !EVNTSEL_EN);
        }
        self.go(15);
        // It begins with a whole period.
        self.set_period(at, None);
        self.go(1);
    }

    /// Mirrors `x86_perf_event_set_period`; it goes `over` if the period is over.
    fn set_period(&mut self, at: usize, over: Option<u64>) {
        let event = &mut self.events.all[at];
        let (msr, next) = (event.counter_msr, event.next_left());
        if let Some(over) = over.filter(|_| next.over) {
            self.go(over);
        }
        self.wrmsr(msr, next.value);
    }

    /// Mirrors `intel_pmu_enable_fixed` and `_disable_fixed`; `between` its read and its write.
    fn set_fixed(&mut self, event: &Event, bits: u64, between: u64) {
        let shift = (usize::from(event.index.unwrap_or(0)) - FIXED) * 4;
        let ctrl = self.rdmsr(IA32_FIXED_CTR_CTRL);
        self.go(between);
        self.wrmsr(IA32_FIXED_CTR_CTRL, ctrl & !(0xf << shift) | bits << shift);
    }

    pub(super) fn stop_active(&mut self, now: u64) {
        let ran = now.wrapping_sub(self.sched_in);
        if self.events.active_count == 0 {
            self.go(4);
            return;
        }
        self.go(12);
        for n in 0..self.events.active_count {
            self.go(4);
            let at = self.events.active(n);
            self.stop(at);
            let event = &mut self.events.all[at];
            event.running = event.running.wrapping_add(ran);
            self.go(3);
        }
        self.go(6);
    }

    /// Starts the active events; returns the bits of their counters.
    pub(super) fn start_active(&mut self) -> u64 {
        let mut started = 0;
        self.go(3);
        self.sched_in = self.rdtsc().1;
        self.go(7);
        if self.events.active_count > 0 {
            self.go(4);
        }
        for n in 0..self.events.active_count {
            self.go(2);
            let at = self.events.active(n);
            self.start(at);
            started |= 1 << self.events.all[at].index.unwrap_or(0);
            self.go(8);
        }
        self.go(5);
        started
    }

    /// Mirrors `perf_adjust_freq_unthr_context`, at each tick.
    pub(super) fn adjust_at_tick(&mut self) {
        // Its driver is on, and one event counts: the first always finds a counter.
        self.go(if self.is_intel() { 14 } else { 12 });
        self.disable_counters();
        if !self.is_intel() {
            self.go(1);
        }
        self.go(3);
        for n in 0..self.events.active_count {
            let at = self.events.active(n);
            if self.events.all[at].freq {
                self.adjust_event(at);
            } else {
                self.go(3);
            }
            self.go(3);
        }
        self.go(5);
        self.pmu_enable();
    }

    fn adjust_event(&mut self, at: usize) {
        let (tick, hz, tsc_hz) = (self.tick_tsc, self.boot.freq_hz, self.tsc_hz);
        self.go(5);
        self.stop(at);
        let event = &mut self.events.all[at];
        let count = event.count.wrapping_sub(event.freq_count);
        event.freq_count = event.count;
        self.go(5);
        if count > 0 {
            let event = &mut self.events.all[at];
            let moved = event.adjust_period(tick, count, hz, tsc_hz);
            let reset = event.left > event.period.wrapping_mul(8);
            if reset {
                event.left = 0;
            }
            self.go(18);
            self.go_moved(moved, [3, 2, 5]);
            if reset {
                self.go(2);
            }
        }
        self.go(2);
        self.start(at);
    }

    fn go_moved(&mut self, moved: Move, [divided, grows, shrinks]: [u64; 3]) {
        if moved.divided {
            self.go(divided);
        }
        self.go(if moved.grows { grows } else { shrinks });
    }

    /// Mirrors the frequency part of `__perf_event_overflow`.
    pub(super) fn adjust_overflow(&mut self, at: usize, now: u64) {
        let (tick, hz, tsc_hz) = (self.tick_tsc, self.boot.freq_hz, self.tsc_hz);
        let event = &mut self.events.all[at];
        let elapsed = now.wrapping_sub(event.freq_tsc);
        event.freq_tsc = now;
        if elapsed >= tick.wrapping_mul(2) {
            self.go(7);
            return;
        }
        let moved = event.adjust_period(elapsed, event.period.cast_unsigned(), hz, tsc_hz);
        let reset = event.left > event.period.wrapping_mul(8);
        if reset {
            event.left = 0;
        }
        self.go(24);
        self.go_moved(moved, [3, 2, 5]);
        if reset {
            let event = &mut self.events.all[at];
            let (msr, next) = (event.counter_msr, event.next_left());
            self.go(13);
            self.wrmsr(msr, next.value);
            self.go(1);
        } else {
            self.go(1);
        }
    }
}
