//! AMD's driver and NMI handlers where they differ from Intel's: the register accesses of `guest/payload/c/amd.c` and
//! `amd_nmi.c`, one for one.

use arch_pmu::amd::{PERF_CNTR_GLOBAL_CTL, PERF_CNTR_GLOBAL_STATUS, PERF_CNTR_GLOBAL_STATUS_CLR};

use super::events::{Driver, EVNTSEL_EN, Started};
use super::state::Guest;
use crate::side::SimHost;

/// OVERFLOW_WAIT_COUNT of Linux.
const LOOKS: u32 = 50;
/// A counter whose top bit is off has passed 0.
const TOP_BIT: u64 = 1 << 47;

impl<H: SimHost> Guest<H> {
    pub(super) fn is_intel(&self) -> bool {
        self.driver == Driver::Intel
    }

    fn is_v2(&self) -> bool {
        self.driver == Driver::AmdV2
    }

    /// Begins a loop over the started counters.
    fn each_started(&mut self) -> impl Iterator<Item = (u64, usize)> + use<H> {
        if self.started.mask != 0 {
            self.go(1);
        }
        self.started.each()
    }

    /// Mirrors `amd_pmu_cpu_reset`.
    pub(super) fn amd_off_at_reset(&mut self) {
        if self.is_v2() {
            self.go(9);
            self.wrmsr(PERF_CNTR_GLOBAL_CTL, 0);
            self.go(2);
        } else {
            self.go(8);
        }
    }

    /// Mirrors `amd_pmu_disable_all` and `amd_pmu_v2_disable_all`.
    pub(super) fn amd_disable_all(&mut self) {
        if self.is_v2() {
            self.go(6);
            self.wrmsr(PERF_CNTR_GLOBAL_CTL, 0);
            self.go(1);
        } else {
            self.go(6);
            for (_, at) in self.each_started() {
                let msr = self.events.all[at].config_msr;
                self.go(3);
                let config = self.rdmsr(msr);
                self.go(5);
                if config & EVNTSEL_EN != 0 {
                    self.go(4);
                    self.wrmsr(msr, config & !EVNTSEL_EN);
                }
                self.go(3);
            }
        }
        if self.is_v2() || self.started.mask != 0 {
            self.go(3);
        }
        for (_, at) in self.each_started() {
            self.go(3);
            if !self.in_nmi {
                self.go(2);
                self.wait_on_overflow(at);
            }
            self.go(3);
        }
        self.go(1);
    }

    /// Mirrors `amd_pmu_wait_on_overflow`: the NMI of an overflow comes first, and starts the counter anew.
    fn wait_on_overflow(&mut self, at: usize) {
        let event = self.events.all[at];
        self.go(2);
        for _ in 0..LOOKS {
            self.go(3);
            let overflowed = if self.is_v2() {
                let status = self.rdmsr(PERF_CNTR_GLOBAL_STATUS);
                self.go(6);
                status >> event.index.unwrap_or(0) & 1 != 0
            } else {
                let value = self.rdmsr(event.counter_msr);
                self.go(2);
                value & TOP_BIT == 0
            };
            if !overflowed {
                break;
            }
            self.go(2);
        }
        self.go(1);
    }

    /// Mirrors `amd_pmu_enable_all` and `amd_pmu_v2_enable_all`.
    pub(super) fn amd_enable_all(&mut self) {
        self.go(10);
        if self.is_v2() {
            self.go(6);
            self.wrmsr(PERF_CNTR_GLOBAL_CTL, self.global_ctrl);
        } else {
            self.go(5);
            for (_, at) in self.each_started() {
                let event = self.events.all[at];
                self.go(6);
                self.wrmsr(event.config_msr, event.config);
                self.go(3);
            }
        }
        self.go(1);
    }

    /// Mirrors the end of `x86_pmu_start`. Without a global control the counter is enabled with all others.
    pub(super) fn amd_start(&mut self, at: usize) {
        let event = self.events.all[at];
        let bit = event.index.unwrap_or(0);
        self.started.events[usize::from(bit)] = at as u8;
        self.started.mask |= 1 << bit;
        self.go(16);
        if self.is_v2() {
            self.go(4);
            self.wrmsr(event.config_msr, event.config);
        }
    }

    /// Mirrors `x86_pmu_stop`, once the counter is disabled: an NMI that comes in the wait still finds it started.
    pub(super) fn amd_stopped(&mut self, at: usize) {
        self.go(13);
        self.wait_on_overflow(at);
        self.started.mask &= !(1 << self.events.all[at].index.unwrap_or(0));
        self.go(7);
    }

    /// Mirrors `amd_pmu_handle_irq` and `amd_pmu_v2_handle_irq`; returns STATUS, or what shows by the counters' top bits, and the
    /// rearmed counters.
    pub(super) fn handle_amd_pmi(&mut self) -> (u64, u64) {
        let rearmed = if self.is_v2() { self.handle_amd_v2() } else { self.handle_amd_core() };
        self.go(1);
        (rearmed, rearmed)
    }

    fn handle_amd_core(&mut self) -> u64 {
        let mut rearmed = 0;
        self.go(12);
        self.write_lvtpc();
        self.go(4);
        for (bit, at) in self.each_started() {
            self.go(3);
            let value = self.rdmsr_in_nmi(self.events.all[at].counter_msr);
            self.go(5);
            if value & TOP_BIT == 0 {
                self.restart_amd(at, value);
                rearmed |= 1 << bit;
            }
            self.go(3);
        }
        self.adjust_after_amd_overflow(rearmed);
        rearmed
    }

    fn handle_amd_v2(&mut self) -> u64 {
        let mut rearmed = 0;
        self.go(14);
        self.wrmsr_in_nmi(PERF_CNTR_GLOBAL_CTL, 0);
        self.go(1);
        let status = self.rdmsr_in_nmi(PERF_CNTR_GLOBAL_STATUS);
        self.go(5);
        if status != 0 {
            self.go(4);
            for (bit, at) in self.each_started() {
                self.go(3);
                let value = self.rdmsr_in_nmi(self.events.all[at].counter_msr);
                self.go(2);
                if status >> bit & 1 != 0 {
                    self.go(4);
                    self.restart_amd(at, value);
                    rearmed |= 1 << bit;
                }
                self.go(3);
            }
            self.go(6);
            self.wrmsr_in_nmi(PERF_CNTR_GLOBAL_STATUS_CLR, !(status & !rearmed));
            self.adjust_after_amd_overflow(rearmed);
            self.go(1);
        }
        self.go(3);
        if self.enabled {
            self.go(4);
            self.wrmsr_in_nmi(PERF_CNTR_GLOBAL_CTL, self.global_ctrl);
        }
        rearmed
    }

    /// Mirrors `pmi_restart`.
    fn restart_amd(&mut self, at: usize, value: u64) {
        self.go(19);
        self.restart_from(at, value);
        self.go(5);
    }

    fn adjust_after_amd_overflow(&mut self, rearmed: u64) {
        self.go(2);
        if !self.freq {
            return;
        }
        self.go(3);
        let now = self.rdtsc().1;
        self.go(5);
        if rearmed != 0 {
            self.go(7);
        }
        let started = Started { mask: rearmed, ..self.started };
        for (_, at) in started.each() {
            self.go(4);
            if self.events.all[at].freq {
                self.go(4);
                self.adjust_overflow(at, now);
            }
            self.go(3);
        }
        if rearmed != 0 {
            self.go(3);
        }
        self.go(2);
    }
}
