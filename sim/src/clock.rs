//! Virtual time of one vCPU thread, in whole nanoseconds.

use crate::model::{Cost, Others};
use crate::stream::{Purpose, Stream, Streams};

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
    pub(crate) schedule: Schedule,
    streams: Streams,
    /// The thread was switched in since that was last taken.
    pub(crate) switched_in: bool,
}

impl Clock {
    /// Creates a clock that starts at the first slice of `schedule`.
    pub fn new(schedule: Schedule, streams: Streams) -> Self {
        let first = schedule.first();
        let (user, kernel, exits) = (0, 0, 0);
        Self { now: first, away: first, user, kernel, exits, rest_ps: 0, schedule, streams, switched_in: false }
    }

    /// Returns all times.
    #[inline]
    pub const fn times(&self) -> Times {
        debug_assert!(self.rest_ps < 1000, "settled before it is read");
        let Self { now, away, user, kernel, exits, .. } = *self;
        Times { now, thread: now - away, user, kernel, exits }
    }

    /// Returns the ns since the start of the simulation.
    #[inline]
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

    /// Notes that the guest runs in ring 0; the time is added by [`settle`](Self::settle), because a guest runs several
    /// times between two accesses.
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

    /// Returns whether the slice is over.
    #[inline]
    pub const fn slice_is_over(&self) -> bool {
        self.now >= self.schedule.ends
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
    }

    /// Gives the thread its CPU again.
    const fn goes_on(&mut self, at: u64) {
        self.away += at - self.now;
        self.now = at;
        self.switched_in = true;
    }
}

// Sched slices of a vCPU thread.
//
// vCPUs that share a CPU get slices in turn, whether or not the others have work. Slices are therefore known in advance, and
// a vCPU can be preempted inside its NMI handler without simulating the others at that moment. In addition, other tasks of
// the host may take the CPU. When they do so depends on nothing that the vCPU does, so every arm meets the same ones.

/// Slices of one vCPU thread.
#[derive(Clone, Debug)]
pub struct Schedule {
    slice: u64,
    /// Number of vCPUs on this CPU, and index of this one.
    sharing: u64,
    place: u64,
    others: Option<OtherTasks>,
    /// End of the current slice.
    pub(crate) ends: u64,
}

/// The preemptions by other tasks, one after the other.
#[derive(Clone, Debug)]
struct OtherTasks {
    model: Others,
    stream: Stream,
    /// Begin of the next preemption.
    at: u64,
    length: u64,
}

impl OtherTasks {
    /// Returns the first preemption after `from`.
    fn new(model: Others, mut stream: Stream, from: u64) -> Self {
        let at = from.saturating_add(model.every.sample(&mut stream).max(1));
        let length = model.length.sample(&mut stream);
        Self { model, stream, at, length }
    }

    const fn ends(&self) -> u64 {
        self.at.saturating_add(self.length)
    }

    /// Goes on to the preemption after the next one; returns the length of the next one.
    fn pass(&mut self) -> u64 {
        let passed = self.length;
        self.at = self.ends().saturating_add(self.model.every.sample(&mut self.stream).max(1));
        self.length = self.model.length.sample(&mut self.stream);
        passed
    }
}

impl Schedule {
    /// Slices of vCPU `place` of the `sharing` vCPUs on one CPU, and other tasks there with their random numbers.
    pub fn new(slice: u64, sharing: u64, place: u64, others: Option<(Others, Stream)>) -> Self {
        let mut schedule = Self { slice: slice.max(1), sharing: sharing.max(1), place, others: None, ends: 0 };
        let first = schedule.first();
        schedule.others = others.map(|(model, stream)| OtherTasks::new(model, stream, first));
        schedule.plan(first);
        schedule
    }

    /// Returns the start of the first slice.
    pub const fn first(&self) -> u64 {
        self.place * self.slice
    }

    /// Determines the end of the slice that begins at `now`.
    fn plan(&mut self, now: u64) {
        let own = if self.sharing == 1 { u64::MAX } else { now - now % self.slice + self.slice };
        self.ends = self.others.as_ref().map_or(own, |others| own.min(others.at));
    }

