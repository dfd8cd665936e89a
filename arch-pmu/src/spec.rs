//! Names the event that a vPMC is asked to count.

use std::fmt;

use bitfield_struct::bitfield;

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
    /// Returns general-purpose counter `n`; `None` if there is no such counter on any guest.
    pub const fn gp(n: usize) -> Option<Self> {
        if n < MAX_GP { Some(Self(n as u8)) } else { None }
    }

    /// Returns fixed counter `n`; `None` if there is no such counter on any guest.
    pub const fn fixed(n: usize) -> Option<Self> {
        if n < MAX_FIXED { Some(Self((MAX_GP + n) as u8)) } else { None }
    }

    /// Returns its place in an array of [`MAX_COUNTERS`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the counter at a place of such an array; `None` where there is none.
    #[inline]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < MAX_GP { Self::gp(index) } else { Self::fixed(index - MAX_GP) }
    }

    /// Returns the fixed counter's number, if it is one.
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

/// A set of vPMCs. In 32 bits, of which an instruction sets, clears or tests one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSet(u32);

impl CounterSet {
    /// No counter.
    pub const EMPTY: Self = Self(0);

    /// Every counter a guest may have.
    pub const ALL: Self = Self((1 << MAX_COUNTERS) - 1);

    /// Returns the counters in both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the counters in exactly one of both sets.
    pub const fn xor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    /// Returns the counters not in this set.
    pub const fn complement(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }

    /// Returns a bit for each counter, by [`CounterId::index`].
    pub const fn bits(self) -> u16 {
        self.0 as u16
    }

    /// Returns the counters of `bits`; bits of no counter are ignored.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits as u32 & Self::ALL.0)
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

    /// Returns whether `counter` is in the set.
    pub const fn contains(self, counter: CounterId) -> bool {
        self.0 & 1 << counter.0 != 0
    }

    /// Returns whether the set is empty.
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
pub struct CounterSetIter(u32);

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

/// Vendor of a PMU: the same event has another encoding on the other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// Intel's architectural PMU.
    #[default]
    Intel,
    /// AMD's core PMU.
    Amd,
}

impl Vendor {
    const fn from_bits(bit: u64) -> Self {
        if bit == 0 { Self::Intel } else { Self::Amd }
    }

    const fn into_bits(self) -> u64 {
        self as u64
    }
}

/// All that a general-purpose counter's selector asks for, whatever the vendor. Two selectors of a vendor are equal
/// here if they are equal bit by bit: KVM compares them so before it reuses an event.
#[bitfield(u64)]
#[derive(PartialEq, Eq, Hash)]
pub struct Selection {
    /// Event select: 8 bits on Intel, 12 on AMD.
    #[bits(12)]
    pub select: u16,
    /// Unit mask.
    pub umask: u8,
    /// Counter mask.
    pub cmask: u8,
    /// Count in ring 3.
    pub user: bool,
    /// Count in ring 0.
    pub kernel: bool,
    /// Edge detect.
    pub edge: bool,
    /// Pin control.
    pub pin: bool,
    /// PMI on overflow.
    pub int: bool,
    /// Enable.
    pub enable: bool,
    /// Invert the counter mask.
    pub invert: bool,
    /// Only inside transactions.
    pub in_tx: bool,
    /// Only outside aborted transactions.
    pub in_txcp: bool,
    /// Only in the guests of the counter's owner.
    pub guest_only: bool,
    /// Only outside of guests of the counter's owner.
    pub host_only: bool,
    /// Vendor of the encoding.
    #[bits(1)]
    pub vendor: Vendor,
    #[bits(24)]
    __: u32,
}

/// Register that selects the event of a vPMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A general-purpose counter's selector.
    Selector(Selection),
    /// A fixed counter and its nibble of IA32_FIXED_CTR_CTRL.
    Fixed {
        /// Number of the fixed counter.
        index: u8,
        /// OS 0, USR 1, ANY 2, PMI 3.
        control: u8,
    },
}

/// Event that a vPMC is asked to count. Equal specs may share a host event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec(pub Source);

impl Spec {
    /// Returns whether it counts in ring 3.
    pub const fn user(self) -> bool {
        match self.0 {
            Source::Selector(selection) => selection.user(),
            Source::Fixed { control, .. } => control & 2 != 0,
        }
    }

    /// Returns whether it counts in ring 0.
    pub const fn kernel(self) -> bool {
        match self.0 {
            Source::Selector(selection) => selection.kernel(),
            Source::Fixed { control, .. } => control & 1 != 0,
        }
    }

    /// Returns whether the host event samples. An IN_TXCP event must not: its count rolls back at an abort, so a host
    /// PMI would see a count below the period (KVM creates it with period 0).
    pub const fn samples(self) -> bool {
        !matches!(self.0, Source::Selector(selection) if selection.in_txcp())
    }

    /// Returns whether it counts by transactions: IN_TX or IN_TXCP.
    pub const fn is_transactional(self) -> bool {
        matches!(self.0, Source::Selector(selection) if selection.in_tx() || selection.in_txcp())
    }

    /// Returns the config for `PERF_TYPE_RAW` on a host of the event's vendor; `None` for a fixed counter.
    pub const fn raw_config(self) -> Option<u64> {
        if let Source::Selector(selection) = self.0 { Some(selection.raw_config()) } else { None }
    }
}

impl Selection {
    /// Returns the fields that select the event itself: event, umask, edge, invert, counter mask, IN_TX, IN_TXCP. KVM's
    /// `raw_event_mask` has the same bits where the host has TSX (`intel_pmu_refresh`), and for AMD
    /// (AMD64_RAW_EVENT_MASK).
    pub const fn raw_config(self) -> u64 {
        let flags = (self.edge() as u64) << 18 | (self.invert() as u64) << 23;
        let transactions = (self.in_tx() as u64) << 32 | (self.in_txcp() as u64) << 33;
        let event = (self.select() as u64 & 0xff) | (self.umask() as u64) << 8 | (self.cmask() as u64) << 24 | flags;
        match self.vendor() {
            Vendor::Intel => event | transactions,
            Vendor::Amd => event | (self.select() as u64 >> 8) << 32,
        }
    }

    /// Returns umask << 8 | event select, as lists of events have it; of a select with more than 8 bits the lower ones.
    pub const fn code(self) -> u16 {
        (self.umask() as u16) << 8 | self.select() & 0xff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privilege_and_sampling_come_from_the_selector() {
        let plain = Selection::new().with_select(0x3c).with_user(true).with_int(true).with_enable(true);
        let cycles = Spec(Source::Selector(plain));
        assert!(cycles.user() && !cycles.kernel() && cycles.samples());
        assert_eq!(cycles.raw_config(), Some(0x3c));
        let txcp = Spec(Source::Selector(plain.with_in_txcp(true)));
        assert!(!txcp.samples() && txcp.is_transactional() && !cycles.is_transactional());
        assert_eq!(txcp.raw_config(), Some(1 << 33 | 0x3c), "IN_TXCP is part of the event");
        let amd = Selection::new().with_vendor(Vendor::Amd).with_select(0x1d6).with_umask(2).with_edge(true);
        assert_eq!(Spec(Source::Selector(amd)).raw_config(), Some(0x1_0004_02d6), "select bits 11:8 are bits 35:32");
        let fixed = Spec(Source::Fixed { index: 1, control: 0b1001 });
        assert!(!fixed.user() && fixed.kernel() && fixed.raw_config().is_none());
    }
}
