//! What the host operations cost: counted and timed one by one, without allocating.

use std::time::Duration;

use hdrhistogram::Histogram;

/// One kind of host operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// `perf_event_open` and making the event raise a signal on the vCPU thread.
    Open,
    /// `close`.
    Release,
    /// `IOC_DISABLE`, the read of the count, and zeroing it.
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

/// Count and cost of each kind of host operation.
#[derive(Clone, Debug)]
pub struct OpStats {
    per_kind: [Op; OpKind::ALL.len()],
}

/// Count and cost of one kind of host operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Nanoseconds of each call.
    pub ns: Histogram<u64>,
    /// Their exact sum.
    pub total_ns: u64,
}

impl Default for OpStats {
    fn default() -> Self {
        Self { per_kind: std::array::from_fn(|_| Op { ns: ns_histogram(), total_ns: 0 }) }
    }
}

impl OpStats {
    /// Records one operation.
    #[inline]
    pub fn record(&mut self, kind: OpKind, cost: Duration) {
        let ns = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        let op = &mut self.per_kind[kind as usize];
        op.ns.saturating_record(ns.max(1));
        op.total_ns = op.total_ns.saturating_add(ns);
    }

    /// How often `kind` was carried out.
    #[must_use]
    pub fn count(&self, kind: OpKind) -> u64 {
        self.per_kind[kind as usize].ns.len()
    }

    /// Cost of `kind`.
    #[must_use]
    pub fn op(&self, kind: OpKind) -> &Op {
        &self.per_kind[kind as usize]
    }

    /// Adds another vCPU's or round's operations.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.per_kind.iter_mut().zip(&other.per_kind) {
            mine.ns.add(&theirs.ns).expect("the same constant bounds");
            mine.total_ns = mine.total_ns.saturating_add(theirs.total_ns);
        }
    }
}
