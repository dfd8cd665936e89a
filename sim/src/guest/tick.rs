//! The guest's workload, timer tick and phases (`guest/payload/tick.c`).

use guest::abi::{FLAG_TASK_SWITCH, FLAG_TIME_LOOP, LOG_ROTATION, LOOP_INSTRUCTIONS, WORKLOAD_IDLE, WORKLOAD_IO};

use super::nmi::{STUB_IN, STUB_OUT};
use super::state::{Guest, Phase, Timer};
use crate::side::SimHost;

/// Mask bit of LVTPC.
const LVT_MASKED: u32 = 1 << 16;
/// Instructions of a rotation and of the search for events that fit.
const SCHEDULE: u64 = 35;
/// Instructions per event that fits.
const COLLECT: u64 = 28;
/// Instructions per event with a new counter.
const PLACE: u64 = 33;

impl<H: SimHost> Guest<H> {
    /// Runs up to the next tick or NMI; returns whether the guest is done.
    pub fn step(&mut self) -> bool {
        if self.over_limit() {
            return true;
        }
        match self.phase {
            Phase::Done | Phase::Opened | Phase::Rest => return true,
            Phase::Tail => self.cpu.halt_until(self.next_tick),
            _ if self.boot.workload == WORKLOAD_IDLE => self.cpu.halt_until(self.next_tick),
            _ if self.boot.workload == WORKLOAD_IO => self.work_and_write(),
            _ => self.user_ns += self.cpu.run_user(self.next_tick, u64::MAX),
        }
        self.take_nmis();
        if self.phase != Phase::Done && self.cpu.now() >= self.next_tick {
            self.tick();
        }
        self.phase == Phase::Done || self.rests() || self.over_limit()
    }

    /// One unit of workload `io`, or the part of it before the next interrupt.
    fn work_and_write(&mut self) {
        let left = self.work_unit - self.user_ns % self.work_unit;
        let spent = self.cpu.run_user(self.next_tick, left);
        self.user_ns += spent;
        if spent == left {
            self.cpu.port_write();
        }
    }

    /// Checks the hard limit: a guest that only handles NMIs would never end.
    pub(super) fn over_limit(&mut self) -> bool {
        self.timed_out |= self.cpu.now() > self.limit;
        self.timed_out
    }

    pub(super) fn units(&self) -> u64 {
        self.user_ns / self.work_unit
    }

    pub(super) fn stop_measuring(&mut self) {
        self.pmu_disable();
        self.report.measure_end = self.cpu.tsc();
        self.report.measure_units = self.units() - self.units_at_start;
    }

    fn tick(&mut self) {
        self.cpu.interrupted(true);
        self.cpu.execute(2);
        let (entry, now) = self.cpu.now_and_tsc();
        // Expiries while one is pending merge.
        self.forward_timer(entry);
        self.cpu.execute(STUB_IN + 15);
        self.tick_tsc = now - self.last_tick;
        self.last_tick = now;
        self.report.ticks += 1;
        self.phase_ticks += 1;
        match self.phase {
            Phase::Measure => self.measure_tick([entry, now]),
            Phase::Tail => self.tail_tick(),
            Phase::WarmUp | Phase::Baseline => self.baseline_tick(now),
            Phase::Done | Phase::Opened | Phase::Rest => {}
        }
        // The rest of the tick is that of the next turn's begin.
        if !self.rests() {
            self.leave_tick();
        }
    }

    pub(super) fn leave_tick(&mut self) {
        if self.phase == Phase::Measure && self.boot.flags & FLAG_TIME_LOOP != 0 {
            self.time_loop();
        }
        if self.stat_setup() {
            // The payload rearms its timer in this mode.
            self.cpu.write_timer();
            self.next_tick = self.cpu.now() + self.boot.tick_count.max(1);
        } else if self.timer == Timer::Forwarded {
            let now = self.cpu.now();
            self.forward_timer(now);
        }
        self.cpu.write_eoi();
        self.cpu.execute(STUB_OUT);
        self.cpu.returns(false);
    }

    /// `time_loop` of `guest/payload/loop.c`; a simulated NMI comes at accesses only.
    fn time_loop(&mut self) {
        let begin = self.cpu.tsc();
        self.cpu.execute(LOOP_INSTRUCTIONS);
        self.report.loops += 1;
        self.report.loop_ticks += self.cpu.tsc() - begin;
    }

