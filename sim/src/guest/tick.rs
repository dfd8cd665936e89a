//! The guest's workload, timer tick and phases (`guest/payload/c/tick.c`).

use arch_pmu::intel::IA32_PERF_GLOBAL_CTRL;
use guest::abi::{
    DB_DONE, DB_MEASURE_BEGIN, DB_MEASURE_END, DB_TAIL_TICK, FLAG_TASK_SWITCH, FLAG_TIME_LOOP, LOG_ROTATION,
    WORKLOAD_IDLE, WORKLOAD_IO,
};

use super::state::{Guest, Phase, Timer};
use crate::side::SimHost;

/// Mask bit of LVTPC.
const LVT_MASKED: u32 = 1 << 16;

impl<H: SimHost> Guest<H> {
    /// Runs up to the next tick or NMI; returns whether the guest is done.
    pub(crate) fn step(&mut self) -> bool {
        if self.timed_out {
            return true;
        }
        match self.phase {
            Phase::Done | Phase::Opened | Phase::Rest => return true,
            Phase::Tail => {
                if !self.halt_in_tail() {
                    return true;
                }
            }
            _ if self.boot.workload == WORKLOAD_IDLE => self.halt_idle(),
            _ if self.late_tick => {}
            _ if self.boot.workload == WORKLOAD_IO => self.work_and_write(),
            _ => self.user_ns += self.cpu.run_user(self.next_tick, u64::MAX),
        }
        self.take_nmis();
        if self.tick_is_due() {
            self.tick();
            self.over_limit();
        }
        self.phase == Phase::Done || self.rests() || self.timed_out
    }

    fn tick_is_due(&mut self) -> bool {
        self.late_tick || self.cpu.now() >= self.next_tick
    }

    /// Halts up to the next tick or NMI, unless a tick is due before; returns false if the tail is over. Interrupts are
    /// off up to HLT.
    fn halt_in_tail(&mut self) -> bool {
        if self.woke {
            if self.tick_is_due() {
                return true;
            }
            self.go(5);
            self.wait_in_tail(1);
        }
        if self.phase == Phase::Done {
            return false;
        }
        self.cpu.halt_until(self.next_tick);
        true
    }

    /// Runs the idle workload, unless a tick is due before it goes on.
    fn halt_idle(&mut self) {
        if self.woke {
            if self.tick_is_due() {
                return;
            }
            self.woke = false;
            self.wakes += 1;
            self.go(8);
            self.spend();
        }
        self.cpu.halt_until(self.next_tick);
    }

    /// Runs one unit of workload `io`, or the part of it before the next interrupt.
    fn work_and_write(&mut self) {
        let left = self.work_unit - self.user_ns % self.work_unit;
        let spent = self.cpu.run_user(self.next_tick, left);
        self.user_ns += spent;
        if spent == left {
            self.cpu.write_port();
        }
    }

    /// Returns whether the hard limit has passed, now or before: a guest that only handles NMIs would never end.
    pub(super) fn over_limit(&mut self) -> bool {
        self.timed_out |= self.cpu.now() > self.limit || self.cpu.is_stopped();
        self.timed_out
    }

    pub(super) fn units(&self) -> u64 {
        if self.boot.workload == WORKLOAD_IDLE { self.wakes } else { self.user_ns / self.work_unit }
    }

    fn tick(&mut self) {
        self.cpu.interrupted(true);
        // Expiries while one is pending merge.
        self.late_tick = false;
        if self.stat_setup() {
            self.next_tick = u64::MAX;
        } else {
            let now = self.cpu.now();
            self.forward_timer(now);
        }
        self.go(2);
        let (entry, now) = self.rdtsc();
        self.go(31);
        self.tick_tsc = now.wrapping_sub(self.last_tick);
        self.last_tick = now;
        self.report.ticks += 1;
        self.phase_ticks += 1;
        match self.phase {
            Phase::Measure => self.measure_tick([entry, now]),
            Phase::Tail => self.tail_tick(),
            Phase::WarmUp | Phase::Baseline => self.baseline_tick(now),
            Phase::Done | Phase::Opened | Phase::Rest => {}
        }
    }

