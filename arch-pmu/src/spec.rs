//! What a vPMC is asked to count.

use std::fmt;

/// Counters a guest may have: general-purpose 0..8 and fixed 0..4, in one dense range.
pub const MAX_COUNTERS: usize = MAX_GP + MAX_FIXED;
/// General-purpose counters at most.
pub const MAX_GP: usize = 8;
/// Fixed counters at most.
pub const MAX_FIXED: usize = 4;

/// One vPMC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(u8);

impl CounterId {
    /// General-purpose counter `n`; `None` if there is no such counter on any guest.
    #[must_use]
    pub const fn gp(n: usize) -> Option<Self> {
        if n < MAX_GP { Some(Self(n as u8)) } else { None }
    }

    /// Fixed counter `n`; `None` if there is no such counter on any guest.
    #[must_use]
    pub const fn fixed(n: usize) -> Option<Self> {
        if n < MAX_FIXED { Some(Self((MAX_GP + n) as u8)) } else { None }
    }

    /// Its place in an array of [`MAX_COUNTERS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The fixed counter's number, if it is one.
    #[must_use]
    pub const fn as_fixed(self) -> Option<usize> {
        (self.0 as usize).checked_sub(MAX_GP)
    }
}

impl fmt::Debug for CounterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_fixed() {
            Some(n) => write!(f, "FIXED{n}"),
            None => write!(f, "PMC{}", self.0),
        }
    }
}

/// A set of vPMCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSet(u16);

impl CounterSet {
    /// No counter.
    pub const EMPTY: Self = Self(0);

    /// Every counter a guest may have.
    pub const ALL: Self = Self(((1u32 << MAX_COUNTERS) - 1) as u16);

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those in one of both.
    #[must_use]
    pub const fn xor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    /// Those not in this.
    #[must_use]
    pub const fn complement(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }

    /// A bit for each counter, by [`CounterId::index`].
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The counters of `bits`; bits of no counter are ignored.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Adds all of `others`.
    pub const fn extend(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// Adds one.
    pub fn insert(&mut self, counter: CounterId) {
        self.0 |= 1 << counter.0;
    }

    /// Takes one out.
    pub fn remove(&mut self, counter: CounterId) {
        self.0 &= !(1 << counter.0);
    }

    /// Adds one or takes it out.
    pub fn set(&mut self, counter: CounterId, within: bool) {
        if within {
            self.insert(counter);
        } else {
            self.remove(counter);
        }
    }

    /// Whether it is in.
    #[must_use]
    pub const fn contains(self, counter: CounterId) -> bool {
        self.0 & 1 << counter.0 != 0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl IntoIterator for CounterSet {
    type Item = CounterId;
    type IntoIter = CounterSetIter;

    fn into_iter(self) -> CounterSetIter {
        CounterSetIter(self.0)
    }
}

impl FromIterator<CounterId> for CounterSet {
    fn from_iter<I: IntoIterator<Item = CounterId>>(counters: I) -> Self {
        let mut set = Self::EMPTY;
        counters.into_iter().for_each(|counter| set.insert(counter));
        set
    }
}

/// Iterates a [`CounterSet`], lowest first.
#[derive(Clone, Debug)]
pub struct CounterSetIter(u16);

impl Iterator for CounterSetIter {
    type Item = CounterId;

    fn next(&mut self) -> Option<CounterId> {
        let lowest = self.0.trailing_zeros();
        if lowest >= MAX_COUNTERS as u32 {
            return None;
        }
        self.0 &= self.0 - 1;
        Some(CounterId(lowest as u8))
    }
}

/// Where the event of a vPMC is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// IA32_PERFEVTSELx, all 64 bits: KVM compares them byte for byte before it reuses an event.
    Selector(u64),
    /// A fixed counter and its nibble of IA32_FIXED_CTR_CTRL.
    Fixed {
        /// Which fixed counter.
        index: u8,
        /// OS 0, USR 1, ANY 2, PMI 3.
        control: u8,
    },
}

/// What a vPMC is asked to count. Equal specs may share a host event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec(pub Source);

impl Spec {
    const USR: u64 = 1 << 16;
    const OS: u64 = 1 << 17;
    const IN_TXCP: u64 = 1 << 33;
    /// Only inside transactions, or only those that commit.
    const TRANSACTIONS: u64 = 1 << 32 | Self::IN_TXCP;
    /// Event, umask, edge, invert, counter mask, IN_TX, IN_TXCP: what selects the event itself. KVM's `raw_event_mask` has the
    /// same bits where the host has TSX (`intel_pmu_refresh`).
    const RAW_MASK: u64 = 0xffff | 1 << 18 | 1 << 23 | 0xff << 24 | Self::TRANSACTIONS;

    /// Counts in ring 3.
    #[must_use]
    pub const fn user(self) -> bool {
        match self.0 {
            Source::Selector(selector) => selector & Self::USR != 0,
            Source::Fixed { control, .. } => control & 2 != 0,
        }
    }

    /// Counts in ring 0.
    #[must_use]
    pub const fn kernel(self) -> bool {
        match self.0 {
            Source::Selector(selector) => selector & Self::OS != 0,
            Source::Fixed { control, .. } => control & 1 != 0,
        }
    }

    /// Whether the host event samples. An IN_TXCP event must not: its count rolls back at an abort, so a host PMI
    /// would see a count below the period (KVM creates it with period 0).
    #[must_use]
    pub const fn samples(self) -> bool {
        match self.0 {
            Source::Selector(selector) => selector & Self::IN_TXCP == 0,
            Source::Fixed { .. } => true,
        }
    }

    /// Whether it counts by transactions: IN_TX or IN_TXCP.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        match self.0 {
            Source::Selector(selector) => selector & Self::TRANSACTIONS != 0,
            Source::Fixed { .. } => false,
        }
    }

