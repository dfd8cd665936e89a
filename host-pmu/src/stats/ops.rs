//! Host operations, counted and timed one by one without allocating.

use hdrhistogram::Histogram;

use super::recorder::Recorder;

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
    /// Makes room for every cost, so that recording does not allocate.
    pub fn reserve(&mut self) {
        self.per_kind.iter_mut().for_each(|op| op.ns.reserve());
    }

    /// Records one operation.
    #[inline]
    pub fn record(&mut self, kind: OpKind, ns: u64) {
        let op = &mut self.per_kind[kind as usize];
        op.count += 1;
        op.total_ns = op.total_ns.saturating_add(ns);
        op.ns.record(ns);
    }

    /// Returns how often `kind` was carried out.
    #[must_use]
    pub const fn count(&self, kind: OpKind) -> u64 {
        self.per_kind[kind as usize].count
    }

    /// Returns the exact sum of the costs of `kind`, ns.
    #[must_use]
    pub const fn total_ns(&self, kind: OpKind) -> u64 {
        self.per_kind[kind as usize].total_ns
    }

    /// Returns the cost of each operation of `kind`.
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
