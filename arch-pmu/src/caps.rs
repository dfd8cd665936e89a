//! Describes the PMU that the guest has.

use crate::amd::AmdCaps;
use crate::intel::IntelCaps;
use crate::spec::{CounterSet, Vendor};

/// The PMU of a guest, by the vendor of its processor. The default is Intel's, of a Cascade Lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmuCaps {
    /// Intel's.
    Intel(IntelCaps),
    /// AMD's.
    Amd(AmdCaps),
}

impl Default for PmuCaps {
    fn default() -> Self {
        Self::Intel(IntelCaps::default())
    }
}

impl From<IntelCaps> for PmuCaps {
    fn from(caps: IntelCaps) -> Self {
        Self::Intel(caps)
    }
}

impl From<AmdCaps> for PmuCaps {
    fn from(caps: AmdCaps) -> Self {
        Self::Amd(caps)
    }
}

impl PmuCaps {
    /// Returns the vendor of the PMU.
    pub const fn vendor(&self) -> Vendor {
        match self {
            Self::Intel(_) => Vendor::Intel,
            Self::Amd(_) => Vendor::Amd,
        }
    }

    /// Returns the PMU's version; AMD's is 1, or 2 with PerfMonV2, as Linux and KVM count.
    pub const fn version(&self) -> u8 {
        match self {
            Self::Intel(caps) => caps.version,
            Self::Amd(caps) => caps.version(),
        }
    }

    /// Returns the PMU with its numbers reduced to what this vPMU can keep.
    pub fn bounded(self) -> Self {
        match self {
            Self::Intel(caps) => Self::Intel(caps.bounded()),
            Self::Amd(caps) => Self::Amd(caps.bounded()),
        }
    }

    /// Returns the numbers of general-purpose and fixed counters.
    pub const fn count(&self) -> (u8, u8) {
        match self {
            Self::Intel(caps) => (caps.gp, caps.fixed),
            Self::Amd(caps) => (caps.counters, 0),
        }
    }

    /// Returns the guest's counters.
    pub fn counters(&self) -> CounterSet {
        match self {
            Self::Intel(caps) => caps.counters(),
            Self::Amd(caps) => caps.set(),
        }
    }

    /// Returns a mask of every bit a counter can hold.
    pub const fn counter_mask(&self) -> u64 {
        match self {
            Self::Intel(caps) => caps.counter_mask(),
            Self::Amd(_) => AmdCaps::COUNTER_MASK,
        }
    }

    /// Returns whether the delivery of a PMI masks LVTPC: it does on Intel's processors (SDM vol. 3, 12.5.1), not on
    /// AMD's (APM vol. 2, 16.4.1; 49ff3b4aec51).
    pub const fn delivery_masks_lvtpc(&self) -> bool {
        matches!(self, Self::Intel(_))
    }
}
