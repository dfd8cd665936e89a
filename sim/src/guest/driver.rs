//! The guest's PMU driver and its PMI handler: the register accesses of `guest/payload/pmu.c` and `nmi.c`, one for one.
//!
//! The numbers given to `execute` are the payload's instructions between two accesses, counted in its disassembly.

use arch_pmu::regs::{
    IA32_FIXED_CTR_CTRL, IA32_FIXED_CTR0, IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERF_GLOBAL_STATUS,
    IA32_PERFEVTSEL0, IA32_PMC0,
};

use super::Guest;
use super::events::{Event, FIXED, MAX_PERIOD};
use crate::vcpu::SimHost;

pub(super) const EVNTSEL_EN: u64 = 1 << 22;
/// Counters are 48 bits wide.
const COUNTER_MASK: u64 = (1 << 48) - 1;
/// The handler goes round its loop at most this often.
const MOST_LOOPS: u32 = 100;
/// No event has this counter.
pub(super) const NOBODY: u8 = u8::MAX;

impl Event {
    fn counter_msr(&self) -> u32 {
        let index = u32::from(self.index.unwrap_or(0));
        if index >= FIXED as u32 { IA32_FIXED_CTR0 + index - FIXED as u32 } else { IA32_PMC0 + index }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.index.is_some_and(|index| usize::from(index) >= FIXED)
    }

    /// `x86_perf_event_update` with the counter's value.
    fn update(&mut self, now: u64) {
        let delta = now.wrapping_sub(self.prev) & COUNTER_MASK;
        self.prev = now;
        self.count = self.count.wrapping_add(delta);
        self.left = self.left.wrapping_sub(delta.cast_signed());
    }

    /// `x86_perf_event_set_period` up to the write: the value to write.
    fn next_left(&mut self) -> u64 {
        let mut left = self.left;
        if left <= 0 {
            left += self.period;
            if left <= 0 {
                left = self.period;
            }
            self.left = left;
        }
        let left = left.clamp(2, MAX_PERIOD);
        self.prev = left.wrapping_neg().cast_unsigned();
        // The payload writes the low half and 0xffff above it; the vPMU extends bit 31.
        self.prev & COUNTER_MASK
    }

    /// `perf_adjust_period`: towards `hz` overflows per second, by an eighth of the distance.
    fn adjust_period(&mut self, elapsed: u64, count: u64, hz: u64, tsc_hz: u64) {
        let divisor = u128::from(elapsed.saturating_mul(hz));
        let wanted = (u128::from(count) * u128::from(tsc_hz)).checked_div(divisor);
        let wanted = wanted.map_or(MAX_PERIOD, |period| i64::try_from(period).unwrap_or(MAX_PERIOD).min(MAX_PERIOD));
        let delta = wanted - self.period;
        self.period += (if delta >= 0 { delta + 7 } else { delta - 7 }) / 8;
        self.period = self.period.max(1);
    }
}

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

    /// `x86_pmu_enable`: until here overflow handlers see the map of what counted before.
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

    /// The bits of the counters started.
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

    /// The frequency part of `__perf_event_overflow`.
    fn adjust_after_overflow(&mut self, rearmed: u64) {
        let now = self.cpu.tsc();
        let (tick, hz, tsc_hz) = (self.tick_tsc, self.boot.freq_hz, self.tsc_hz);
        let mut left = rearmed;
        while left != 0 {
            let at = self.map[left.trailing_zeros() as usize];
            left &= left - 1;
            if at == NOBODY || !self.events.all[usize::from(at)].freq {
                continue;
            }
            self.cpu.execute(40);
            let event = &mut self.events.all[usize::from(at)];
            let elapsed = now - event.freq_tsc;
            event.freq_tsc = now;
            if elapsed < 2 * tick {
                event.adjust_period(elapsed, event.period.cast_unsigned(), hz, tsc_hz);
                if event.left > 8 * event.period {
                    event.left = 0;
                    self.set_period(usize::from(at));
                }
            }
        }
    }

    /// `intel_pmu_handle_irq` with perf_v4_pmi=n, from GLOBAL_CTRL off to on. STATUS as first read, and the counters re-armed.
    pub(super) fn handle_pmi(&mut self) -> (u64, u64) {
        self.cpu.execute(12);
        self.wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
        self.cpu.execute(1);
        let status = self.rdmsr(IA32_PERF_GLOBAL_STATUS);
        self.cpu.execute(8);
        let mut rearmed = 0;
        if self.enabled {
            if status != 0 {
                rearmed = self.handle_overflows(status);
            }
            self.cpu.execute(5);
            self.cpu.write_lvtpc(self.lvtpc);
            self.cpu.execute(4);
            self.wrmsr(IA32_PERF_GLOBAL_CTRL, self.global_ctrl);
        } else {
            if status != 0 {
                self.count_late(status);
            }
            self.cpu.execute(3);
            self.cpu.write_lvtpc(self.lvtpc);
        }
        self.cpu.execute(1);
        (status, rearmed)
    }

    fn handle_overflows(&mut self, first: u64) -> u64 {
        let (mut status, mut rearmed) = (first, 0);
        for _ in 0..MOST_LOOPS {
            self.cpu.execute(6);
            self.wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, status);
            rearmed |= status;
            let mut left = status;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                self.cpu.execute(9);
                match self.map[bit] {
                    NOBODY => rearmed &= !(1 << bit),
                    at => self.restart(usize::from(at)),
                }
            }
            self.cpu.execute(3);
            status = self.rdmsr(IA32_PERF_GLOBAL_STATUS);
            self.cpu.execute(7);
            if status == 0 {
                break;
            }
        }
        if self.freq {
            self.adjust_after_overflow(rearmed);
        }
        rearmed
    }

    /// `intel_pmu_save_and_restart`.
    fn restart(&mut self, at: usize) {
        let msr = self.events.all[at].counter_msr();
        let now = self.rdmsr(msr);
        self.cpu.execute(27);
        let event = &mut self.events.all[at];
        event.update(now);
        event.overflows += 1;
        let value = event.next_left();
        self.wrmsr(msr, value);
        self.cpu.execute(2);
    }

    /// The driver has the counters off and reads them itself: only acknowledge.
    fn count_late(&mut self, status: u64) {
        self.cpu.execute(10);
        self.wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, status);
        let mut left = status;
        while left != 0 {
            let at = self.map[left.trailing_zeros() as usize];
            left &= left - 1;
            self.cpu.execute(8);
            if at != NOBODY {
                self.events.all[usize::from(at)].overflows += 1;
            }
        }
    }
}
