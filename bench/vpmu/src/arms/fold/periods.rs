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

    /// The guest of a run, and its vCPUs' counts and overflows, of 100 counts a period.
    type Run<'a> = (Option<u64>, &'a [(u64, u64)]);

    #[test]
    fn a_period_without_an_overflow_is_missed() {
        let guests: [Run<'_>; 3] = [(Some(0), &[(300, 2)]), (Some(0), &[(300, 2)]), (Some(1), &[(200, 2)])];
        let cases: [(&[Run<'_>], u64); 10] = [
            (&[(None, &[(399, 3)])], 0),
            (&[(None, &[(400, 3)])], 1),
            (&[(None, &[(1000, 3)])], 7),
            (&[(None, &[(99, 0)])], 0),
            // The last overflow met the driver off: its count was not yet read.
            (&[(None, &[(399, 4)])], 0),
            // vCPUs do not make up for each other.
            (&[(None, &[(500, 4), (400, 5)])], 1),
            // Turns of one guest are one count, and guests are not; those that are over count.
            (&[(Some(1), &[(199, 2)]), (Some(1), &[(250, 2)])], 0),
            (&[(None, &[(199, 2)]), (None, &[(250, 2)])], 0),
            (&guests, 2),
            (&[guests[0], guests[1], guests[2], (None, &[])], 2),
        ];
        for (runs, expected) in cases {
            let mut periods = Periods::default();
            for (guest, vcpus) in runs {
                periods.begin(*guest);
                for (at, &(count, overflows)) in vcpus.iter().enumerate() {
                    let mut vcpu = mock::vcpu(0, 0);
                    let report = vcpu.left.report.as_mut().unwrap();
                    (report.counts[3], report.overflows[3], report.periods[3]) = (count, overflows, 100);
                    periods.add(at, &vcpu);
                    // A guest that was stopped has not handled what was under way.
                    vcpu.end = vmm::outcome::End::TimedOut;
                    periods.add(at, &vcpu);
                }
            }
            assert_eq!(periods.missed(), expected, "{runs:?}");
        }
    }
}
