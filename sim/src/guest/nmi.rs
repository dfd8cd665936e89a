//! The guest's NMI handler: the register accesses of `guest/payload/c/nmi.c`, one for one, and its log.

use arch_pmu::intel::{IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERF_GLOBAL_STATUS};
use guest::abi::{LOG_NMI, LogEntry};

use super::events::Driver;
use super::state::{Guest, NOBODY};
use crate::side::SimHost;

/// Maximum number of loops of the handler.
const MOST_LOOPS: u32 = 100;

/// Result of taking an entry of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) fits: bool,
    /// True if its kind counts towards the target.
    pub(super) wanted: bool,
    /// True if it is the entry that meets the target.
    pub(super) meets: bool,
}

impl<H: SimHost> Guest<H> {
    /// Takes pending NMIs, right after an exit. They interrupt the tick between two instructions, but not the NMI handler.
    #[inline]
    pub(super) fn take_nmis(&mut self) {
        if self.in_nmi {
            return;
        }
        // Nearly always nothing else is to be done.
        if self.cpu.now_at_exit() > self.limit {
            self.timed_out = true;
        }
        if self.cpu.has_nmi() {
            self.take_pending();
        }
    }

    #[inline(never)]
    fn take_pending(&mut self) {
        while !self.timed_out
            && let Some(seen_at) = self.cpu.take_nmi()
        {
            self.nmi(seen_at);
            self.over_limit();
        }
    }

    fn nmi(&mut self, seen_at: u64) {
        self.in_nmi = true;
        let from_tick = self.cpu.in_tick();
        self.cpu.interrupted(false);
        self.go(2);
        let (entry, entry_tsc) = self.rdtsc();
        self.go(11);
        let (status, rearmed) = if self.is_intel() { self.handle_pmi() } else { self.handle_amd_pmi() };
        let (exit, exit_tsc) = self.rdtsc();
        let latency = if rearmed == 0 { &mut self.driver_off } else { &mut self.handler };
        latency.record(exit - entry);
        self.delivery.record(entry - seen_at);
        if self.deliveries.len() < self.log_capacity {
            self.deliveries.push(self.cpu.tsc_at(seen_at));
        }
        if !self.account([entry_tsc, exit_tsc], status, rearmed) {
            self.go(2);
        }
        match self.driver {
            Driver::Intel => {}
            Driver::AmdCore => self.go(7),
            Driver::AmdV2 => self.go(9),
        }
        self.go(11);
        self.spend();
        self.cpu.returns(from_tick);
        self.in_nmi = false;
    }

    /// Mirrors `pmi_account`; returns whether it ends as `tick_soon`.
    fn account(&mut self, tsc: [u64; 2], status: u64, rearmed: u64) -> bool {
        self.go(if self.is_intel() { 25 } else { 22 });
        self.report.nmis += 1;
        if status == 0 {
            self.report.nmis_without_status += 1;
            self.go(1);
        }
        let logged = self.log(LOG_NMI, tsc, status, rearmed);
        if logged.fits {
            self.go(10);
        }
        if logged.meets {
            self.go(4);
        } else if logged.wanted {
            self.go(2);
        }
        if !self.target_met {
            return false;
        }
        self.go(3);
        if !self.enabled {
            return false;
        }
        // The sample target is met; the next tick ends the phase.
        self.go(2);
        self.pmu_disable();
        self.go(1);
        self.report.measure_end = self.rdtsc().1;
        self.report.measure_units = self.units() - self.units_at_start;
        self.go(11);
        if self.takes_turns() {
            self.go(3);
            self.tick_soon();
        }
        self.takes_turns()
    }

    pub(super) fn log(&mut self, kind: u64, [tsc_entry, tsc_exit]: [u64; 2], status: u64, rearmed: u64) -> Logged {
        let fits = self.log.len() < self.log_capacity;
        if fits {
            self.log.push(LogEntry { kind, tsc_entry, tsc_exit, status, rip: 0, rearmed });
            self.report.logged += 1;
        } else {
            self.report.dropped += 1;
        }
        let wanted = kind == self.log_kind;
        let mut meets = false;
        if wanted {
            // A target of 0 is never met.
            self.until_target = self.until_target.wrapping_sub(1);
            meets = self.until_target == 0;
            self.target_met |= meets;
        }
        Logged { fits, wanted, meets }
    }

