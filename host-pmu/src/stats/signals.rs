//! Latency of the signals of overflows.

use super::recorder::Recorder;

/// Overflows between two looks that are kept at most; further ones are left out of the latencies.
const MOST: usize = 32;

/// Times of overflows that the VMM has not seen, and the latencies of those it saw.
#[derive(Clone, Debug, Default)]
pub struct SignalTimes {
    waiting: [u64; MOST],
    count: usize,
    ns: Recorder,
}

impl SignalTimes {
    /// Makes room for every latency, so that recording does not allocate.
    pub fn reserve(&mut self) {
        self.ns.reserve();
    }

    /// Notes that an event overflowed at `at`, ns.
    #[inline]
    pub const fn overflowed(&mut self, at: u64) {
        if self.count < MOST {
            self.waiting[self.count] = at;
            self.count += 1;
        }
    }

    /// Returns whether there are overflows that the VMM has not seen.
    #[inline]
    #[must_use]
    pub const fn any(&self) -> bool {
        self.count > 0
    }

    /// Notes that the VMM sees them `now`, ns, on its way from a return of KVM_RUN `since_return` ns ago. An overflow before that return
    /// was seen by it.
    #[inline]
    pub fn seen(&mut self, now: u64, since_return: u64) {
        let returned = now.saturating_sub(since_return);
        for &at in &self.waiting[..self.count] {
            let seen = if at <= returned { returned } else { now };
            self.ns.record(seen.saturating_sub(at));
        }
        self.count = 0;
    }

    /// Returns all latencies, ns.
    #[must_use]
    pub const fn latencies(&self) -> &Recorder {
        &self.ns
    }

    /// Forgets all, in place.
    pub fn reset(&mut self) {
        self.count = 0;
        self.ns.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(times: &SignalTimes) -> Vec<u64> {
        times.latencies().histogram().iter_recorded().map(|step| step.value_iterated_to()).collect()
    }

    #[test]
    fn an_overflow_is_seen_by_the_return_after_it_else_by_the_look() {
        let mut times = SignalTimes::default();
        assert!(!times.any());
        times.overflowed(900);
        times.overflowed(980);
        assert!(times.any());
        times.seen(1000, 50);
        assert_eq!(values(&times), [20, 50], "seen at 1000, and by the return at 950");
        assert!(!times.any(), "each is seen once");
        times.seen(2000, 50);
        assert_eq!(values(&times), [20, 50]);
        times.reset();
        assert!(values(&times).is_empty());
    }

    #[test]
    fn overflows_beyond_the_room_are_left_out() {
        let mut times = SignalTimes::default();
        (0..2 * MOST as u64).for_each(|at| times.overflowed(at));
        times.seen(100, 0);
        assert_eq!(times.latencies().histogram().len(), MOST as u64);
    }
}
