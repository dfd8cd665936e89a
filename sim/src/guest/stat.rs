//! Consecutive `perf stat` runs in the guest: the register accesses and doorbells of `guest/payload/c/stat.c`, one for one.

use guest::abi::{
    CALLS, FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, LOG_PHASE, PHASE_DISABLE, PHASE_ENABLE, PHASE_NONE, PHASE_PROGRAM,
    PHASE_READ, PHASE_ROTATE,
};

use super::state::Guest;
use crate::side::SimHost;

/// A call of a phase for one event, and the way to the next one.
type Call<H> = fn(&mut Guest<H>, usize);

/// Returns the loop around the calls of a phase: to the first one, from one to the next, from the last one, and without any.
const fn loop_of(phase: u64) -> [u64; 4] {
    match phase {
        PHASE_PROGRAM | PHASE_READ => [9, 7, 10, 9],
        PHASE_ENABLE => [8, 7, 10, 8],
        _ => [9, 7, 9, 8],
    }
}

impl<H: SimHost> Guest<H> {
    pub(super) const fn stat_setup(&self) -> bool {
        self.boot.flags & FLAG_STAT_SETUP != 0
    }

    /// Mirrors `stat_begin`.
    pub(super) fn stat_begin(&mut self) {
        self.events.enabled = 0;
        self.events.active_count = 0;
        self.go(10);
        self.pmu_enable();
    }

    /// Mirrors `stat_tick`; returns false after the last cycle.
    pub(super) fn stat_tick(&mut self) -> bool {
        self.go(15);
        self.stat.ticks += 1;
        if !self.stat.counting {
            if self.stat.ticks < self.boot.gap_ticks {
                self.go(11);
                return true;
            }
            self.set_up();
        } else if self.stat.ticks < self.boot.window_ticks {
            self.go(9);
            if self.events.rotation_needed() {
                self.go(3);
                self.rotate_while_counting();
            }
            self.go(9);
            return true;
        } else {
            self.tear_down();
            let met = self.stat.cycles == self.boot.sample_target;
            if met || self.past_limit() {
                self.go(9);
                return false;
            }
        }
        self.stat.ticks = 0;
        self.go(10);
        true
    }

    fn past_limit(&mut self) -> bool {
        let ticks = self.rdtsc().1 - self.report.measure_begin;
        self.go(7);
        ticks >= self.boot.limit_us.saturating_mul(self.tsc_hz / 1_000_000)
    }

    fn set_up(&mut self) {
        self.events.close();
        self.go(8);
        self.go_for_events(5, 6);
        self.each(PHASE_PROGRAM, Self::program_call);
        self.end_phase(PHASE_PROGRAM, 7);
        self.events.active_count = 0;
        if self.boot.flags & FLAG_ENABLE_ONCE != 0 {
            self.begin_phase(PHASE_ENABLE);
            let begin = self.rdtsc().1;
            self.go(4);
            self.enable_all();
            let end = self.rdtsc().1;
            self.go(7);
            self.stat.stamps.clear();
            self.stat.stamps.extend([begin, end]);
        } else {
            self.each(PHASE_ENABLE, Self::enable_call);
        }
        self.end_phase(PHASE_ENABLE, 2);
        self.stat.counting = true;
    }

    fn tear_down(&mut self) {
        self.go(4);
        self.each(PHASE_READ, Self::read_call);
        self.end_phase(PHASE_READ, 2);
        self.each(PHASE_DISABLE, Self::disable_call);
        self.end_phase(PHASE_DISABLE, 7);
        self.events.enabled = 0;
        self.stat.counting = false;
        self.stat.cycles += 1;
        self.report.cycles = self.stat.cycles;
    }

    fn rotate_while_counting(&mut self) {
        self.begin_phase(PHASE_ROTATE);
        let begin = self.rdtsc().1;
        self.go(7);
        self.resched(true);
        let end = self.rdtsc().1;
        self.go(6);
        self.stat.stamps.clear();
        self.stat.stamps.extend([begin, end]);
        self.end_phase(PHASE_ROTATE, 2);
        self.report.rotations += 1;
    }

    /// Executes a loop over all events, without accesses.
    fn go_for_events(&mut self, some: u64, each: u64) {
        if !self.events.all.is_empty() {
            self.go(some);
            self.go(each * self.events.all.len() as u64);
        }
    }

