//! Two events per vCPU thread that count nothing: their rings report sched slices, overflows and throttling.
//!
//! The kernel writes a record into the first ring whenever the thread is switched out or in (`attr.context_switch`): a new
//! **sched slice** shows by one load of shared memory, without a system call. The sequence count of a user page is no
//! substitute: it also moves when an event is resumed, and each resume would pass for a slice.
//!
//! The second ring takes the records of every event of the thread (IOC_SET_OUTPUT): the event and count of an overflow need no
//! system call either, and throttling is seen. An overflow takes 32 bytes.

use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings::{
    PERF_RECORD_LOST, PERF_RECORD_SAMPLE, PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE,
};

use super::Overflow;
use super::attr::monitor_attr;
use crate::sys;

const RING_PAGES: usize = 4;
/// The largest records of that ring, in bytes: a throttling's header, time and two ids; a sample's header, id, time and count.
const LARGEST_RECORD: u64 = 32;
/// Room for some hundred switches between two reads; a full ring still shows that there was one.
const SWITCH_PAGES: usize = 1;

/// Notices sched-ins and throttling of the calling thread's events.
#[derive(Debug)]
pub struct Monitor {
    ring: Option<sys::Ring>,
    switches: Option<sys::Ring>,
    /// A switch that [`sched_in`](Self::sched_in), [`switched`](Self::switched) or [`slices`](Self::slices) has not reported yet.
    unreported: [bool; 3],
    /// The thread's context switches at the last read, where there is no ring of them.
    seen: u64,
    /// Its voluntary context switches at the last look of a trace.
    sleeps: u64,
    /// The records that were read so far. Only the reader of overflows may read them, because records that another reader took would be
    /// lost.
    pub records: Records,
}

/// Records of the thread's events, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Times an event was throttled.
    pub throttled: u64,
    /// Times the ring may have been full.
    pub lost: u64,
    /// The kernel has not yet reported the last one: it does so with the next record, if any was lost.
    report_due: bool,
}

impl Records {
    fn note(&mut self, type_: u32) {
        match type_ {
            PERF_RECORD_THROTTLE => self.throttled += 1,
            PERF_RECORD_LOST if self.report_due => self.report_due = false,
            PERF_RECORD_LOST => self.lost += 1,
            _ => {}
        }
    }

    /// Notes that the ring of `size` bytes was drained, with `used` bytes in use before. A record that found no space
    /// was lost, and without a later record nothing else says so. The kernel leaves one byte free (`CIRC_SPACE`).
    fn drained(&mut self, used: u64, size: u64) {
        if used + LARGEST_RECORD >= size {
            self.lost += 1;
            self.report_due = true;
        }
    }
}

impl Monitor {
    /// Creates a monitor of the calling thread. If the kernel refuses the ring (locked-memory limit), slices come from the thread's
    /// context-switch counts and throttling is not seen.
    pub fn open() -> Self {
        let open = |attr, pages| sys::Ring::map(sys::open_on_this_thread(attr, None).ok()?, pages).ok();
        Self {
            ring: open(monitor_attr(false), RING_PAGES),
            switches: open(monitor_attr(true), SWITCH_PAGES),
            ..Self::without_ring()
        }
    }

    /// Creates a monitor that uses no perf event at all.
    pub fn without_ring() -> Self {
        let (seen, sleeps) = sys::switches_and_sleeps();
        Self { ring: None, switches: None, unreported: [false; 3], seen, sleeps, records: Records::default() }
    }

    /// Returns whether throttling is seen.
    pub const fn sees_records(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns whether [`sched_in`](Self::sched_in) may find that the thread was switched: one load of shared memory
    /// where there is a ring.
    #[inline]
    pub fn may_have_switched(&self) -> bool {
        self.unreported[0] || self.switches.as_ref().is_none_or(sys::Ring::has_more)
    }

    /// Returns whether the thread was switched out and in since the last call.
    pub fn sched_in(&mut self) -> bool {
        if self.switches.is_some() {
            return self.takes_switch(0);
        }
        let switches = sys::switches_and_sleeps().0;
        std::mem::replace(&mut self.seen, switches) != switches
    }

    /// Returns whether the thread was switched since this second reader last asked, without a system call: always
    /// `true` where there is no ring of switches.
    pub(crate) fn switched(&mut self) -> bool {
        self.switches.is_none() || self.takes_switch(1)
    }

    /// Returns whether the thread was switched, and whether it slept, since a trace last asked: a load of shared memory where
    /// there was none. Without a ring of switches nobody can tell at each entry, and `None` says so.
    pub(crate) fn slices(&mut self) -> Option<(bool, bool)> {
        self.switches.as_ref()?;
        if !self.takes_switch(2) {
            return Some((false, false));
        }
        let sleeps = sys::switches_and_sleeps().1;
        Some((true, std::mem::replace(&mut self.sleeps, sleeps) != sleeps))
    }

    fn takes_switch(&mut self, asker: usize) -> bool {
        if let Some(ring) = &mut self.switches
            && ring.drain(|_, _| ()) > 0
        {
            self.unreported = [true; 3];
        }
        std::mem::take(&mut self.unreported[asker])
    }

    /// Sends the records of `event` to the monitor's ring. A kernel that keeps hardware and software events of a thread in
    /// contexts of their own (before 6.2, without the backport of 24d3ae2f37d8) refuses that for a hardware event: `false`.
    pub(crate) fn adopt(&self, event: &OwnedFd) -> bool {
        self.ring.as_ref().is_some_and(|ring| sys::set_output(event, &ring.fd).is_ok())
    }

    /// Reports each event that overflowed since the last call, with its host count; `false` if records were lost.
    #[inline]
    pub fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let records = &mut self.records;
        let lost = records.lost;
        let used = ring.drain(|type_, [id, time, count]| {
            records.note(type_);
            if type_ == PERF_RECORD_SAMPLE {
                visit(Overflow { id, count, at: Some(time) });
            }
        });
        records.drained(used, ring.size() as u64);
        records.lost == lost
    }

    /// Returns whether a record that is not read yet says that an event was throttled or unthrottled. Without records
    /// it is a load of shared memory.
    pub(crate) fn throttles(&self) -> bool {
        let throttles = |type_| matches!(type_, PERF_RECORD_THROTTLE | PERF_RECORD_UNTHROTTLE);
        self.ring.as_ref().is_some_and(|ring| ring.any(throttles))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    impl Monitor {
        /// Puts a record of `type_` into its ring in place of one of the kernel's; returns whether it has a ring.
        pub(crate) fn forge(&mut self, type_: u32) -> bool {
            self.ring = self.ring.take().map(|ring| ring.forge(type_));
            self.ring.is_some()
        }
    }

    #[test]
    fn a_ring_without_space_for_the_largest_record_may_have_lost_one() {
        // A record of either kind was lost with 24 bytes free.
        for (used, lost) in [(0, 0), (4096 - 40, 0), (4096 - 32, 1), (4096 - 24, 1), (4096 - 8, 1)] {
            let mut records = Records::default();
            records.drained(used, 4096);
            assert_eq!(records.lost, lost, "{used} bytes used");
        }
    }

    #[test]
    fn the_kernels_late_report_of_a_loss_is_no_second_one() {
        let mut records = Records::default();
        records.drained(4096 - 8, 4096);
        records.note(PERF_RECORD_LOST);
        assert_eq!(records.lost, 1);
        records.note(PERF_RECORD_LOST);
        assert_eq!(records.lost, 2, "one that no full ring announced");
    }
}
