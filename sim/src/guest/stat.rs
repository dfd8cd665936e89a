//! Consecutive `perf stat` runs in the guest: the register accesses and doorbells of `guest/payload/stat.c`, one for one.
//!
//! The numbers given to `execute` are the payload's instructions between two accesses, counted in its disassembly.

use arch_pmu::intel::IA32_PERFEVTSEL0;
use guest::abi::{
    CALLS, FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, LOG_PHASE, PHASE_DISABLE, PHASE_ENABLE, PHASE_NONE, PHASE_PROGRAM,
    PHASE_READ, PHASE_ROTATE,
};

use super::event::EVNTSEL_EN;
use super::state::Guest;
use crate::side::SimHost;

/// Instructions of the loop around the calls, with the read of the TSC.
const EACH: u64 = 14;
/// Instructions that log one call.
const LOG_CALL: u64 = 25;

/// A call of a phase for one event.
type Call<H> = fn(&mut Guest<H>, usize);

impl<H: SimHost> Guest<H> {
    pub(super) const fn stat_setup(&self) -> bool {
        self.boot.flags & FLAG_STAT_SETUP != 0
    }

    /// `stat_begin`.
    pub(super) fn stat_begin(&mut self) {
        self.events.enabled = 0;
        self.events.active_count = 0;
        self.pmu_enable();
    }

    /// `stat_tick`; returns false after the last cycle.
    pub(super) fn stat_tick(&mut self) -> bool {
        self.cpu.execute(12);
        self.stat.ticks += 1;
        if !self.stat.counting {
            if self.stat.ticks < self.boot.gap_ticks {
                return true;
            }
            self.set_up();
        } else if self.stat.ticks < self.boot.window_ticks {
            if self.events.rotation_needed() {
                self.rotate_while_counting();
            }
            return true;
        } else {
            self.tear_down();
            if self.stat.cycles == self.boot.sample_target || self.past_limit() {
                return false;
            }
        }
        self.stat.ticks = 0;
        true
    }

    fn past_limit(&mut self) -> bool {
        let ticks = self.cpu.tsc() - self.report.measure_begin;
        ticks >= self.boot.limit_us.saturating_mul(self.tsc_hz / 1_000_000)
    }

    fn set_up(&mut self) {
        self.events.close();
        self.each(PHASE_PROGRAM, Self::program);
        self.events.active_count = 0;
        if self.boot.flags & FLAG_ENABLE_ONCE != 0 {
            self.phase(PHASE_ENABLE, 1, |guest, _| guest.enable_all());
        } else {
            self.each(PHASE_ENABLE, Self::enable);
        }
        self.stat.counting = true;
    }

    fn tear_down(&mut self) {
        self.each(PHASE_READ, Self::read);
        self.each(PHASE_DISABLE, Self::disable);
        self.events.enabled = 0;
        self.stat.counting = false;
        self.stat.cycles += 1;
        self.report.cycles = self.stat.cycles;
    }

    fn rotate_while_counting(&mut self) {
        self.phase(PHASE_ROTATE, 1, |guest, _| {
            guest.cpu.execute(12);
            guest.resched(true);
        });
        self.report.rotations += 1;
    }

    fn each(&mut self, phase: u64, call: Call<H>) {
        self.phase(phase, self.events.all.len(), call);
    }

    /// Makes `calls` timed calls between the doorbells of their phase, then logs them.
    fn phase(&mut self, phase: u64, calls: usize, call: Call<H>) {
        self.cpu.begin_phase(phase as usize);
        let mut stamps = std::mem::take(&mut self.stat.stamps);
        stamps.clear();
        stamps.push(self.cpu.tsc());
        for n in 0..calls {
            self.cpu.execute(EACH);
            call(self, n);
            stamps.push(self.cpu.tsc());
        }
        self.cpu.begin_phase(PHASE_NONE as usize);
        for (n, ends) in (0..).zip(stamps.windows(2)) {
            self.cpu.execute(LOG_CALL);
            self.log(LOG_PHASE + phase, [ends[0], ends[1]], self.stat.cycles * CALLS + n, 0);
        }
        self.stat.stamps = stamps;
    }

    /// `sched_in`, with its instructions.
    fn schedule(&mut self) {
        let anew = self.events.schedule();
        let each = if anew { 22 + 6 + 30 } else { 22 + 12 };
        self.cpu.execute(25 + each * self.events.active_count as u64);
    }

    fn program(&mut self, at: usize) {
        self.events.enabled = at + 1;
        self.cpu.execute(10);
        self.schedule();
        if self.events.active_count != self.events.enabled {
            return;
        }
        let event = self.events.all[at];
        if event.is_fixed() {
            self.set_fixed(&event, 0);
        } else {
            self.cpu.execute(8);
            self.wrmsr(IA32_PERFEVTSEL0 + u32::from(event.index.unwrap_or(0)), event.config & !EVNTSEL_EN);
        }
        self.cpu.execute(14);
        self.set_period(at);
    }

    /// `ctx_resched`, or `perf_rotate_context`.
    fn resched(&mut self, rotate: bool) {
        self.cpu.execute(13);
        let now = self.cpu.tsc();
        self.pmu_disable();
        self.stop_active(now);
        if rotate {
            self.events.rotate();
        }
        self.schedule();
        self.start_active();
        self.sched_in = self.cpu.tsc();
        self.pmu_enable();
    }

    fn enable(&mut self, at: usize) {
        self.cpu.execute(8);
        self.events.all[at].enabled_at = self.cpu.tsc();
        self.events.enabled = at + 1;
        self.resched(false);
    }

    fn enable_all(&mut self) {
        let now = self.cpu.tsc();
        self.cpu.execute(8 + 5 * self.events.all.len() as u64);
        for event in &mut self.events.all {
            event.enabled_at = now;
        }
        self.events.enabled = self.events.all.len();
        self.resched(false);
    }

    /// `place_of`.
    fn place_of(&mut self, at: usize) -> Option<usize> {
        let found = self.events.place_of(at);
        self.cpu.execute(6 + 4 * found.unwrap_or(self.events.active_count) as u64);
        found
    }

    fn read(&mut self, at: usize) {
        if self.place_of(at).is_some() {
            self.update(at);
        }
    }

    fn disable(&mut self, at: usize) {
        let place = self.place_of(at);
        self.cpu.execute(6);
        let now = self.cpu.tsc();
        self.pmu_disable();
        if let Some(place) = place {
            self.stop(at);
            self.events.all[at].running += now - self.sched_in;
            self.cpu.execute(8 + 4 * (self.events.active_count - place) as u64);
            self.events.remove_active(place);
        }
        let event = &mut self.events.all[at];
        event.enabled_ticks += now - event.enabled_at;
        self.cpu.execute(5);
        self.pmu_enable();
    }
}
