//! The guest's PMU, and what the guest executes.

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::IntelCaps;

/// Which PMU of an AMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amd {
    /// PERFCTR_CORE.
    Core,
    /// PerfMonV2.
    V2,
}

/// The guest's PMU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// An AMD's; an Intel's otherwise.
    pub(crate) amd: Option<Amd>,
    /// Version of Intel's PMU; an AMD has 2 with a global control, else 1.
    pub(crate) version: u8,
    pub(crate) gp: u8,
    pub(crate) fixed: u8,
    pub(crate) width: u8,
    pub(crate) full_width: bool,
    pub(crate) transactions: bool,
    pub(crate) debug_store: bool,
}

impl Shape {
    pub(crate) fn caps(self) -> PmuCaps {
        if let Some(kind) = self.amd {
            return AmdCaps { perfmon_v2: kind == Amd::V2, counters: self.gp, svm: false }.into();
        }
        PmuCaps::Intel(IntelCaps {
            version: self.version,
            gp: self.gp,
            fixed: self.fixed,
            width: self.width,
            full_width_writes: self.full_width,
            transactions: self.transactions,
            debug_store: self.debug_store,
        })
    }

    /// The counter, the selector and the global control of general-purpose counter `n`, and what clears STATUS.
    pub(crate) const fn counter(self, n: u32) -> u32 {
        if self.amd.is_some() { 0xc001_0201 + 2 * n } else { 0xc1 + n }
    }

    pub(crate) const fn selector(self, n: u32) -> u32 {
        if self.amd.is_some() { 0xc001_0200 + 2 * n } else { 0x186 + n }
    }

    pub(crate) const fn global(self) -> u32 {
        if self.amd.is_some() { 0xc000_0301 } else { 0x38f }
    }

    pub(crate) const fn clear(self) -> u32 {
        if self.amd.is_some() { 0xc000_0302 } else { 0x390 }
    }

    /// The counter that `msr` is.
    pub(crate) fn line(self, msr: u32) -> Option<u32> {
        match (self.amd, msr) {
            (None, 0xc1..=0xc8) => Some(msr - 0xc1),
            (None, 0x4c1..=0x4c8) => Some(msr - 0x4c1),
            (None, 0x309..=0x30c) => Some(msr - 0x309 + 32),
            (Some(_), 0xc001_0004..=0xc001_0007) => Some(msr - 0xc001_0004),
            (Some(_), 0xc001_0201..=0xc001_020b) if msr % 2 == 1 => Some((msr - 0xc001_0201) / 2),
            _ => None,
        }
    }
}

/// Instructions that the guest executed: a count for each event and privilege.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) seed: u64,
    /// Each count is below 2^bits.
    pub(crate) bits: u32,
    /// The part of it that was executed before an exit, as numerator and denominator.
    pub(crate) part: (u64, u64),
}

impl Burst {
    pub(crate) const fn new(seed: u64, bits: u32) -> Self {
        Self { seed, bits, part: (1, 1) }
    }

    /// Counts the occurrences of `event` (umask << 8 | select), in ring 0 and in ring 3.
    pub(crate) fn count(self, event: u64, os: bool, usr: bool) -> u64 {
        let ring = |ring: u64| {
            let x = (self.seed ^ event << 3 ^ ring).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (x ^ x >> 32) & ((1 << self.bits) - 1)
        };
        let whole = u128::from(os) * u128::from(ring(0)) + u128::from(usr) * u128::from(ring(3));
        (whole * u128::from(self.part.0) / u128::from(self.part.1)) as u64
    }
}
