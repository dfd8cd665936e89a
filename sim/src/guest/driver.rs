//! The guest's PMU driver: the register accesses of `guest/payload/pmu.c`, one for one.
//!
//! The numbers given to `execute` are the payload's instructions between two accesses, counted in its disassembly.

use arch_pmu::intel::{IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_CTRL, IA32_PERFEVTSEL0};

use super::event::{EVNTSEL_EN, Event, FIXED};
use super::state::{Guest, NOBODY};
use crate::side::SimHost;

impl<H: SimHost> Guest<H> {
    /// `x86_pmu_disable`.
    pub(super) fn pmu_disable(&mut self) {
        if !self.enabled {
            return;
        }
        self.enabled = false;
        self.cpu.execute(6);
        self.wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
    }

    /// `x86_pmu_enable`. Overflow handlers see the map of the previously active events until here.
    pub(super) fn pmu_enable(&mut self) {
        self.map = [NOBODY; 64];
        for n in 0..self.events.active_count {
            let at = self.events.active(n);
            if let Some(index) = self.events.all[at].index {
                self.map[usize::from(index)] = at as u8;
            }
        }
        self.enabled = true;
        self.cpu.execute(60 + 6 * self.events.active_count as u64);
        self.wrmsr(IA32_PERF_GLOBAL_CTRL, self.global_ctrl);
    }

    /// `x86_pmu_stop` with PERF_EF_UPDATE.
    pub(super) fn stop(&mut self, at: usize) {
        let event = self.events.all[at];
        if event.is_fixed() {
            self.set_fixed(&event, 0);
        } else {
            self.cpu.execute(8);
            let index = u32::from(event.index.unwrap_or(0));
            self.wrmsr(IA32_PERFEVTSEL0 + index, event.config & !EVNTSEL_EN);
        }
        self.update(at);
    }

    /// `x86_perf_event_update`.
    pub(super) fn update(&mut self, at: usize) {
        self.cpu.execute(3);
        let now = self.rdmsr(self.events.all[at].counter_msr());
        self.cpu.execute(12);
        self.events.all[at].update(now);
    }

    /// `x86_pmu_start` with PERF_EF_RELOAD.
    fn start(&mut self, at: usize) {
        self.cpu.execute(18);
        self.set_period(at);
        let event = self.events.all[at];
        if event.is_fixed() {
            self.set_fixed(&event, event.fixed_bits);
        } else {
            self.cpu.execute(6);
            let index = u32::from(event.index.unwrap_or(0));
            self.wrmsr(IA32_PERFEVTSEL0 + index, event.config);
        }
        self.cpu.execute(10);
    }

    pub(super) fn set_period(&mut self, at: usize) {
        let value = self.events.all[at].next_left();
        let msr = self.events.all[at].counter_msr();
        self.wrmsr(msr, value);
    }

    /// `intel_pmu_enable_fixed` and `_disable_fixed`.
    pub(super) fn set_fixed(&mut self, event: &Event, bits: u64) {
        let shift = (usize::from(event.index.unwrap_or(0)) - FIXED) * 4;
        self.cpu.execute(6);
        let ctrl = self.rdmsr(IA32_FIXED_CTR_CTRL);
        self.cpu.execute(10);
        self.wrmsr(IA32_FIXED_CTR_CTRL, ctrl & !(0xf << shift) | bits << shift);
    }

    pub(super) fn stop_active(&mut self, now: u64) {
        let ran = now - self.sched_in;
        for n in 0..self.events.active_count {
            let at = self.events.active(n);
            self.stop(at);
            self.events.all[at].running += ran;
        }
    }

    /// Starts the active events; returns the bits of their counters.
    pub(super) fn start_active(&mut self) -> u64 {
        let mut started = 0;
        self.sched_in = self.cpu.tsc();
        for n in 0..self.events.active_count {
            let at = self.events.active(n);
            self.start(at);
            started |= 1 << self.events.all[at].index.unwrap_or(0);
        }
        started
    }

    /// `perf_adjust_freq_unthr_context`, at each tick.
    pub(super) fn adjust_at_tick(&mut self) {
        self.pmu_disable();
        let (tick, hz, tsc_hz) = (self.tick_tsc, self.boot.freq_hz, self.tsc_hz);
        for n in 0..self.events.active_count {
            let at = self.events.active(n);
            if !self.events.all[at].freq {
                continue;
            }
            self.stop(at);
            self.cpu.execute(25);
            let event = &mut self.events.all[at];
            let count = event.count - event.freq_count;
            event.freq_count = event.count;
            if count > 0 {
                event.adjust_period(tick, count, hz, tsc_hz);
                if event.left > 8 * event.period {
                    event.left = 0;
                }
            }
            self.start(at);
        }
        self.pmu_enable();
    }
}
