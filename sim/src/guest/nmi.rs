//! The guest's NMI handler: the register accesses of `guest/payload/nmi.c`, one for one, and its log.
//!
//! The numbers given to `execute` are the payload's instructions between two accesses, counted in its disassembly.

use arch_pmu::intel::{IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERF_GLOBAL_STATUS};
use guest::abi::{LOG_NMI, LogEntry};

use super::state::{Guest, NOBODY};
use crate::side::SimHost;

/// Instructions of the interrupt stub before the handler.
pub(super) const STUB_IN: u64 = 11;
/// Instructions of the interrupt stub after the handler, with IRETQ.
pub(super) const STUB_OUT: u64 = 13;
/// Instructions that account for an NMI and log it.
const ACCOUNT: u64 = 45;
/// Maximum number of loops of the handler.
const MOST_LOOPS: u32 = 100;

impl<H: SimHost> Guest<H> {
    /// Takes pending NMIs, right after an exit. They interrupt the tick between two instructions, but not the NMI handler.
    #[inline]
    pub(super) fn take_nmis(&mut self) {
        if self.in_nmi {
            return;
        }
        // Which nearly always is all there is to do.
        self.timed_out |= self.cpu.now_at_exit() > self.limit;
        while !self.timed_out
            && let Some(seen_at) = self.cpu.take_nmi()
        {
            self.nmi(seen_at);
            self.over_limit();
        }
    }

    #[inline(never)]
    fn nmi(&mut self, seen_at: u64) {
        self.in_nmi = true;
        let from_tick = self.cpu.in_tick();
        self.cpu.interrupted(false);
        self.cpu.execute(2);
        let (entry, entry_tsc) = self.cpu.now_and_tsc();
        self.cpu.execute(STUB_IN);
        let (status, rearmed) = self.handle_pmi();
        let (exit, exit_tsc) = self.cpu.now_and_tsc();
        self.handler.record(exit - entry);
        self.delivery.record(entry - seen_at);
        if self.deliveries.len() < self.log_capacity {
            let khz = u128::from(self.tsc_hz / 1000);
            self.deliveries.push((u128::from(seen_at) * khz / 1_000_000) as u64);
        }
        self.cpu.execute(ACCOUNT);
        self.report.nmis += 1;
        self.report.nmis_without_status += u64::from(status == 0);
        self.log(LOG_NMI, [entry_tsc, exit_tsc], status, rearmed);
        if self.target_met && self.enabled {
            // The sample target is met; the next tick ends the phase.
            self.stop_measuring();
            if self.takes_turns() {
                self.tick_soon();
            }
        }
        self.cpu.execute(STUB_OUT);
        self.cpu.returns(from_tick);
        self.in_nmi = false;
    }

    pub(super) fn log(&mut self, kind: u64, [tsc_entry, tsc_exit]: [u64; 2], status: u64, rearmed: u64) {
        if self.log.len() < self.log_capacity {
            self.log.push(LogEntry { kind, tsc_entry, tsc_exit, status, rip: 0, rearmed });
            self.report.logged += 1;
        } else {
            self.report.dropped += 1;
        }
        if kind == self.log_kind && self.until_target > 0 {
            self.until_target -= 1;
            self.target_met = self.until_target == 0;
        }
    }

    /// `intel_pmu_handle_irq` with perf_v4_pmi=n, between GLOBAL_CTRL off and on. Returns the first STATUS and the rearmed counters.
    fn handle_pmi(&mut self) -> (u64, u64) {
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

    /// The driver has disabled the counters and reads them itself: only acknowledge the overflow.
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
}
