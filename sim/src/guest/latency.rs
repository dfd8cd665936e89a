//! A latency: histogram, and exact sum, minimum and maximum.

use hdrhistogram::Histogram;
use host_pmu::stats::Recorder;

/// Latencies of many events, ns, in fixed space.
#[derive(Clone, Debug)]
pub struct Latency {
    count: u64,
    ns: Recorder,
    /// Exact sum.
    pub sum: u128,
    /// Minimum; `u64::MAX` without events.
    pub min: u64,
    /// Maximum.
    pub max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { count: 0, ns: Recorder::default(), sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Latency {
    /// Adds an event.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.count += 1;
        self.ns.record(ns);
        self.sum += u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds the events of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.ns.merge(&other.ns);
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the number of events.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns a histogram with two significant digits.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        self.ns.histogram()
    }

    /// Returns the mean; `None` without events.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum as f64 / self.count() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_latencies_are_those_of_both() {
        let (mut a, mut b) = (Latency::default(), Latency::default());
        assert_eq!(a.mean(), None);
        a.record(10);
        b.record(1001);
        a.merge(&b);
        assert_eq!((a.count(), a.min, a.max, a.mean()), (2, 10, 1001, Some(505.5)));
    }
}
