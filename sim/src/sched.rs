//! Sched slices of a vCPU thread.
//!
//! vCPUs that share a CPU get slices in turn, whether or not the others have work. Slices are therefore known in advance, and
//! a vCPU can be preempted inside its NMI handler without simulating the others at that moment. In addition, other tasks of
//! the host may take the CPU.

use crate::model::Others;
use crate::stream::Stream;

/// Slices of one vCPU thread.
#[derive(Clone, Debug)]
pub struct Schedule {
    slice: u64,
    /// Number of vCPUs on this CPU, and index of this one.
    sharing: u64,
    place: u64,
    others: Option<Others>,
    /// End of the current slice.
    ends: u64,
    /// Whether another task of the host ends it.
    for_others: bool,
}

impl Schedule {
    /// Slices of vCPU `place` of the `sharing` vCPUs on one CPU.
    #[must_use]
    pub fn new(slice: u64, sharing: u64, place: u64, others: Option<Others>, stream: &mut Stream) -> Self {
        let mut schedule =
            Self { slice: slice.max(1), sharing: sharing.max(1), place, others, ends: 0, for_others: false };
        schedule.plan(schedule.first(), stream);
        schedule
    }

    /// Start of the first slice.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.place * self.slice
    }

    /// End of the current slice.
    #[must_use]
    pub const fn ends(&self) -> u64 {
        self.ends
    }

    /// Determines the end of the slice that begins at `now`.
    fn plan(&mut self, now: u64, stream: &mut Stream) {
        let own = if self.sharing == 1 { u64::MAX } else { now - now % self.slice + self.slice };
        let other = self.others.as_ref().map_or(u64::MAX, |o| now.saturating_add(o.every.sample(stream).max(1)));
        self.for_others = other < own;
        self.ends = own.min(other);
    }

    /// Ends the slice at `now`; returns the start of the next one.
    pub fn next_turn(&mut self, now: u64, stream: &mut Stream) -> u64 {
        let away = match &self.others {
            Some(others) if self.for_others => others.length.sample(stream),
            _ => 0,
        };
        let at = self.own_turn(now.saturating_add(away).max(now + u64::from(!self.for_others)));
        self.plan(at, stream);
        at
    }

    /// Wakes the thread at `now`; returns when it gets the CPU.
    pub fn woken(&mut self, now: u64, stream: &mut Stream) -> u64 {
        let at = self.own_turn(now);
        self.plan(at, stream);
        at
    }

    /// First time from `at` on inside a slice of this vCPU.
    fn own_turn(&self, at: u64) -> u64 {
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
    use crate::stream::stream;

    #[test]
    fn a_dedicated_cpu_is_never_left() {
        let schedule = Schedule::new(1000, 1, 0, None, &mut stream(1, 0, 0));
        assert_eq!((schedule.first(), schedule.ends()), (0, u64::MAX));
    }

    #[test]
    fn other_tasks_take_the_cpu_and_give_it_back() {
        let mut stream = stream(1, 0, 0);
        let others = Others::new(Cost::fixed(100), Cost::fixed(7));
        let mut schedule = Schedule::new(1000, 1, 0, Some(others), &mut stream);
        assert_eq!(schedule.ends(), 100);
        assert_eq!(schedule.next_turn(103, &mut stream), 110);
        assert_eq!(schedule.ends(), 210);
    }

    proptest! {
        /// Slices of vCPUs on one CPU never overlap, and each recurs.
        #[test]
        fn turns_are_a_partition(slice in 1..5000u64, sharing in 1..9u64, at in 0..1_000_000u64) {
            let mut owners = 0;
            for place in 0..sharing {
                let mut stream = stream(1, 0, place);
                let mut schedule = Schedule::new(slice, sharing, place, None, &mut stream);
                let turn = schedule.woken(at, &mut stream);
                owners += u64::from(turn == at);
                prop_assert!(turn >= at && turn - at < slice * sharing);
                if sharing > 1 {
                    prop_assert!(schedule.ends() > turn && schedule.ends() - turn <= slice);
                    let ends = schedule.ends();
                    prop_assert_eq!(schedule.next_turn(ends, &mut stream), ends + slice * (sharing - 1));
                }
            }
            prop_assert_eq!(owners, 1);
        }
    }
}