    /// Runs the end of a tick that goes back to where it came from.
    pub(super) fn leave_tick(&mut self) {
        if self.phase == Phase::Measure {
            self.go(5);
            if self.boot.flags & FLAG_TIME_LOOP != 0 {
                self.go(2);
                self.time_loop();
                self.go(1);
            }
        }
        if self.stat_setup() {
            self.go(6);
            self.write_timer(self.boot.tick_count.max(1));
            self.go(3);
        } else {
            if self.timer == Timer::Forwarded {
                let now = self.cpu.now();
                self.forward_timer(now);
            }
            self.go(5);
        }
        self.write_eoi();
        self.go(15);
        self.spend();
        self.cpu.returns(false);
        self.woke = true;
    }

    /// Mirrors `time_loop` of `guest/payload/c/loop.c`; a simulated NMI comes at accesses only.
    fn time_loop(&mut self) {
        self.go(5);
        let begin = self.rdtsc().1;
        self.go(259);
        let end = self.rdtsc().1;
        self.report.loops += 1;
        self.report.loop_ticks += end - begin;
        self.go(14);
    }

    /// Sets the next expiry to the first one after `now`.
    fn forward_timer(&mut self, now: u64) {
        if let Some(late) = now.checked_sub(self.next_tick) {
            self.next_tick += (late / self.interval + 1) * self.interval;
        }
    }

    fn baseline_tick(&mut self, now: u64) {
        self.go(5);
        if self.phase == Phase::WarmUp {
            self.phase = Phase::Baseline;
            self.phase_ticks = 0;
            self.units_at_start = self.units();
            self.report.baseline_begin = now;
            self.go(7);
        }
        if self.phase_ticks < self.boot.baseline_ticks {
            self.go(3);
            self.leave_tick();
            return;
        }
        self.report.baseline_end = now;
        self.report.baseline_units = self.units() - self.units_at_start;
        self.go(10);
        if self.takes_turns() {
            // The rest of the tick is that of the next turn's begin.
            self.go(2);
            self.rest(Phase::Opened);
        } else {
            self.begin_measuring();
        }
    }

    pub(super) fn begin_measuring(&mut self) {
        self.go(2);
        self.doorbell(DB_MEASURE_BEGIN);
        self.phase = Phase::Measure;
        self.phase_ticks = 0;
        self.units_at_start = self.units();
        self.go(8);
        self.write_lvtpc();
        // The counters enabled by GLOBAL_CTRL at RESET stop here.
        if self.is_intel() {
            self.go(5);
            self.wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
        } else {
            self.amd_off_at_reset();
        }
        self.report.measure_begin = self.rdtsc().1;
        if self.stat_setup() {
            self.go(8);
            self.stat_begin();
            self.go(1);
        } else {
            self.go(10);
            self.schedule();
            self.events.begin_anywhere(&mut self.places);
            self.go(2);
            self.start_active();
            self.go(2);
            self.pmu_enable();
            self.go(1);
        }
        self.leave_tick();
    }

    fn measure_tick(&mut self, entry: [u64; 2]) {
        self.go(4);
        if self.stat_setup() {
            self.go(3);
            if self.stat_tick() {
                self.go(3);
                self.leave_tick();
                return;
            }
            self.go(2);
        } else if self.sample_on(entry) {
            self.leave_tick();
            return;
        }
        self.go(2);
        if self.takes_turns() {
            self.go(2);
            self.end_turn();
            self.go(2);
            self.rest(Phase::Rest);
        } else {
            self.end_measuring();
        }
    }

