//! Counts against overflows: an event that counted k periods has overflowed k times.
//!
//! The driver updates a count when it handles an overflow, and keeps the place within the period
//! (`x86_perf_event_set_period`), so count ÷ period, rounded down, is the number of overflows. More periods than
//! overflows: the host reported one late, by a whole period or more, or never; counts go on meanwhile. Turns of one
//! guest go on where the last one stopped, so they are judged together.

use vmm::outcome::VcpuOutcome;

/// Counts and overflows of one event of a guest that is not over.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    count: u64,
    overflows: u64,
    period: u64,
}

/// Compares counts with overflows, guest by guest.
#[derive(Clone, Debug, Default)]
pub(super) struct Periods {
    /// The guest under way, and its events by vCPU.
    guest: Option<u64>,
    events: Vec<Vec<Event>>,
    /// Misses of guests that are over.
    missed: u64,
}

impl Periods {
    /// Begins a run of guest `guest`; without a number it is a guest of its own.
    pub(super) fn begin(&mut self, guest: Option<u64>) {
        if guest.is_none() || guest != self.guest {
            self.missed = self.missed();
            self.events.clear();
        }
        self.guest = guest;
    }

    /// Adds what vCPU `index` left.
    pub(super) fn add(&mut self, index: usize, vcpu: &VcpuOutcome) {
        let Some(report) = vcpu.left.report.as_deref().filter(|_| vcpu.end.is_complete()) else { return };
        self.events.resize(self.events.len().max(index + 1), Vec::new());
        let events = &mut self.events[index];
        events.resize(report.periods.len(), Event::default());
        for (at, event) in events.iter_mut().enumerate() {
            event.count = event.count.saturating_add(report.counts[at]);
            event.overflows = event.overflows.saturating_add(report.overflows[at]);
            event.period = report.periods[at];
        }
    }

    /// Periods that passed without an overflow of their own.
    pub(super) fn missed(&self) -> u64 {
        let missed = |event: &Event| event.count.checked_div(event.period).unwrap_or(0).saturating_sub(event.overflows);
        self.events.iter().flatten().map(missed).fold(self.missed, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::rounds::mock;

    /// Returns a vCPU with this count and these overflows of an event with period 100.
    fn vcpu(count: u64, overflows: u64) -> VcpuOutcome {
        let mut vcpu = mock::vcpu(0, 0);
        let report = vcpu.left.report.as_mut().unwrap();
        (report.counts[3], report.overflows[3], report.periods[3]) = (count, overflows, 100);
        vcpu
    }

    #[test]
    fn a_period_without_an_overflow_is_missed() {
        let missed = |count, overflows| {
            let mut periods = Periods::default();
            periods.begin(None);
            periods.add(0, &vcpu(count, overflows));
            periods.missed()
        };
        assert_eq!([missed(399, 3), missed(400, 3), missed(1000, 3), missed(99, 0)], [0, 1, 7, 0]);
        assert_eq!(missed(399, 4), 0, "the last overflow met the driver off: its count was not yet read");
    }

    #[test]
    fn turns_of_one_guest_are_one_count_and_guests_are_not() {
        let missed = |guests: [Option<u64>; 2]| {
            let mut periods = Periods::default();
            for (guest, (count, overflows)) in guests.into_iter().zip([(199, 2), (250, 2)]) {
                periods.begin(guest);
                periods.add(0, &vcpu(count, overflows));
            }
            periods.missed()
        };
        assert_eq!(missed([Some(1), Some(1)]), 0, "449 counts, 4 overflows");
        assert_eq!(missed([None, None]), 0);
        let mut periods = Periods::default();
        for (guest, count) in [(0, 300), (0, 300), (1, 200)] {
            periods.begin(Some(guest));
            periods.add(0, &vcpu(count, 2));
        }
        assert_eq!(periods.missed(), 2);
        periods.begin(None);
        assert_eq!(periods.missed(), 2, "of guests that are over");
    }

    #[test]
    fn vcpus_do_not_make_up_for_each_other() {
        let mut periods = Periods::default();
        periods.begin(None);
        periods.add(0, &vcpu(500, 4));
        periods.add(1, &vcpu(400, 5));
        assert_eq!(periods.missed(), 1);
        let mut cut = vcpu(900, 1);
        cut.end = vmm::outcome::End::TimedOut;
        periods.add(2, &cut);
        assert_eq!(periods.missed(), 1, "a guest that was stopped has not handled what was under way");
    }
}
