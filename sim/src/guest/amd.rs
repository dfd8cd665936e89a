//! AMD's driver and NMI handlers where they differ from Intel's: the register accesses of `guest/payload/c/amd.c` and
//! `amd_nmi.c`, one for one.

use arch_pmu::amd::{PERF_CNTR_GLOBAL_CTL, PERF_CNTR_GLOBAL_STATUS, PERF_CNTR_GLOBAL_STATUS_CLR};

use super::cpu::Cpu;
use super::events::{Driver, EVNTSEL_EN, Started};
use super::paths::Path;
use super::state::Guest;

/// OVERFLOW_WAIT_COUNT of Linux.
const LOOKS: u32 = 50;
/// A counter whose top bit is off has passed 0.
const TOP_BIT: u64 = 1 << 47;

impl<C: Cpu> Guest<C> {
    pub(super) fn is_intel(&self) -> bool {
        self.driver == Driver::Intel
    }

    fn is_v2(&self) -> bool {
        self.driver == Driver::AmdV2
    }

    /// Begins a loop over the started counters.
    fn each_started(&mut self) -> impl Iterator<Item = (u64, usize)> + use<C> {
        if self.started.mask != 0 {
            self.go(Path::AmdSome);
        }
        self.started.each()
    }

    /// Mirrors `amd_pmu_cpu_reset`.
    pub(super) fn amd_off_at_reset(&mut self) {
        if self.is_v2() {
            self.go(Path::BeginAmdV2);
            self.wrmsr(PERF_CNTR_GLOBAL_CTL, 0);
            self.go(Path::BeginAmdV2Off);
        } else {
            self.go(Path::BeginAmd);
        }
    }

    /// Mirrors `amd_pmu_disable_all` and `amd_pmu_v2_disable_all`.
    pub(super) fn amd_disable_all(&mut self) {
        if self.is_v2() {
            self.go(Path::AmdV2Off);
            self.wrmsr(PERF_CNTR_GLOBAL_CTL, 0);
            self.go(Path::AmdV2OffDone);
        } else {
            self.go(Path::AmdOff);
            for (_, at) in self.each_started() {
                let msr = self.events.all[at].config_msr;
                self.go(Path::AmdOffEvent);
                let config = self.rdmsr(msr);
                self.go(Path::AmdOffRead);
                if config & EVNTSEL_EN != 0 {
                    self.go(Path::AmdOffWrite);
                    self.wrmsr(msr, config & !EVNTSEL_EN);
                }
                self.go(Path::AmdNext);
            }
        }
        if self.is_v2() || self.started.mask != 0 {
            self.go(Path::AmdWait);
        }
        for (_, at) in self.each_started() {
            self.go(Path::AmdWaitEvent);
            if !self.in_nmi {
                self.go(Path::AmdWaitCall);
                self.wait_on_overflow(at);
            }
            self.go(Path::AmdNext);
        }
        self.go(Path::AmdReturn);
    }

    /// Mirrors `amd_pmu_wait_on_overflow`: the NMI of an overflow comes first, and starts the counter anew.
    fn wait_on_overflow(&mut self, at: usize) {
        let event = self.events.all[at];
        self.go(Path::AmdLooks);
        for _ in 0..LOOKS {
            self.go(Path::AmdLook);
            let overflowed = if self.is_v2() {
                let status = self.rdmsr(PERF_CNTR_GLOBAL_STATUS);
                self.go(Path::AmdLookedAtStatus);
                status >> event.index.unwrap_or(0) & 1 != 0
            } else {
                let value = self.rdmsr(event.counter_msr);
                self.go(Path::AmdLookedAtCounter);
                value & TOP_BIT == 0
            };
            if !overflowed {
                break;
            }
            self.go(Path::AmdLookAgain);
        }
        self.go(Path::AmdReturn);
    }

    /// Mirrors `amd_pmu_enable_all` and `amd_pmu_v2_enable_all`.
    pub(super) fn amd_enable_all(&mut self) {
        self.go(Path::EnableAmd);
        if self.is_v2() {
            self.go(Path::AmdV2On);
            self.wrmsr(PERF_CNTR_GLOBAL_CTL, self.global_ctrl);
        } else {
            self.go(Path::AmdOn);
            for (_, at) in self.each_started() {
                let event = self.events.all[at];
                self.go(Path::AmdOnEvent);
                self.wrmsr(event.config_msr, event.config);
                self.go(Path::AmdNext);
            }
        }
        self.go(Path::AmdReturn);
    }