    /// Mirrors `intel_pmu_handle_irq` with perf_v4_pmi=n, between GLOBAL_CTRL off and on. Returns the first STATUS and the rearmed
    /// counters.
    fn handle_pmi(&mut self) -> (u64, u64) {
        self.go(11);
        self.wrmsr_in_nmi(IA32_PERF_GLOBAL_CTRL, 0);
        self.go(1);
        let status = self.rdmsr_in_nmi(IA32_PERF_GLOBAL_STATUS);
        let mut rearmed = 0;
        if self.enabled {
            self.go(9);
            if status == 0 {
                self.go(2);
            } else {
                rearmed = self.handle_overflows(status);
            }
            self.go(3);
            self.write_lvtpc();
            self.go(4);
            self.wrmsr_in_nmi(IA32_PERF_GLOBAL_CTRL, self.global_ctrl);
        } else {
            self.go(9);
            if status != 0 {
                self.count_late(status);
            }
            self.go(3);
            self.write_lvtpc();
            self.go(2);
        }
        (status, rearmed)
    }

    fn handle_overflows(&mut self, first: u64) -> u64 {
        let (mut status, mut rearmed) = (first, 0);
        for looped in 0..MOST_LOOPS {
            self.go(if looped == 0 { 7 } else { 6 });
            self.wrmsr_in_nmi(IA32_PERF_GLOBAL_OVF_CTRL, status);
            rearmed |= status;
            let mut left = status;
            self.go(9);
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                match self.map[bit] {
                    NOBODY => {
                        rearmed &= !(1 << bit);
                        self.go(4);
                    }
                    at => self.restart(usize::from(at)),
                }
                self.go(2);
                if left != 0 {
                    self.go(7);
                }
            }
            self.go(1);
            status = self.rdmsr_in_nmi(IA32_PERF_GLOBAL_STATUS);
            self.go(5);
            if status == 0 {
                break;
            }
            if looped + 1 == MOST_LOOPS {
                self.go(3);
            }
        }
        self.go(2);
        if self.freq {
            self.adjust_after_overflow(rearmed);
        }
        rearmed
    }

    /// Mirrors `intel_pmu_save_and_restart`.
    fn restart(&mut self, at: usize) {
        self.go(1);
        let now = self.rdmsr_in_nmi(self.events.all[at].counter_msr);
        self.go(22);
        self.restart_from(at, now);
    }

    /// Mirrors `x86_perf_event_update` and `x86_perf_event_set_period` in one, of a counter with this value.
    #[inline]
    pub(super) fn restart_from(&mut self, at: usize, now: u64) {
        let event = &mut self.events.all[at];
        event.update(now);
        event.overflows += 1;
        let (msr, next) = (event.counter_msr, event.next_left());
        if next.over {
            self.go(4);
        }
        if next.clamped {
            self.go(6);
        }
        self.wrmsr_in_nmi(msr, next.value);
    }

    /// Acknowledges the overflow only, because the driver has disabled the counters and reads them itself.
    fn count_late(&mut self, status: u64) {
        self.go(12);
        self.wrmsr_in_nmi(IA32_PERF_GLOBAL_OVF_CTRL, status);
        let mut left = status;
        while left != 0 {
            let at = self.map[left.trailing_zeros() as usize];
            left &= left - 1;
            self.go(10);
            if at != NOBODY {
                self.events.all[usize::from(at)].overflows += 1;
                self.go(1);
            }
        }
        self.go(9);
    }

    fn adjust_after_overflow(&mut self, rearmed: u64) {
        self.go(19);
        let now = self.rdtsc().1;
        self.go(4);
        let mut left = rearmed;
        while left != 0 {
            let at = usize::from(self.map[left.trailing_zeros() as usize]);
            left &= left - 1;
            if self.events.all[at].freq {
                self.go(11);
                self.adjust_overflow(at, now);
            } else {
                self.go(7);
            }
            self.go(3);
        }
        self.go(18);
    }
}
