//! Intel's PMU as CPUID.0AH has it.

use crate::spec::{CounterId, CounterSet, MAX_FIXED, MAX_GP};

/// The architectural PMU of a guest with an Intel processor. The default is a Cascade Lake with hyper-threading as KVM shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntelCaps {
    /// Architectural version, 1 to 5. KVM shows at most 2.
    pub version: u8,
    /// General-purpose counters.
    pub gp: u8,
    /// Fixed counters.
    pub fixed: u8,
    /// Bits of every counter.
    pub width: u8,
    /// Bit 13 of IA32_PERF_CAPABILITIES: full-width writes by IA32_A_PMCx.
    pub full_width_writes: bool,
    /// RTM or HLE: IN_TX and IN_TXCP exist.
    pub transactions: bool,
    /// Bit 21 of CPUID.1:EDX: IA32_DS_AREA exists.
    pub debug_store: bool,
}

impl Default for IntelCaps {
    fn default() -> Self {
        Self {
            version: 2,
            gp: 4,
            fixed: 3,
            width: 48,
            full_width_writes: true,
            transactions: false,
            debug_store: false,
        }
    }
}

impl IntelCaps {
    /// Architectural events the guest has: all seven of Cascade Lake.
    const ARCH_EVENTS: u32 = 7;

    /// Returns the PMU with its numbers reduced to what this vPMU can keep.
    pub fn bounded(self) -> Self {
        Self {
            version: self.version.clamp(1, 5),
            gp: self.gp.clamp(1, MAX_GP as u8),
            fixed: if self.version < 2 { 0 } else { self.fixed.min(MAX_FIXED as u8) },
            width: self.width.clamp(33, 48),
            ..self
        }
    }

    /// Returns CPUID.0AH as (EAX, EBX, ECX, EDX).
    pub fn cpuid_0a(&self) -> [u32; 4] {
        let (gp, fixed, width) = (u32::from(self.gp), u32::from(self.fixed), u32::from(self.width));
        let eax = u32::from(self.version) | gp << 8 | width << 16 | Self::ARCH_EVENTS << 24;
        // EDX[15], AnyThread deprecated: this vPMU refuses AnyThread whatever the version, as KVM does.
        let edx = if self.version > 1 { fixed | width << 5 | 1 << 15 } else { 0 };
        [eax, 0, 0, edx]
    }

    /// Returns every bit a counter can hold.
    pub const fn counter_mask(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// Returns the guest's counters.
    pub fn counters(&self) -> CounterSet {
        let gp = (0..usize::from(self.gp)).filter_map(CounterId::gp);
        gp.chain((0..usize::from(self.fixed)).filter_map(CounterId::fixed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_cascade_lake_as_kvm_shows_it() {
        let caps = IntelCaps::default();
        assert_eq!(caps.cpuid_0a(), [0x0730_0402, 0, 0, 0x8603]);
        assert_eq!(IntelCaps { version: 4, ..caps }.cpuid_0a()[0], 0x0730_0404);
        assert_eq!(caps.counters().into_iter().count(), 7);
    }

    #[test]
    fn impossible_pmus_are_bounded() {
        let caps = IntelCaps { version: 9, gp: 200, fixed: 99, width: 64, ..IntelCaps::default() }.bounded();
        assert_eq!((caps.version, caps.gp, caps.fixed, caps.width), (5, 8, 4, 48));
        assert_eq!(IntelCaps { version: 1, ..IntelCaps::default() }.bounded().fixed, 0);
    }
}