    /// The bits of a selector that `PERF_TYPE_RAW` takes; `None` for a fixed counter.
    #[must_use]
    pub const fn raw_config(self) -> Option<u64> {
        match self.0 {
            Source::Selector(selector) => Some(selector & Self::RAW_MASK),
            Source::Fixed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_by_kind() {
        assert_eq!((CounterId::gp(8), CounterId::fixed(4)), (None, None));
        assert_eq!(format!("{:?} {:?}", CounterId::gp(3).unwrap(), CounterId::fixed(2).unwrap()), "PMC3 FIXED2");
    }

    #[test]
    fn a_set_iterates_what_was_put_in() {
        let mut set = CounterSet::EMPTY;
        for n in [3, 0] {
            set.insert(CounterId::gp(n).unwrap());
        }
        set.insert(CounterId::fixed(3).unwrap());
        let indices: Vec<_> = set.into_iter().map(CounterId::index).collect();
        assert_eq!(indices, [0, 3, 11]);
        set.remove(CounterId::gp(0).unwrap());
        assert!(!set.contains(CounterId::gp(0).unwrap()) && !set.is_empty());
    }

    #[test]
    fn privilege_and_sampling_come_from_the_selector() {
        let cycles = Spec(Source::Selector(0x51_003c)); // EN | INT | USR
        assert!(cycles.user() && !cycles.kernel() && cycles.samples());
        assert_eq!(cycles.raw_config(), Some(0x3c));
        let txcp = Spec(Source::Selector(1 << 33 | 0x51_003c));
        assert!(!txcp.samples() && txcp.is_transactional() && !cycles.is_transactional());
        assert_eq!(txcp.raw_config(), Some(1 << 33 | 0x3c), "IN_TXCP is part of the event");
        let fixed = Spec(Source::Fixed { index: 1, control: 0b1001 });
        assert!(!fixed.user() && fixed.kernel() && fixed.raw_config().is_none());
    }
}
