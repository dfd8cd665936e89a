//! One event per vCPU thread that counts nothing and watches the others.
//!
//! Its user page carries a sequence count that the kernel moves each time the event is scheduled in with its thread
//! (`perf_event_update_userpage` at `pmu->add`): a new **sched slice** costs one load of shared memory to notice and no
//! system call. Its ring takes the records of every other event of the thread (IOC_SET_OUTPUT): which event overflowed,
//! and its count then, costs no system call either, and throttling is seen. An overflow takes 24 bytes there.

use std::io;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings::{PERF_RECORD_LOST, PERF_RECORD_SAMPLE, PERF_RECORD_THROTTLE};

use super::attr::monitor_attr;
use crate::sys;

const RING_PAGES: usize = 4;

/// Notices sched-ins and throttling of the calling thread's events.
#[derive(Debug)]
pub struct Monitor {
    ring: Option<(OwnedFd, sys::Ring)>,
    seen: u64,
    records: Records,
}

/// Records of the thread's events, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Overflows the kernel recorded.
    pub overflows: u64,
    /// Times an event was throttled.
    pub throttled: u64,
    /// Times the ring was full.
    pub lost: u64,
}

impl Records {
    fn note(&mut self, type_: u32) {
        match type_ {
            PERF_RECORD_SAMPLE => self.overflows += 1,
            PERF_RECORD_THROTTLE => self.throttled += 1,
            PERF_RECORD_LOST => self.lost += 1,
            _ => {}
        }
    }
}

impl Monitor {
    /// A monitor of the calling thread. Where the kernel refuses the ring (locked-memory limit), slices are told from
    /// the thread's context-switch counts and throttling is not seen.
    #[must_use]
    pub fn new() -> Self {
        let ring = Self::open_ring().ok();
        let mut monitor = Self { ring, seen: 0, records: Records::default() };
        monitor.seen = monitor.slice_mark();
        monitor
    }

    /// A monitor that uses no perf event at all.
    #[must_use]
    pub fn without_ring() -> Self {
        Self { ring: None, seen: sys::context_switches(), records: Records::default() }
    }

    fn open_ring() -> io::Result<(OwnedFd, sys::Ring)> {
        let fd = sys::open_on_this_thread(monitor_attr(), None)?;
        let ring = sys::Ring::map(&fd, RING_PAGES)?;
        Ok((fd, ring))
    }

    /// Whether throttling is seen.
    #[must_use]
    pub const fn sees_records(&self) -> bool {
        self.ring.is_some()
    }

    fn slice_mark(&self) -> u64 {
        match &self.ring {
            Some((_, ring)) => u64::from(ring.sequence()),
            None => sys::context_switches(),
        }
    }

    /// Whether the thread was switched out and in since this was last asked.
    pub fn sched_in(&mut self) -> bool {
        let mark = self.slice_mark();
        let moved = mark != self.seen;
        self.seen = mark;
        moved
    }

    /// Sends the records of `event` to the monitor's ring. A kernel that keeps hardware and software events of a thread in
    /// contexts of their own (before 6.2) refuses that for a hardware event: `false`.
    pub(crate) fn adopt(&self, event: &OwnedFd) -> bool {
        self.ring.as_ref().is_some_and(|(fd, _)| sys::set_output(event, fd).is_ok())
    }

    /// Tells the id and the count of each event that overflowed since this was last asked; `false` if records were lost.
    #[inline]
    pub fn overflowed(&mut self, tell: &mut dyn FnMut(u64, u64)) -> bool {
        let Some((_, ring)) = &mut self.ring else { return false };
        let records = &mut self.records;
        let lost = records.lost;
        ring.drain(|type_, [id, count]| {
            records.note(type_);
            if type_ == PERF_RECORD_SAMPLE {
                tell(id, count);
            }
        });
        records.lost == lost
    }

    /// Reads the ring and returns all records so far.
    pub fn records(&mut self) -> Records {
        self.overflowed(&mut |_, _| ());
        self.records
    }
}

impl Default for Monitor {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn notices_a_sleep(mut monitor: Monitor) {
        monitor.sched_in();
        // Asked again at once: no slice, unless the host happened to preempt the test in between.
        assert!((0..100).any(|_| !monitor.sched_in()), "every look claims a new slice");
        std::thread::sleep(Duration::from_millis(2));
        assert!(monitor.sched_in(), "the thread slept and was switched in again");
    }

    #[test]
    fn both_ways_notice_that_the_thread_slept() {
        notices_a_sleep(Monitor::without_ring());
        let monitor = Monitor::new();
        if monitor.sees_records() {
            notices_a_sleep(monitor);
        } else {
            eprintln!("SKIP: perf_event_open is not allowed here (perf_event_paranoid)");
        }
    }
}
