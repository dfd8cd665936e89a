//! A guest that takes its samples in turns (`guest/payload/tick.c`, FLAG_TURNS). Between two of them it waits inside a tick.

use guest::abi::{FLAG_TURNS, Report};

use super::state::{Guest, GuestOutcome, Phase};
use crate::side::SimHost;

/// The payload's shortest timer, ns.
const SOON: u64 = 250_000;

impl<H: SimHost> Guest<H> {
    pub(super) fn takes_turns(&self) -> bool {
        self.boot.flags & FLAG_TURNS != 0
    }

    /// Whether it waits for its next turn.
    #[must_use]
    pub fn rests(&self) -> bool {
        matches!(self.phase, Phase::Opened | Phase::Rest)
    }

    /// Nothing is left to be sampled in this turn: the tick that ends it comes at once.
    pub(super) fn tick_soon(&mut self) {
        if self.boot.tick_count > SOON {
            self.cpu.write_timer();
            self.next_tick = self.cpu.now() + SOON;
        }
    }

    /// The end of the baseline: the first turn may begin.
    pub(super) fn open_turns(&mut self) {
        self.rest(Phase::Opened);
    }

    pub(super) fn end_turn(&mut self) {
        if self.enabled {
            self.stop_measuring();
        }
        let end = self.report.measure_end;
        for event in self.events.all.iter_mut().take(self.events.enabled) {
            event.enabled_ticks = end - self.report.measure_begin;
        }
        self.stop_active(end.max(self.sched_in));
        self.rest(Phase::Rest);
    }

    fn rest(&mut self, phase: Phase) {
        self.cpu.write_timer();
        self.cpu.doorbell();
        self.take_nmis();
        self.publish();
        self.cpu.doorbell();
        self.phase = phase;
    }

    /// Begins a turn of `samples` at `at`, or as soon as the vCPU's thread runs.
    pub fn begin_turn(&mut self, at: u64, samples: u64) {
        let phase = self.wake(at);
        self.until_target = samples;
        self.limit = self.cpu.now().saturating_add(self.time_limit);
        self.phase = Phase::Measure;
        if phase == Phase::Opened {
            self.begin_measuring();
        } else {
            self.units_at_start = self.units();
            self.report.measure_begin = self.cpu.tsc();
            self.start_active();
            self.pmu_enable();
        }
        self.leave_tick();
    }

    /// Ends the guest, from its rest.
    pub fn begin_end(&mut self, at: u64) {
        let phase = self.wake(at);
        self.limit = self.cpu.now().saturating_add(self.time_limit);
        if phase == Phase::Rest {
            (self.report.measure_begin, self.report.measure_end) = (self.sched_in, self.sched_in);
        }
        self.end_measuring();
        self.leave_tick();
    }

    /// Goes on at `at`, with figures and log at 0 and the timer on. Returns the phase it waited in.
    fn wake(&mut self, at: u64) -> Phase {
        let stopped = self.cpu.tsc();
        self.cpu.rest_until(at);
        let (now, begin) = (self.cpu.tsc(), self.cpu.now());
        self.began = begin;
        *self.report = Report { magic: self.report.magic, ..Report::default() };
        self.log.clear();
        self.target_met = false;
        self.phase_ticks = 0;
        (self.sched_in, self.last_tick) = (now, now);
        for event in &mut self.events.all {
            (event.overflows, event.count, event.running, event.enabled_ticks, event.freq_count) = (0, 0, 0, 0, 0);
            event.freq_tsc += now - stopped;
        }
        self.cpu.write_timer();
        self.next_tick = self.cpu.now() + self.boot.tick_count.max(1);
        std::mem::replace(&mut self.phase, Phase::Measure)
    }

    /// What it left since its last turn began.
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
