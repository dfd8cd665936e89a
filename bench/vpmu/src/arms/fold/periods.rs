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

    /// A run of a guest: of each vCPU count and overflows.
    type Run<'a> = (Option<u64>, &'a [(u64, u64)]);

    /// Returns the periods missed after all runs.
    fn missed(runs: &[Run<'_>]) -> u64 {
        let mut periods = Periods::default();
        for (guest, vcpus) in runs {
            periods.begin(*guest);
            for (at, &(count, overflows)) in vcpus.iter().enumerate() {
                periods.add(at, &vcpu(count, overflows));
            }
        }
        periods.missed()
    }

    #[test]
    fn a_period_without_an_overflow_is_missed() {
        for (count, overflows, expected) in [(399, 3, 0), (400, 3, 1), (1000, 3, 7), (99, 0, 0)] {
            assert_eq!(missed(&[(None, &[(count, overflows)])]), expected);
        }
        assert_eq!(
            missed(&[(None, &[(399, 4)])]),
            0,
            "the last overflow met the driver off: its count was not yet read"
        );
        assert_eq!(missed(&[(None, &[(500, 4), (400, 5)])]), 1, "vCPUs do not make up for each other");
        let mut periods = Periods::default();
        let mut cut = vcpu(900, 1);
        cut.end = vmm::outcome::End::TimedOut;
        periods.add(0, &cut);
        assert_eq!(periods.missed(), 0, "a guest that was stopped has not handled what was under way");
    }

    #[test]
    fn turns_of_one_guest_are_one_count_and_guests_are_not() {
        let two = |guests: [Option<u64>; 2]| missed(&[(guests[0], &[(199, 2)]), (guests[1], &[(250, 2)])]);
        assert_eq!([two([Some(1), Some(1)]), two([None, None])], [0, 0], "449 counts, 4 overflows");
        let guests: [Run<'_>; 3] = [(Some(0), &[(300, 2)]), (Some(0), &[(300, 2)]), (Some(1), &[(200, 2)])];
        assert_eq!(
            (missed(&guests), missed(&[&guests[..], &[(None, &[])]].concat())),
            (2, 2),
            "of guests that are over"
        );
    }
}
