//! The guest's workload, timer tick and phases (`guest/payload/c/tick.c`).

use arch_pmu::intel::IA32_PERF_GLOBAL_CTRL;
use guest::abi::{
    DB_DONE, DB_MEASURE_BEGIN, DB_MEASURE_END, DB_TAIL_TICK, FLAG_TASK_SWITCH, FLAG_TIME_LOOP, LOG_ROTATION,
    WORKLOAD_IDLE, WORKLOAD_IO,
};

use super::cpu::Cpu;
use super::paths::Path;
use super::state::{Guest, Phase, Timer};

/// Mask bit of LVTPC.
const LVT_MASKED: u32 = 1 << 16;

impl<C: Cpu> Guest<C> {
    /// Runs up to the next tick or NMI; returns whether the guest is done.
    pub fn step(&mut self) -> bool {
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
            self.go(Path::TailAwake);
            self.wait_in_tail(Path::TailHalt);
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
            self.go(Path::IdleAwake);
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
            self.cpu.port_write();
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
        self.go(Path::InterruptIn);
        let (entry, now) = self.rdtsc();
        self.go(Path::InterruptCall);
        self.go(Path::Tick);
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
            self.go(Path::LeaveMeasure);
            if self.boot.flags & FLAG_TIME_LOOP != 0 {
                self.go(Path::LeaveTimed);
                self.time_loop();
                self.go(Path::LeaveTimedDone);
            }
        }
        if self.stat_setup() {
            self.go(Path::LeaveArm);
            self.write_timer(self.boot.tick_count.max(1));
            self.go(Path::LeaveArmed);
        } else {
            if self.timer == Timer::Forwarded {
                let now = self.cpu.now();
                self.forward_timer(now);
            }
            self.go(Path::LeaveEoi);
        }
        self.write_eoi();
        self.go(Path::LeaveReturn);
        self.go(Path::InterruptOut);
        self.spend();
        self.cpu.returns(false);
        self.woke = true;
    }

    /// Mirrors `time_loop` of `guest/payload/c/loop.c`; a simulated NMI comes at accesses only.
    fn time_loop(&mut self) {
        self.go(Path::TimeLoop);
        let begin = self.rdtsc().1;
        self.go(Path::TimeLoopBody);
        let end = self.rdtsc().1;
        self.report.loops += 1;
        self.report.loop_ticks += end - begin;
        self.go(Path::TimeLoopDone);
    }

    /// Sets the next expiry to the first one after `now`.
    fn forward_timer(&mut self, now: u64) {
        if let Some(late) = now.checked_sub(self.next_tick) {
            self.next_tick += (late / self.interval + 1) * self.interval;
        }
    }

    fn baseline_tick(&mut self, now: u64) {
        self.go(Path::TickBaseline);
        if self.phase == Phase::WarmUp {
            self.phase = Phase::Baseline;
            self.phase_ticks = 0;
            self.units_at_start = self.units();
            self.report.baseline_begin = now;
            self.go(Path::TickWarmUp);
        }
        if self.phase_ticks < self.boot.baseline_ticks {
            self.go(Path::BaselineGoesOn);
            self.leave_tick();
            return;
        }
        self.report.baseline_end = now;
        self.report.baseline_units = self.units() - self.units_at_start;
        self.go(Path::BaselineOver);
        if self.takes_turns() {
            // The rest of the tick is that of the next turn's begin.
            self.go(Path::BeginTurns);
            self.rest(Phase::Opened);
        } else {
            self.begin_measuring();
        }
    }

    pub(super) fn begin_measuring(&mut self) {
        self.go(Path::Begin);
        self.doorbell(DB_MEASURE_BEGIN);
        self.phase = Phase::Measure;
        self.phase_ticks = 0;
        self.units_at_start = self.units();
        self.go(Path::BeginLvtpc);
        self.write_lvtpc();
        // The counters enabled by GLOBAL_CTRL at RESET stop here.
        if self.is_intel() {
            self.go(Path::BeginOff);
            self.wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
        } else {
            self.amd_off_at_reset();
        }
        self.report.measure_begin = self.rdtsc().1;
        if self.stat_setup() {
            self.go(Path::BeginStat);
            self.stat_begin();
            self.go(Path::BeginStatDone);
        } else {
            self.go(Path::BeginSchedule);
            self.schedule();
            self.go(Path::BeginStart);
            self.start_active();
            self.go(Path::BeginEnable);
            self.pmu_enable();
            self.go(Path::BeginDone);
        }
        self.leave_tick();
    }

    fn measure_tick(&mut self, entry: [u64; 2]) {
        self.go(Path::Measure);
        if self.stat_setup() {
            self.go(Path::MeasureStat);
            if self.stat_tick() {
                self.go(Path::MeasureStatGoesOn);
                self.leave_tick();
                return;
            }
            self.go(Path::MeasureStatOver);
        } else if self.sample_on(entry) {
            self.leave_tick();
            return;
        }
        self.go(Path::MeasureEnds);
        if self.takes_turns() {
            self.go(Path::EndTurns);
            self.end_turn();
            self.go(Path::EndTurnWait);
            self.rest(Phase::Rest);
        } else {
            self.end_measuring();
        }
    }

    /// Runs a tick of sampling; returns whether it goes on.
    fn sample_on(&mut self, entry: [u64; 2]) -> bool {
        if self.target_met {
            self.go(Path::MeasureMet);
            return false;
        }
        if self.phase_ticks >= self.boot.max_ticks {
            self.go(Path::MeasureOver);
            return false;
        }
        self.go(Path::MeasureGoesOn);
        if self.freq {
            self.go(Path::MeasureFreq);
            self.adjust_at_tick();
            self.go(Path::MeasureFreqDone);
        }
        self.go(Path::MeasureRotation);
        self.go(Path::RotationNeeded);
        if self.events.rotation_needed() {
            self.go(Path::MeasureRotate);
            self.reschedule(entry, true);
            self.go(Path::MeasureRescheduled);
        } else if self.boot.flags & FLAG_TASK_SWITCH != 0 {
            self.go(Path::MeasureSwitch);
            self.reschedule(entry, false);
            self.go(Path::MeasureRescheduled);
        } else {
            self.go(Path::MeasureLeft);
        }
        self.go(if self.target_met { Path::MeasureMetNow } else { Path::MeasureDone });
        !self.target_met
    }

    /// Mirrors `perf_rotate_context`, or sched-out and sched-in of the task: stops all events and starts those that fit.
    fn reschedule(&mut self, [entry, entry_tsc]: [u64; 2], rotate: bool) {
        self.go(Path::Resched);
        self.pmu_disable();
        let now = self.rdtsc().1;
        self.go(Path::ReschedStop);
        self.stop_active(now);
        if rotate {
            self.go(Path::ReschedRotate);
            self.rotate();
            self.go(Path::ReschedSchedule);
            self.schedule();
            self.go(Path::ReschedScheduled);
        } else {
            self.go(Path::ReschedKeep);
        }
        self.go(Path::ReschedStart);
        let started = self.start_active();
        self.go(Path::ReschedEnable);
        self.pmu_enable();
        self.report.rotations += 1;
        self.go(Path::ReschedTsc);
        let (exit, exit_tsc) = self.rdtsc();
        self.rotation.record(exit - entry);
        let logged = self.log(LOG_ROTATION, [entry_tsc, exit_tsc], 0, started);
        self.go(Path::ReschedLog);
        if logged.fits {
            self.go(Path::ReschedLogged);
        }
        if logged.wanted {
            self.go(Path::ReschedWanted);
        }
        if logged.meets {
            self.go(Path::ReschedMeets);
        }
        self.go(Path::ReschedReturn);
    }

    pub(super) fn end_measuring(&mut self) {
        self.go(Path::EndMeasuring);
        self.end_turn();
        self.lvtpc |= LVT_MASKED;
        self.go(Path::EndLvtpc);
        self.write_lvtpc();
        self.go(Path::EndDoorbell);
        self.doorbell(DB_MEASURE_END);
        self.go(Path::EndTail);
        self.tail();
    }

    pub(super) fn tail(&mut self) {
        self.phase = Phase::Tail;
        self.phase_ticks = 0;
        self.go(Path::Tail);
        if self.stat_setup() {
            self.go(Path::TailArm);
            self.write_timer(self.boot.tick_count.max(1));
        } else if self.timer == Timer::Forwarded {
            let now = self.cpu.now();
            self.forward_timer(now);
        }
        self.go(Path::TailEoi);
        self.write_eoi();
        self.go(Path::TailFirst);
        self.wait_in_tail(Path::TailFirstHalt);
    }

    fn wait_in_tail(&mut self, halt: Path) {
        if self.phase_ticks < self.boot.tail_ticks {
            self.woke = false;
            self.go(halt);
            self.spend();
            if self.cpu.in_tick() {
                self.cpu.returns(false);
            }
            return;
        }
        self.go(Path::TailOver);
        self.write_timer(0);
        self.go(Path::TailPublish);
        self.publish();
        self.go(Path::TailDone);
        self.ring(DB_DONE);
        self.phase = Phase::Done;
    }

    fn tail_tick(&mut self) {
        self.go(Path::TickTail);
        self.doorbell(DB_TAIL_TICK);
        let held = self.cpu.held();
        self.held_at_tail_tick.push(held);
        self.go(Path::LeaveTail);
        self.leave_tick();
    }

    /// Writes the report's figures.
    pub(super) fn publish(&mut self) {
        self.go(Path::Publish);
        if !self.events.all.is_empty() {
            self.go(Path::PublishSome);
            self.go_times(Path::PublishEvent, self.events.all.len() as u64);
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
