//! AMD's PMU as CPUID 8000_0001 and 8000_0022 have it.

use crate::spec::{CounterId, CounterSet, MAX_GP};

/// The core PMU of a guest with an AMD processor of family 17h or later. The default is that of Milan (family 19h, Zen 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmdCaps {
    /// PerfMonV2: global control and status. Without it there is PERFCTR_CORE alone.
    pub perfmon_v2: bool,
    /// Counters. PERFCTR_CORE has six; PerfMonV2 says how many there are.
    pub counters: u8,
    /// The guest has SVM: Guest-Only and Host-Only may count ([`PerfCtl::enabled`](super::PerfCtl::enabled)).
    pub svm: bool,
}

impl Default for AmdCaps {
    fn default() -> Self {
        Self { perfmon_v2: false, counters: Self::CORE, svm: false }
    }
}

impl AmdCaps {
    /// Counters of PERFCTR_CORE.
    pub const CORE: u8 = 6;

    /// Every bit a counter can hold: they have 48 (APM vol. 2, 13.2.1).
    pub const COUNTER_MASK: u64 = (1 << 48) - 1;

    /// Genoa's (family 19h, Zen 4): PerfMonV2 with six counters.
    pub const GENOA: Self = Self { perfmon_v2: true, counters: Self::CORE, svm: false };

    /// Returns the version as Linux and KVM count: 2 with PerfMonV2.
    pub const fn version(&self) -> u8 {
        if self.perfmon_v2 { 2 } else { 1 }
    }

    /// Returns the PMU with its numbers reduced to what this vPMU can keep: PERFCTR_CORE is six counters, and there are
    /// MSRs for that many.
    pub fn bounded(self) -> Self {
        let most = Self::CORE.min(MAX_GP as u8);
        Self { counters: if self.perfmon_v2 { self.counters.clamp(1, most) } else { most }, ..self }
    }

    /// Returns CPUID 8000_0022 as (EAX, EBX, ECX, EDX): PerfMonV2 and its number of counters. No LBR stack, no
    /// freezing, no counters outside of the core.
    pub fn cpuid_8000_0022(&self) -> [u32; 4] {
        if self.perfmon_v2 { [1, u32::from(self.counters) & 0xf, 0, 0] } else { [0; 4] }
    }

    /// Returns the guest's counters.
    pub fn set(&self) -> CounterSet {
        (0..usize::from(self.counters)).filter_map(CounterId::gp).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milan_has_six_counters_and_genoa_says_so() {
        assert_eq!(AmdCaps::default().cpuid_8000_0022(), [0; 4]);
        assert_eq!(AmdCaps::GENOA.cpuid_8000_0022(), [1, 6, 0, 0]);
        assert_eq!(AmdCaps::GENOA.set().bits(), 0x3f);
    }

    #[test]
    fn impossible_pmus_are_bounded() {
        assert_eq!(AmdCaps { counters: 3, ..AmdCaps::default() }.bounded(), AmdCaps::default());
        assert_eq!(AmdCaps { counters: 99, ..AmdCaps::GENOA }.bounded(), AmdCaps::GENOA);
        assert_eq!(AmdCaps { counters: 0, ..AmdCaps::GENOA }.bounded().counters, 1);
    }
}