    /// Mirrors the end of `x86_pmu_start`. Without a global control the counter is enabled with all others.
    pub(super) fn amd_start(&mut self, at: usize) {
        let event = self.events.all[at];
        let bit = event.index.unwrap_or(0);
        self.started.events[usize::from(bit)] = at as u8;
        self.started.mask |= 1 << bit;
        self.go(Path::StartAmd);
        if self.is_v2() {
            self.go(Path::StartAmdV2);
            self.wrmsr(event.config_msr, event.config);
        }
    }

    /// Mirrors `x86_pmu_stop`, once the counter is disabled: an NMI that comes in the wait still finds it started.
    pub(super) fn amd_stopped(&mut self, at: usize) {
        self.go(Path::StopAmd);
        self.wait_on_overflow(at);
        self.started.mask &= !(1 << self.events.all[at].index.unwrap_or(0));
        self.go(Path::StopAmdDone);
    }

    /// Mirrors `amd_pmu_handle_irq` and `amd_pmu_v2_handle_irq`; returns STATUS, or what shows by the counters' top bits, and the
    /// rearmed counters.
    pub(super) fn handle_amd_pmi(&mut self) -> (u64, u64) {
        let rearmed = if self.is_v2() { self.handle_amd_v2() } else { self.handle_amd_core() };
        self.go(Path::PmiAmdDone);
        (rearmed, rearmed)
    }

    fn handle_amd_core(&mut self) -> u64 {
        let mut rearmed = 0;
        self.go(Path::PmiAmd);
        self.write_lvtpc();
        self.go(Path::PmiAmdScan);
        for (bit, at) in self.each_started() {
            self.go(Path::PmiAmdEvent);
            let value = self.rdmsr_in_nmi(self.events.all[at].counter_msr);
            self.go(Path::PmiAmdRead);
            if value & TOP_BIT == 0 {
                self.restart_amd(at, value);
                rearmed |= 1 << bit;
            }
            self.go(Path::AmdNext);
        }
        self.adjust_after_amd_overflow(rearmed);
        rearmed
    }

    fn handle_amd_v2(&mut self) -> u64 {
        let mut rearmed = 0;
        self.go(Path::PmiV2);
        self.wrmsr_in_nmi(PERF_CNTR_GLOBAL_CTL, 0);
        self.go(Path::PmiStatus);
        let status = self.rdmsr_in_nmi(PERF_CNTR_GLOBAL_STATUS);
        self.go(Path::PmiV2Status);
        if status != 0 {
            self.go(Path::PmiV2Scan);
            for (bit, at) in self.each_started() {
                self.go(Path::PmiAmdEvent);
                let value = self.rdmsr_in_nmi(self.events.all[at].counter_msr);
                self.go(Path::PmiV2Read);
                if status >> bit & 1 != 0 {
                    self.go(Path::PmiV2Restart);
                    self.restart_amd(at, value);
                    rearmed |= 1 << bit;
                }
                self.go(Path::AmdNext);
            }
            self.go(Path::PmiV2Acknowledge);
            self.wrmsr_in_nmi(PERF_CNTR_GLOBAL_STATUS_CLR, !(status & !rearmed));
            self.adjust_after_amd_overflow(rearmed);
            self.go(Path::PmiV2Handled);
        }
        self.go(Path::PmiV2Enabled);
        if self.enabled {
            self.go(Path::PmiV2On);
            self.wrmsr_in_nmi(PERF_CNTR_GLOBAL_CTL, self.global_ctrl);
        }
        rearmed
    }

    /// Mirrors `pmi_restart`.
    fn restart_amd(&mut self, at: usize, value: u64) {
        self.go(Path::PmiAmdRestart);
        self.restart_from(at, value);
        self.go(Path::PmiAmdRestarted);
    }

    fn adjust_after_amd_overflow(&mut self, rearmed: u64) {
        self.go(Path::PmiAmdFreqCheck);
        if !self.freq {
            return;
        }
        self.go(Path::PmiAmdFreq);
        let now = self.rdtsc().1;
        self.go(Path::PmiAmdFreqTsc);
        if rearmed != 0 {
            self.go(Path::PmiAmdFreqSome);
        }
        let started = Started { mask: rearmed, ..self.started };
        for (_, at) in started.each() {
            self.go(Path::PmiAmdFreqEvent);
            if self.events.all[at].freq {
                self.go(Path::PmiAmdFreqAdjust);
                self.adjust_overflow(at, now);
            }
            self.go(Path::AmdNext);
        }
        if rearmed != 0 {
            self.go(Path::PmiAmdFreqSomeDone);
        }
        self.go(Path::PmiAmdFreqDone);
    }
}
