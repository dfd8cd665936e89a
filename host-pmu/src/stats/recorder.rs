//! Costs and latencies, recorded one by one.

use hdrhistogram::Histogram;

/// Most ns that a histogram tells apart: 100 s.
const MOST_NS: u64 = 100_000_000_000;
/// Cells of a row. A row has one size of cell: of 1 ns in the first two, of twice as much in each further one.
const CELLS: usize = 128;
/// Rows up to [`MOST_NS`].
const ROWS: usize = 31;

/// Creates a histogram of nanoseconds from 1 ns to 100 s at two significant digits; it never grows.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
#[must_use]
pub fn ns_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_NS, 2).expect("constant bounds")
}

/// A row of cells.
type Row = Box<[u64; CELLS]>;

/// A [histogram of nanoseconds](ns_histogram) with a small cache of recent values: recording one of them is an addition.
///
/// A model's cost of an operation takes a few values only, and finding a cell takes longer than the addition. Nothing is rounded or lost:
/// cached values have their count, and enter the cells of that histogram when another value takes their place, or when it is read.
///
/// Each row of cells is allocated when its first value comes, so that ten thousand simulated vCPUs have room. [`reserved`](Self::reserved)
/// allocates all of them, for measured paths that must not allocate.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    rows: [Option<Row>; ROWS],
    /// Recent values, and how often each was recorded since it last entered the cells.
    waiting: [(u64, u64); Self::PLACES],
}

impl Recorder {
    const PLACES: usize = 16;

    /// Creates a recorder that allocates nothing later.
    #[must_use]
    pub fn reserved() -> Self {
        let mut recorder = Self::default();
        recorder.reserve();
        recorder
    }

    /// Allocates all rows.
    pub fn reserve(&mut self) {
        self.rows.iter_mut().for_each(|row| {
            row.get_or_insert_with(|| Box::new([0; CELLS]));
        });
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
        let (value, times) = std::mem::replace(&mut self.waiting[place], (ns, 1));
        self.add(value, times);
    }

    /// Adds `times` to the cell of `ns`.
    fn add(&mut self, ns: u64, times: u64) {
        let (row, cell) = Self::place(ns.max(1));
        // The histogram, too, puts values beyond its cells into the last one.
        let (row, cell) = if row < ROWS { (row, cell) } else { Self::place(MOST_NS) };
        self.rows[row].get_or_insert_with(|| Box::new([0; CELLS]))[cell] += times;
    }

    /// Returns the row of `ns`, and its cell there.
    const fn place(ns: u64) -> (usize, usize) {
        // Values of a cell differ in these lower bits.
        let unknown = ((2 * CELLS as u64 - 1) | ns).ilog2() - CELLS.ilog2();
        let shown = (ns >> unknown) as usize;
        (unknown as usize + shown / CELLS, shown % CELLS)
    }

    /// Forgets all values, in place.
    pub fn reset(&mut self) {
        self.rows.iter_mut().flatten().for_each(|row| row.fill(0));
        self.waiting = Default::default();
    }

    /// Returns all recorded values.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = ns_histogram();
        for (at, row) in self.rows.iter().enumerate() {
            let Some(row) = row else { continue };
            // Rows 0 and 1 have the same size of cell.
            let (unknown, first) = (at.saturating_sub(1), if at == 0 { 0 } else { CELLS });
            for (cell, &times) in row.iter().enumerate().filter(|&(_, &times)| times > 0) {
                histogram.saturating_record_n(((first + cell) as u64) << unknown, times);
            }
        }
        for (value, times) in self.waiting {
            if times > 0 {
                histogram.saturating_record_n(value.max(1), times);
            }
        }
        histogram
    }

    /// Returns all recorded values.
    #[must_use]
    pub fn into_histogram(self) -> Histogram<u64> {
        self.histogram()
    }

    /// Adds the values of another.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.rows.iter_mut().zip(&other.rows) {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => mine.iter_mut().zip(theirs.iter()).for_each(|(cell, n)| *cell += n),
                (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => {}
            }
        }
        for (value, times) in other.waiting {
            if times > 0 {
                self.add(value, times);
            }
        }
    }
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
            prop_assert_eq!(first.into_histogram(), plain);
            whole.reset();
            prop_assert!(whole.histogram().is_empty());
        }
    }
}