    /// Ends the slice at `now`; returns the start of the next one.
    pub fn next_slice(&mut self, now: u64) -> u64 {
        let mut at = now;
        // A preemption lasts as long if the vCPU noticed late that it began.
        while let Some(others) = self.others.as_mut().filter(|others| others.at <= at) {
            at = at.saturating_add(others.pass());
        }
        self.woken(at)
    }

    /// Wakes the thread at `now`; returns when it gets the CPU.
    pub fn woken(&mut self, now: u64) -> u64 {
        let mut at = self.own_slice(now);
        // These preemptions began without the vCPU on its CPU, and the last one may go on.
        while let Some(others) = self.others.as_mut().filter(|others| others.at < at) {
            let until = others.ends();
            others.pass();
            at = self.own_slice(at.max(until));
        }
        self.plan(at);
        at
    }

    /// Returns the first time from `at` on inside a slice of this vCPU.
    const fn own_slice(&self, at: u64) -> u64 {
        let slot = at / self.slice;
        let wait = (self.place + self.sharing - slot % self.sharing) % self.sharing;
        if wait == 0 { at } else { (slot + wait) * self.slice }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Cost;
    use crate::stream::{Purpose, Streams};

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

    fn others(every: u64, length: u64) -> (Others, Stream) {
        let stream = Streams::new(1, 0, 0).of(Purpose::Others).clone();
        (Others { every: Cost::fixed(every), length: Cost::fixed(length) }, stream)
    }

    #[test]
    fn a_dedicated_cpu_is_never_left() {
        let schedule = Schedule::new(1000, 1, 0, None);
        assert_eq!((schedule.first(), schedule.ends), (0, u64::MAX));
    }

    #[test]
    fn other_tasks_take_the_cpu_and_give_it_back() {
        let mut schedule = Schedule::new(1000, 1, 0, Some(others(100, 7)));
        assert_eq!(schedule.ends, 100);
        assert_eq!(schedule.next_slice(103), 110, "as long as without being late");
        assert_eq!(schedule.ends, 207, "at the same time as without being late");
        assert_eq!(schedule.next_slice(320), 334, "two preemptions");
        assert_eq!(schedule.ends, 421);
    }

    #[test]
    fn a_sleeping_vcpu_is_not_disturbed_but_waits_for_who_has_the_cpu() {
        let mut schedule = Schedule::new(1000, 1, 0, Some(others(100, 7)));
        assert_eq!((schedule.woken(150), schedule.ends), (150, 207));
        assert_eq!((schedule.woken(210), schedule.ends), (214, 314));
    }

    proptest! {
        /// Slices of vCPUs on one CPU never overlap, and each recurs.
        #[test]
        fn turns_are_a_partition(slice in 1..5000u64, sharing in 1..9u64, at in 0..1_000_000u64) {
            let mut owners = 0;
            for place in 0..sharing {
                let mut schedule = Schedule::new(slice, sharing, place, None);
                let start = schedule.woken(at);
                owners += u64::from(start == at);
                prop_assert!(start >= at && start - at < slice * sharing);
                if sharing > 1 {
                    prop_assert!(schedule.ends > start && schedule.ends - start <= slice);
                    let ends = schedule.ends;
                    prop_assert_eq!(schedule.next_slice(ends), ends + slice * (sharing - 1));
                }
            }
            prop_assert_eq!(owners, 1);
        }

        /// Whatever a vCPU does, other tasks come at the same times.
        #[test]
        fn other_tasks_come_whatever_the_vcpu_does(steps in proptest::collection::vec((any::<bool>(), 0..400u64), 0..40)) {
            let mut schedule = Schedule::new(1000, 1, 0, Some(others(100, 7)));
            let mut now = 0;
            for (sleeps, ns) in steps {
                now += ns;
                if sleeps {
                    now = schedule.woken(now);
                } else if now >= schedule.ends {
                    now = schedule.next_slice(now);
                }
                prop_assert_eq!(schedule.ends % 107, 100);
            }
        }
    }
}
