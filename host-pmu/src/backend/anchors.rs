//! The counts of clock events without a system call.
//!
//! A clock event counts the time of its thread. Its count is therefore known at any time from an anchor, which is an earlier count from a
//! read or from the record of an overflow, and the time since, as long as the thread was not switched out.
//!
//! The kernel stamps a record a little after it takes the count, so the count found lags behind by up to a microsecond; where an event was
//! stopped and started meanwhile (IOC_PERIOD), it may lead by less than that. Neither adds up: each hand-over is the difference to the one
//! before, and the next anchor is exact.

use crate::strategy::MAX_POOL;
use arch_pmu::spec::MAX_COUNTERS;

/// Age at which an anchor is given up, ns: the event's clock and the one that is read here run apart, by 500 ppm at the very most.
const MOST_AGE: u64 = 10_000_000;

#[derive(Clone, Copy, Debug)]
struct Anchor {
    id: u64,
    count: u64,
    at: u64,
}

/// The last known count of each event, in host counts, and its time.
#[derive(Debug)]
pub(super) struct Anchors {
    anchors: Vec<Anchor>,
}

impl Anchors {
    /// Creates an empty table with room for each event a bank may hold, and for the leader.
    pub(super) fn new() -> Self {
        Self { anchors: Vec::with_capacity(MAX_POOL + MAX_COUNTERS + 1) }
    }

    /// Notes that event `id` had counted `count` at `at`.
    pub(super) fn set(&mut self, id: u64, count: u64, at: u64) {
        let anchor = Anchor { id, count, at };
        if let Some(known) = self.anchors.iter_mut().find(|anchor| anchor.id == id) {
            *known = anchor;
        } else if self.anchors.len() < self.anchors.capacity() {
            self.anchors.push(anchor);
        }
    }

    /// Forgets the anchor of an event that stopped.
    pub(super) fn forget(&mut self, id: u64) {
        self.anchors.retain(|anchor| anchor.id != id);
    }

    /// Forgets all anchors, because every event may have stood still.
    pub(super) fn forget_all(&mut self) {
        self.anchors.clear();
    }

    /// Returns the event's count at `now`, if it ran since its anchor.
    pub(super) fn count(&self, id: u64, now: u64) -> Option<u64> {
        let anchor = self.anchors.iter().find(|anchor| anchor.id == id)?;
        let age = now.checked_sub(anchor.at).filter(|&age| age <= MOST_AGE)?;
        Some(anchor.count + age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_grows_with_the_time_since_its_anchor() {
        let mut anchors = Anchors::new();
        anchors.set(1, 1000, 50);
        anchors.set(2, 7, 60);
        assert_eq!([1, 2, 3].map(|id| anchors.count(id, 100)), [Some(1050), Some(47), None]);
        anchors.set(1, 2000, 100);
        assert_eq!(anchors.count(1, 100), Some(2000));
        assert_eq!(anchors.count(1, 99), None, "a record of the future has no count");
        assert_eq!(anchors.count(2, 61 + MOST_AGE), None, "too old");
        anchors.forget(1);
        assert_eq!([1, 2].map(|id| anchors.count(id, 100)), [None, Some(47)]);
        anchors.forget_all();
        assert_eq!(anchors.count(2, 100), None);
    }

    #[test]
    fn there_is_room_for_every_event_and_nothing_is_allocated_for_more() {
        let mut anchors = Anchors::new();
        let room = anchors.anchors.capacity() as u64;
        (0..room + 9).for_each(|id| anchors.set(id, id, 0));
        assert_eq!((anchors.anchors.capacity() as u64, anchors.count(room - 1, 0)), (room, Some(room - 1)));
        assert_eq!(anchors.count(room, 0), None);
    }
}