    /// Runs a tick of sampling; returns whether it goes on.
    fn sample_on(&mut self, entry: [u64; 2]) -> bool {
        if self.target_met {
            self.go(5);
            return false;
        }
        if self.phase_ticks >= self.boot.max_ticks {
            self.go(8);
            return false;
        }
        self.go(10);
        if self.freq {
            self.go(2);
            self.adjust_at_tick();
            self.go(1);
        }
        self.go(8);
        if self.events.rotation_needed() {
            self.go(4);
            self.reschedule(entry, true);
            self.go(1);
        } else if self.boot.flags & FLAG_TASK_SWITCH != 0 {
            self.go(7);
            self.reschedule(entry, false);
            self.go(1);
        } else {
            self.go(3);
        }
        self.go(if self.target_met { 4 } else { 3 });
        !self.target_met
    }

    /// Mirrors `perf_rotate_context`, or sched-out and sched-in of the task: stops all events and starts those that fit.
    fn reschedule(&mut self, [entry, entry_tsc]: [u64; 2], rotate: bool) {
        self.go(7);
        self.pmu_disable();
        let now = self.rdtsc().1;
        self.go(6);
        self.stop_active(now);
        if rotate {
            self.go(4);
            self.rotate();
            self.go(2);
            self.schedule();
            self.go(1);
        } else {
            self.go(2);
        }
        self.go(2);
        let started = self.start_active();
        self.go(3);
        self.pmu_enable();
        self.report.rotations += 1;
        self.go(1);
        let (exit, exit_tsc) = self.rdtsc();
        self.rotation.record(exit - entry);
        let logged = self.log(LOG_ROTATION, [entry_tsc, exit_tsc], 0, started);
        self.go(9);
        if logged.fits {
            self.go(10);
        }
        if logged.wanted {
            self.go(2);
        }
        if logged.meets {
            self.go(1);
        }
        self.go(4);
    }

    pub(super) fn end_measuring(&mut self) {
        self.go(2);
        self.end_turn();
        self.lvtpc |= LVT_MASKED;
        self.go(5);
        self.write_lvtpc();
        self.go(2);
        self.doorbell(DB_MEASURE_END);
        self.go(2);
        self.tail();
    }

    pub(super) fn tail(&mut self) {
        self.phase = Phase::Tail;
        self.phase_ticks = 0;
        self.go(4);
        if self.stat_setup() {
            self.go(4);
            self.write_timer(self.boot.tick_count.max(1));
        } else if self.timer == Timer::Forwarded {
            let now = self.cpu.now();
            self.forward_timer(now);
        }
        self.go(3);
        self.write_eoi();
        self.go(4);
        self.wait_in_tail(2);
    }

    fn wait_in_tail(&mut self, halt: u64) {
        if self.phase_ticks < self.boot.tail_ticks {
            self.woke = false;
            self.go(halt);
            self.spend();
            if self.cpu.in_tick() {
                self.cpu.returns(false);
            }
            return;
        }
        self.go(3);
        self.write_timer(0);
        self.go(1);
        self.publish();
        self.go(2);
        self.ring(DB_DONE);
        self.phase = Phase::Done;
    }

    fn tail_tick(&mut self) {
        self.go(4);
        self.doorbell(DB_TAIL_TICK);
        let held = self.cpu.held();
        self.held_at_tail_tick.push(held);
        self.go(2);
        self.leave_tick();
    }

    /// Writes the report's figures.
    pub(super) fn publish(&mut self) {
        self.go(27);
        if !self.events.all.is_empty() {
            self.go(5);
            self.go(15 * self.events.all.len() as u64);
        }
        for event in &self.events.all {
            self.report.overflows[event.spec] = event.overflows;
            self.report.counts[event.spec] = event.count;
            self.report.enabled[event.spec] = event.enabled_ticks;
            self.report.running[event.spec] = event.running;
            self.report.periods[event.spec] = event.period.cast_unsigned();
        }
    }
}
