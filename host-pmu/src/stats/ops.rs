//! Host operations, counted and timed one by one without allocating.

use hdrhistogram::Histogram;

/// One kind of host operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// `perf_event_open` and making the event raise a signal on the vCPU thread.
    Open,
    /// `close`.
    Release,
    /// `IOC_DISABLE` and the read of the count.
    Pause,
    /// `IOC_ENABLE`.
    Resume,
    /// `IOC_PERIOD`.
    Period,
    /// A read of an event that goes on counting.
    Read,
}

impl OpKind {
    /// Every kind, in the order of its discriminant.
    pub const ALL: [Self; 6] = [Self::Open, Self::Release, Self::Pause, Self::Resume, Self::Period, Self::Read];

    /// The key used in result documents.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Release => "release",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Period => "period",
            Self::Read => "read",
        }
    }
}

/// A histogram of nanoseconds from 1 ns to 100 s at two significant digits; it never grows.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
#[must_use]
pub fn ns_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 2).expect("constant bounds")
}

/// A [histogram of nanoseconds](ns_histogram) with a small cache of recent values: recording one of them is an addition.
///
/// A model's cost of an operation takes a few values only, and finding a histogram's bucket takes longer than simulating the
/// operation. Nothing is rounded or lost: cached values have their count, and enter the histogram when it is read.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram<u64>,
    /// Recent values, and how often each was recorded since it last entered the histogram.
    waiting: [(u64, u64); Self::PLACES],
}

impl Default for Recorder {
    fn default() -> Self {
        Self { histogram: ns_histogram(), waiting: [(0, 0); Self::PLACES] }
    }
}

impl Recorder {
    const PLACES: usize = 16;

    /// Records `ns`, at least 1.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let ns = ns.max(1);
        // Fibonacci hashing: the top four bits of the product.
        let place = ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let (value, times) = &mut self.waiting[place as usize];
        if *value == ns {
            *times += 1;
        } else {
            self.replace(place as usize, ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn replace(&mut self, place: usize, ns: u64) {
        let (value, times) = std::mem::replace(&mut self.waiting[place], (ns, 1));
        if times > 0 {
            self.histogram.saturating_record_n(value, times);
        }
    }

    /// Forgets all values, in place.
    pub fn reset(&mut self) {
        self.histogram.reset();
        self.waiting = Default::default();
    }

    /// All recorded values.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        self.clone().into_histogram()
    }

    /// All recorded values.
    #[must_use]
    pub fn into_histogram(mut self) -> Histogram<u64> {
        for (value, times) in self.waiting {
            if times > 0 {
                self.histogram.saturating_record_n(value, times);
            }
        }
        self.histogram
    }

    /// Adds the values of another.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("the same constant bounds");
        for (value, times) in other.waiting {
            if times > 0 {
                self.histogram.saturating_record_n(value, times);
            }
        }
    }
}

/// Count and cost of each kind of host operation.
#[derive(Clone, Debug, Default)]
pub struct OpStats {
    per_kind: [Op; OpKind::ALL.len()],
}

/// Count and cost of one kind of host operation.
#[derive(Clone, Debug, Default)]
struct Op {
    count: u64,
    total_ns: u64,
    ns: Recorder,
}

impl OpStats {
    /// Records one operation.
    #[inline]
    pub fn record(&mut self, kind: OpKind, ns: u64) {
        let op = &mut self.per_kind[kind as usize];
        op.count += 1;
        op.total_ns = op.total_ns.saturating_add(ns);
        op.ns.record(ns);
    }

    /// How often `kind` was carried out.
    #[must_use]
    pub const fn count(&self, kind: OpKind) -> u64 {
        self.per_kind[kind as usize].count
    }

    /// Exact sum of what `kind` cost, ns.
    #[must_use]
    pub const fn total_ns(&self, kind: OpKind) -> u64 {
        self.per_kind[kind as usize].total_ns
    }

    /// The cost of each operation of `kind`.
    #[must_use]
    pub fn histogram(&self, kind: OpKind) -> Histogram<u64> {
        self.per_kind[kind as usize].ns.histogram()
    }

    /// Forgets all operations, in place.
    pub fn reset(&mut self) {
        for op in &mut self.per_kind {
            (op.count, op.total_ns) = (0, 0);
            op.ns.reset();
        }
    }

    /// Adds another vCPU's or round's operations.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.per_kind.iter_mut().zip(&other.per_kind) {
            mine.count += theirs.count;
            mine.total_ns = mine.total_ns.saturating_add(theirs.total_ns);
            mine.ns.merge(&theirs.ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A recorder, whole or merged of two, is the histogram of the same values.
        #[test]
        fn a_recorder_is_its_histogram(
            values in proptest::collection::vec(prop_oneof![0..40u64, 0..100_000u64, Just(u64::MAX)], 0..200),
            at: proptest::sample::Index,
        ) {
            let mut plain = ns_histogram();
            let (mut whole, mut first, mut second) = (Recorder::default(), Recorder::default(), Recorder::default());
            let at = at.index(values.len() + 1);
            for (i, &value) in values.iter().enumerate() {
                plain.saturating_record(value.max(1));
                whole.record(value);
                if i < at { first.record(value) } else { second.record(value) }
            }
            first.merge(&second);
            prop_assert_eq!(whole.histogram(), plain.clone());
            prop_assert_eq!(first.into_histogram(), plain);
            whole.reset();
            prop_assert!(whole.histogram().is_empty());
        }
    }
}