    /// Sets the next expiry to the first one after `now`.
    fn forward_timer(&mut self, now: u64) {
        if let Some(late) = now.checked_sub(self.next_tick) {
            let interval = self.boot.tick_count.max(1);
            self.next_tick += (late / interval + 1) * interval;
        }
    }

    fn baseline_tick(&mut self, now: u64) {
        if self.phase == Phase::WarmUp {
            self.phase = Phase::Baseline;
            self.phase_ticks = 0;
            self.units_at_start = self.units();
            self.report.baseline_begin = now;
        }
        if self.phase_ticks >= self.boot.baseline_ticks {
            self.report.baseline_end = now;
            self.report.baseline_units = self.units() - self.units_at_start;
            if self.takes_turns() {
                self.open_turns();
            } else {
                self.begin_measuring();
            }
        }
    }

    pub(super) fn begin_measuring(&mut self) {
        self.cpu.doorbell();
        self.phase = Phase::Measure;
        self.phase_ticks = 0;
        self.units_at_start = self.units();
        self.cpu.write_lvtpc(self.lvtpc);
        // Linux's driver assumes an enabled PMU at boot: the counters enabled by GLOBAL_CTRL at RESET stop here.
        self.pmu_disable();
        self.report.measure_begin = self.cpu.tsc();
        if self.stat_setup() {
            self.stat_begin();
            return;
        }
        self.events.schedule();
        self.start_active();
        self.pmu_enable();
    }

    fn measure_tick(&mut self, entry: [u64; 2]) {
        if self.stat_setup() {
            if self.stat_tick() {
                return;
            }
        } else if !self.target_met && self.phase_ticks < self.boot.max_ticks {
            if self.freq {
                self.adjust_at_tick();
            }
            if self.events.rotation_needed() {
                self.reschedule(entry, true);
            } else if self.boot.flags & FLAG_TASK_SWITCH != 0 {
                self.reschedule(entry, false);
            }
            if !self.target_met {
                return;
            }
        }
        if self.takes_turns() {
            self.end_turn();
        } else {
            self.end_measuring();
        }
    }

    /// `perf_rotate_context`, or sched-out and sched-in of the task: stops all events and starts those that fit.
    fn reschedule(&mut self, [entry, entry_tsc]: [u64; 2], rotate: bool) {
        self.pmu_disable();
        let now = self.cpu.tsc();
        self.stop_active(now);
        if rotate {
            self.events.rotate();
            let placed = self.events.schedule();
            self.cpu.execute(SCHEDULE + (COLLECT + if placed { PLACE } else { 0 }) * self.events.active_count as u64);
        }
        let started = self.start_active();
        self.pmu_enable();
        self.report.rotations += 1;
        let (exit, exit_tsc) = self.cpu.now_and_tsc();
        self.rotation.record(exit - entry);
        self.log(LOG_ROTATION, [entry_tsc, exit_tsc], 0, started);
    }

    pub(super) fn end_measuring(&mut self) {
        if self.enabled {
            self.stop_measuring();
        }
        let end = self.report.measure_end;
        self.stop_active(end.max(self.sched_in));
        self.lvtpc |= LVT_MASKED;
        self.cpu.write_lvtpc(self.lvtpc);
        for event in self.events.all.iter_mut().take(self.events.enabled) {
            event.enabled_ticks = end - self.report.measure_begin;
        }
        self.cpu.doorbell();
        self.phase = Phase::Tail;
        self.phase_ticks = 0;
        self.end_if_over();
    }

    fn tail_tick(&mut self) {
        self.cpu.doorbell();
        let held = self.cpu.held();
        self.held_at_tail_tick.push(held);
        self.end_if_over();
    }

    fn end_if_over(&mut self) {
        if self.phase_ticks < self.boot.tail_ticks {
            return;
        }
        self.publish();
        self.phase = Phase::Done;
    }

    pub(super) fn publish(&mut self) {
        for event in &self.events.all {
            self.report.overflows[event.spec] = event.overflows;
            self.report.counts[event.spec] = event.count;
            self.report.enabled[event.spec] = event.enabled_ticks;
            self.report.running[event.spec] = event.running;
            self.report.periods[event.spec] = event.period.cast_unsigned();
        }
    }
}
