//! Counts and costs that the host side leaves: operations one by one, and latencies of signals.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Most ns that a histogram tells apart: 100 s.
const MOST_NS: u64 = 100_000_000_000;
/// Its significant digits.
const DIGITS: u8 = 2;

/// Converts a duration to ns; saturates.
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Creates a histogram of nanoseconds from 1 ns to 100 s at two significant digits; it never grows.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
pub fn ns_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_NS, DIGITS).expect("constant bounds")
}

/// A [histogram of nanoseconds](ns_histogram) with a small cache of recent values: recording one of them is an addition.
///
/// A model's cost of an operation takes a few values only, and finding a cell takes longer than the addition. Nothing
/// is rounded or lost: cached values have their count, and enter the cells of that histogram when another value takes
/// their place, or when it is read.
///
/// Its cells are allocated when their first values come, so that ten thousand simulated vCPUs have room.
/// [`reserved`](Self::reserved) allocates all of them, for measured paths that must not allocate.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The values that do not wait, once there are any.
    cells: Option<Box<Histogram<u64>>>,
    /// Recent values, and how often each was recorded since it last entered the cells.
    waiting: [(u64, u64); Self::PLACES],
}

impl Recorder {
    const PLACES: usize = 16;

    /// Creates a recorder that allocates nothing later.
    pub fn reserved() -> Self {
        Self { cells: Some(Box::new(ns_histogram())), ..Self::default() }
    }

    /// Records `ns`, at least 1.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        // Fibonacci hashing: the top four bits of the product.
        let place = ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let (value, times) = &mut self.waiting[place as usize];
        if *value == ns {
            *times += 1;
        } else {
            self.replace(place as usize, ns);
        }
    }

    #[inline(never)]
    fn replace(&mut self, place: usize, ns: u64) {
        // Two values that share a place take turns with the one beside it.
        self.waiting.swap(place, place ^ 1);
        let (value, times) = &mut self.waiting[place];
        if *value == ns {
            *times += 1;
            return;
        }
        let waited = std::mem::replace(&mut self.waiting[place], (ns, 1));
        self.add(waited);
    }

    /// Adds a value so many `times`.
    fn add(&mut self, (ns, times): (u64, u64)) {
        if times > 0 {
            let cells = self.cells.get_or_insert_with(|| Box::new(Histogram::new(DIGITS).expect("few digits")));
            if cells.record_n(ns.max(1), times).is_err() {
                cells.saturating_record_n(ns, times);
            }
        }
    }

    /// Returns each value with how often it was recorded; of a cell, its last.
    fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        let cells = self.cells.iter().flat_map(|cells| cells.iter_recorded());
        cells.map(|cell| (cell.value_iterated_to(), cell.count_at_value())).chain(self.waiting)
    }

    /// Forgets all values, in place.
    pub fn reset(&mut self) {
        if let Some(cells) = &mut self.cells {
            cells.reset();
        }
        self.waiting = Default::default();
    }

    /// Returns all recorded values.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut all = Self::reserved();
        self.values().for_each(|value| all.add(value));
        all.cells.map_or_else(ns_histogram, |cells| *cells)
    }

    /// Adds the values of another.
    pub fn merge(&mut self, other: &Self) {
        other.values().for_each(|waited| self.add(waited));
    }
}

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

    /// Returns the key used in result documents.
    pub const fn key(self) -> &'static str {
        ["open", "release", "pause", "resume", "period", "read"][self as usize]
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
    /// Creates an account with room for every cost, so that recording does not allocate.
    pub fn reserved() -> Self {
        Self { per_kind: std::array::from_fn(|_| Op { ns: Recorder::reserved(), ..Op::default() }) }
    }

    /// Records one operation.
    #[inline]
    pub fn record(&mut self, kind: OpKind, ns: u64) {
        let op = &mut self.per_kind[kind as usize];
        op.count += 1;
        op.ns.record(ns);
        op.total_ns += ns;
    }

    /// Adds operations of which only their number and the sum of their costs are known.
    pub fn add(&mut self, kind: OpKind, count: u64, total_ns: u64) {
        let op = &mut self.per_kind[kind as usize];
        op.count = op.count.saturating_add(count);
        op.total_ns = op.total_ns.saturating_add(total_ns);
    }

    /// Returns how often `kind` was carried out.
    pub const fn count(&self, kind: OpKind) -> u64 {
        self.per_kind[kind as usize].count
    }

    /// Returns the exact sum of the costs of `kind`, ns.
    pub const fn total_ns(&self, kind: OpKind) -> u64 {
        self.per_kind[kind as usize].total_ns
    }

    /// Returns how often each kind was carried out, in the order of [`OpKind::ALL`], and the sum of all costs, ns.
    pub fn totals(&self) -> ([u64; OpKind::ALL.len()], u64) {
        (OpKind::ALL.map(|kind| self.count(kind)), self.per_kind.iter().map(|op| op.total_ns).sum())
    }

    /// Returns the cost of each operation of `kind`.
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

/// Operations of the host side of a vCPU, and its last failure. Its other counts are [`Counts`](counts::Counts).
#[derive(Clone, Debug, Default)]
pub struct HostSide {
    /// Operations by kind.
    pub ops: OpStats,
    /// Time from the host's record of an overflow to the VMM seeing it, ns.
    pub signal_ns: Recorder,
    /// Last error text of a failed host operation.
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ns() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..600u64,
            0..100_000u64,
            (any::<u64>(), 0..64u32).prop_map(|(ns, shift)| ns >> shift),
            Just(MOST_NS)
        ]
    }

    proptest! {
        /// A recorder, whole or merged of two, is the histogram of the same values.
        #[test]
        fn a_recorder_is_its_histogram(
            values in proptest::collection::vec(ns(), 0..200), at: proptest::sample::Index, reserved: bool,
        ) {
            let new = || if reserved { Recorder::reserved() } else { Recorder::default() };
            let mut plain = ns_histogram();
            let (mut whole, mut first, mut second) = (new(), Recorder::default(), new());
            let at = at.index(values.len() + 1);
            for (i, &value) in values.iter().enumerate() {
                plain.saturating_record(value.max(1));
                whole.record(value);
                if i < at { first.record(value) } else { second.record(value) }
            }
            first.merge(&second);
            prop_assert_eq!(whole.histogram(), plain.clone());
            prop_assert_eq!(first.histogram(), plain);
            whole.reset();
            prop_assert!(whole.histogram().is_empty());
        }
    }
}
