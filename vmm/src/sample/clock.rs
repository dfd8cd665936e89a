//! The samples' clock beside the processor's.

use rustix::time::{ClockId, clock_gettime};

use crate::sys;

/// Returns CLOCK_MONOTONIC, ns: the time of samples.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The host's time-stamp counter.
    pub tsc: u64,
    /// CLOCK_MONOTONIC, ns.
    pub ns: u64,
}

impl Moment {
    /// Reads both clocks now.
    #[must_use]
    pub fn now() -> Self {
        let before = sys::rdtsc();
        let ns = monotonic_ns();
        Self { tsc: before.midpoint(sys::rdtsc()), ns }
    }

    /// Returns the samples' time at a time-stamp, on the line through this moment and a `later` one; `None` if they are not apart.
    #[must_use]
    pub fn ns_at(self, later: Self, tsc: u64) -> Option<u64> {
        let (ticks, ns) = (later.tsc.checked_sub(self.tsc).filter(|&ticks| ticks > 0)?, later.ns.checked_sub(self.ns)?);
        let since = i128::from(tsc) - i128::from(self.tsc);
        u64::try_from(i128::from(self.ns) + since * i128::from(ns) / i128::from(ticks)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stamp_between_two_moments_is_between_their_times() {
        let (first, later) = (Moment { tsc: 1000, ns: 50 }, Moment { tsc: 3000, ns: 1050 });
        assert_eq!([1000, 2000, 3000, 4000].map(|tsc| first.ns_at(later, tsc)), [50, 550, 1050, 1550].map(Some));
        assert_eq!((first.ns_at(later, 0), first.ns_at(first, 1000), later.ns_at(first, 1000)), (None, None, None));
        let (first, later) = (Moment::now(), Moment::now());
        assert!(first.tsc <= later.tsc && first.ns <= later.ns);
    }
}
