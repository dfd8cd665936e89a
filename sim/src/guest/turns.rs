//! A guest that takes its samples in turns (`guest/payload/c/tick.c`, FLAG_TURNS). Between two of them it waits inside a tick.

use guest::abi::{DB_MEASURE_END, DB_TURN_OVER, FLAG_TURNS, Report};

use super::cpu::Cpu;
use super::paths::Path;
use super::state::{Guest, GuestOutcome, Phase};

/// The payload's shortest timer, ns.
const SOON: u64 = 250_000;

impl<C: Cpu> Guest<C> {
    pub(super) fn takes_turns(&self) -> bool {
        self.boot.flags & FLAG_TURNS != 0
    }

    /// Returns whether it waits for its next turn.
    #[must_use]
    pub fn rests(&self) -> bool {
        matches!(self.phase, Phase::Opened | Phase::Rest)
    }

    /// Makes the tick that ends the turn come at once, because nothing is left to be sampled in it.
    pub(super) fn tick_soon(&mut self) {
        if self.boot.tick_count > SOON {
            self.go(Path::Soon);
            self.write_timer(SOON);
            self.go(Path::SoonReturn);
        } else {
            self.go(Path::SoonNot);
        }
    }

    pub(super) fn end_turn(&mut self) {
        self.go(Path::EndTurn);
        if self.enabled {
            self.go(Path::EndTurnDisable);
            self.pmu_disable();
            self.report.measure_end = self.rdtsc().1;
            self.report.measure_units = self.units() - self.units_at_start;
            self.go(Path::EndTurnDisabled);
        }
        let ran = self.report.measure_end.wrapping_sub(self.report.measure_begin);
        self.go(Path::EndTurnEvents);
        if self.events.enabled > 0 {
            self.go(Path::EndTurnSome);
            self.go_times(Path::EndTurnEvent, self.events.enabled as u64);
        }
        for event in self.events.all.iter_mut().take(self.events.enabled) {
            event.enabled_ticks = ran;
        }
        self.go(Path::EndTurnStop);
        self.stop_active(self.report.measure_end);
    }

    /// Mirrors `wait_for_turn`, up to the wait.
    pub(super) fn rest(&mut self, phase: Phase) {
        self.go(Path::WaitTimer);
        self.write_timer(0);
        self.go(Path::WaitDoorbell);
        self.doorbell(DB_MEASURE_END);
        self.go(Path::WaitPublish);
        self.publish();
        self.go(Path::WaitReset);
        self.go_for_all(Path::WaitSome, Path::WaitEvent);
        self.stopped = self.rdtsc().1;
        self.go(Path::WaitOver);
        self.ring(DB_TURN_OVER);
        self.phase = phase;
    }

    /// Executes a loop over all events.
    fn go_for_all(&mut self, some: Path, each: Path) {
        if !self.events.all.is_empty() {
            self.go(some);
            self.go_times(each, self.events.all.len() as u64);
        }
    }

    /// Begins a turn of `samples` at `at`, or as soon as the vCPU's thread runs.
    pub fn begin_turn(&mut self, at: u64, samples: u64) {
        self.boot.sample_target = samples;
        let phase = self.wake(at);
        self.limit = self.cpu.now().saturating_add(self.time_limit);
        self.phase = Phase::Measure;
        if phase == Phase::Opened {
            self.go(Path::BeginAfterTurn);
            self.begin_measuring();
        } else {
            self.next_turn();
        }
        self.over_limit();
    }

    fn next_turn(&mut self) {
        self.units_at_start = self.units();
        self.go(Path::NextTurn);
        self.report.measure_begin = self.rdtsc().1;
        self.go(Path::NextTurnStart);
        self.start_active();
        self.go(Path::NextTurnEnable);
        self.pmu_enable();
        self.go(Path::NextTurnDone);
        self.leave_tick();
    }

    /// Ends the guest, from its rest.
    pub fn begin_end(&mut self, at: u64) {
        let phase = self.wake(at);
        self.limit = self.cpu.now().saturating_add(self.time_limit);
        if phase == Phase::Opened {
            self.go(Path::TurnsNever);
            self.tail();
        } else {
            (self.report.measure_begin, self.report.measure_end) = (self.sched_in, self.sched_in);
            self.go(Path::TurnsOver);
            self.end_measuring();
        }
        self.over_limit();
    }

    /// Goes on at `at`, with figures and log at 0 and the timer on. Returns the phase it waited in.
    fn wake(&mut self, at: u64) -> Phase {
        self.cpu.rest_until(at);
        *self.report = Report { magic: self.report.magic, ..Report::default() };
        self.log.clear();
        self.target_met = false;
        self.phase_ticks = 0;
        for event in &mut self.events.all {
            (event.overflows, event.count, event.running, event.enabled_ticks, event.freq_count) = (0, 0, 0, 0, 0);
        }
        self.began = self.cpu.now();
        self.take_nmis();
        let now = self.rdtsc().1;
        self.until_target = self.boot.sample_target;
        (self.sched_in, self.last_tick) = (now, now);
        for event in &mut self.events.all {
            event.freq_tsc = event.freq_tsc.wrapping_add(now - self.stopped);
        }
        self.go(Path::WaitBegin);
        self.go_for_all(Path::WaitBeginSome, Path::WaitBeginEvent);
        self.go(Path::WaitArm);
        self.write_timer(self.boot.tick_count.max(1));
        self.go(Path::WaitReturn);
        std::mem::replace(&mut self.phase, Phase::Measure)
    }

    /// Returns the outcome since its last turn began.
    pub fn take_outcome(&mut self) -> GuestOutcome {
        GuestOutcome {
            ns: self.cpu.now().saturating_sub(self.began),
            timed_out: self.timed_out,
            report: self.report.clone(),
            log: self.log.clone(),
            deliveries: std::mem::take(&mut self.deliveries),
            held_at_tail_tick: std::mem::take(&mut self.held_at_tail_tick),
            handler: std::mem::take(&mut self.handler),
            delivery: std::mem::take(&mut self.delivery),
            rotation: std::mem::take(&mut self.rotation),
            side: self.cpu.take_side(),
        }
    }
}
