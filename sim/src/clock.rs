//! Virtual time of one vCPU thread, in whole nanoseconds.

use crate::model::Cost;
use crate::sched::Schedule;
use crate::stream::{Purpose, Streams};

/// Times of a vCPU, ns, and its exits to userspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Since the start of the simulation.
    pub now: u64,
    /// Time with the thread on its CPU.
    pub thread: u64,
    /// Time in guest mode in ring 3.
    pub user: u64,
    /// Time in guest mode in ring 0.
    pub kernel: u64,
    /// Exits to userspace.
    pub exits: u64,
}

/// Clock, schedule and random numbers of a vCPU thread.
#[derive(Clone, Debug)]
pub struct Clock {
    now: u64,
    /// Time off the CPU, among `now`.
    away: u64,
    user: u64,
    kernel: u64,
    exits: u64,
    /// Ring-0 time that is not in `now` and `kernel`, ps: its remainder below a nanosecond, and what [`owe`](Self::owe) left to
    /// [`settle`](Self::settle).
    rest_ps: u64,
    schedule: Schedule,
    streams: Streams,
    switched_in: bool,
    slept: bool,
}

impl Clock {
    /// Creates a clock that starts at the first slice of `schedule`.
    #[must_use]
    pub fn new(schedule: Schedule, streams: Streams) -> Self {
        let first = schedule.first();
        let (user, kernel, exits) = (0, 0, 0);
        Self {
            now: first,
            away: first,
            user,
            kernel,
            exits,
            rest_ps: 0,
            schedule,
            streams,
            switched_in: false,
            slept: false,
        }
    }

    /// Returns all times.
    #[inline]
    #[must_use]
    pub const fn times(&self) -> Times {
        debug_assert!(self.rest_ps < 1000, "settled before it is read");
        let Self { now, away, user, kernel, exits, .. } = *self;
        Times { now, thread: now - away, user, kernel, exits }
    }

    /// Returns the ns since the start of the simulation.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> u64 {
        debug_assert!(self.rest_ps < 1000, "settled before it is read");
        self.now
    }

    /// Returns the random numbers.
    #[inline]
    pub const fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Draws a random cost.
    #[inline]
    pub fn sample(&mut self, cost: &Cost, purpose: Purpose) -> u64 {
        cost.sample(self.streams.of(purpose))
    }

    /// Runs the thread in host code for a random time.
    #[inline]
    pub fn spend(&mut self, cost: &Cost, purpose: Purpose) {
        let ns = self.sample(cost, purpose);
        self.host(ns);
    }

    /// Runs the thread in host code.
    #[inline]
    pub const fn host(&mut self, ns: u64) {
        self.now += ns;
    }

    /// Runs the guest in ring 3.
    #[inline]
    pub const fn user(&mut self, ns: u64) {
        self.host(ns);
        self.user += ns;
    }

    /// Runs the guest in ring 0.
    #[inline]
    pub const fn kernel(&mut self, ps: u64) {
        self.owe(ps);
        self.settle();
    }

    /// Notes that the guest runs in ring 0; the time is added by [`settle`](Self::settle), because a guest runs several times between two
    /// accesses.
    #[inline]
    pub const fn owe(&mut self, ps: u64) {
        self.rest_ps += ps;
    }

    /// Adds the time that is owed.
    #[inline]
    pub const fn settle(&mut self) {
        let ns = self.rest_ps / 1000;
        self.rest_ps -= ns * 1000;
        self.host(ns);
        self.kernel += ns;
    }

    /// Counts an exit of the guest to userspace.
    #[inline]
    pub const fn exit(&mut self) {
        self.exits += 1;
    }

    /// Returns the end of the current slice.
    #[must_use]
    pub const fn slice_ends(&self) -> u64 {
        self.schedule.ends()
    }

    /// Returns whether the slice is over.
    #[inline]
    #[must_use]
    pub const fn slice_is_over(&self) -> bool {
        self.now >= self.schedule.ends()
    }

    /// Returns whether the thread was switched in, and whether it slept, since that was last taken.
    #[inline]
    #[must_use]
    pub const fn was_away(&self) -> (bool, bool) {
        (self.switched_in, self.slept)
    }

    /// Yields the CPU if the slice is over; whether it was.
    #[inline]
    pub fn preempt_if_due(&mut self) -> bool {
        let over = self.slice_is_over();
        if over {
            let at = self.schedule.next_slice(self.now);
            self.goes_on(at);
        }
        over
    }

    /// Sleeps until `at`, then waits for a slice.
    pub fn sleep_until(&mut self, at: u64) {
        let at = self.schedule.woken(self.now.max(at));
        self.goes_on(at);
        self.slept = true;
    }

    /// Gives the thread its CPU again.
    const fn goes_on(&mut self, at: u64) {
        self.away += at - self.now;
        self.now = at;
        self.switched_in = true;
    }

    /// Returns whether the thread was switched in since the last call.
    #[inline]
    pub const fn take_switched_in(&mut self) -> bool {
        std::mem::replace(&mut self.switched_in, false)
    }

    /// Returns whether the thread slept since the last call.
    #[inline]
    pub const fn take_slept(&mut self) -> bool {
        std::mem::replace(&mut self.slept, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn picoseconds_add_up() {
        let mut clock = Clock::new(Schedule::new(1000, 1, 0, None), Streams::new(1, 0, 0));
        for _ in 0..10 {
            clock.owe(100);
            clock.kernel(250);
        }
        clock.user(5);
        clock.host(2);
        assert_eq!(clock.times(), Times { now: 10, thread: 10, user: 5, kernel: 3, exits: 0 });
    }
}