    /// Makes the timed calls of a phase.
    fn each(&mut self, phase: u64, call: Call<H>) {
        let [first, next, last, none] = loop_of(phase);
        self.begin_phase(phase);
        let mut stamps = std::mem::take(&mut self.stat.stamps);
        stamps.clear();
        stamps.push(self.rdtsc().1);
        self.go(if self.events.all.is_empty() { none } else { first });
        for n in 0..self.events.all.len() {
            call(self, n);
            stamps.push(self.rdtsc().1);
            self.go(if n + 1 < self.events.all.len() { next } else { last });
        }
        self.stat.stamps = stamps;
    }

    /// Ends a phase and logs its calls.
    fn end_phase(&mut self, phase: u64, then: u64) {
        self.begin_phase(PHASE_NONE);
        self.go(11);
        let stamps = std::mem::take(&mut self.stat.stamps);
        if stamps.len() > 1 {
            self.go(4);
        }
        for (n, ends) in (0..).zip(stamps.windows(2)) {
            let logged = self.log(LOG_PHASE + phase, [ends[0], ends[1]], self.stat.cycles * CALLS + n, 0);
            self.go(14);
            if logged.fits {
                self.go(6);
            }
        }
        self.stat.stamps = stamps;
        self.go(then);
    }

    fn program_call(&mut self, at: usize) {
        self.events.enabled = at + 1;
        self.go(7);
        self.schedule();
        if self.events.active_count == self.events.enabled {
            self.go(2);
            self.program(at);
            self.go(1);
        }
    }

    /// Mirrors `ctx_resched`, or `perf_rotate_context`.
    fn resched(&mut self, rotate: bool) {
        self.go(5);
        let now = self.rdtsc().1;
        self.go(5);
        self.pmu_disable();
        self.go(3);
        self.stop_active(now);
        if rotate {
            self.go(3);
            self.rotate();
        }
        self.go(4);
        self.schedule();
        self.go(2);
        self.start_active();
        self.sched_in = self.rdtsc().1;
        self.go(9);
        self.pmu_enable();
    }

    fn enable_call(&mut self, at: usize) {
        self.events.all[at].enabled_at = self.rdtsc().1;
        self.events.enabled = at + 1;
        self.go(9);
        self.resched(false);
    }

    fn enable_all(&mut self) {
        let now = self.rdtsc().1;
        self.go(11);
        self.go_for_events(5, 4);
        for event in &mut self.events.all {
            event.enabled_at = now;
        }
        self.events.enabled = self.events.all.len();
        self.resched(false);
    }

    /// Mirrors `place_of`; the numbers are of an event before it, of the event, of none, and of an empty list.
    fn place_of(&mut self, at: usize, [passed, found, none, empty]: [u64; 4]) -> Option<usize> {
        let place = self.events.place_of(at);
        self.go(passed * place.unwrap_or(self.events.active_count) as u64);
        self.go(match place {
            Some(_) => found,
            None if self.events.active_count == 0 => empty,
            None => none,
        });
        place
    }

    fn read_call(&mut self, at: usize) {
        // Something counts, so the last two ways are the same.
        let ways = [5, 10, 4, 4];
        if self.place_of(at, ways).is_some() {
            self.update(at);
        }
        self.go(1);
    }

    fn disable_call(&mut self, at: usize) {
        let ways = [5, 7, 4, 5];
        let place = self.place_of(at, ways);
        let now = self.rdtsc().1;
        self.go(6);
        self.pmu_disable();
        self.go(2);
        if let Some(place) = place {
            self.go(2);
            self.stop(at);
            let event = &mut self.events.all[at];
            event.running = event.running.wrapping_add(now.wrapping_sub(self.sched_in));
            self.events.remove_active(place);
            self.go(9);
            let behind = self.events.active_count - place;
            if behind > 0 {
                self.go(4);
                self.go(5 * behind as u64);
            }
        }
        let event = &mut self.events.all[at];
        event.enabled_ticks = event.enabled_ticks.wrapping_add(now.wrapping_sub(event.enabled_at));
        self.go(6);
        self.pmu_enable();
    }
}
