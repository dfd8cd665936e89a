//! Which PMU the guest has: CPUID.0AH, IA32_PERF_CAPABILITIES and the masks that follow from them.

use crate::spec::{CounterId, CounterSet, MAX_FIXED, MAX_GP};

use crate::regs::{DebugCtl, PerfEvtSel, status};

/// The architectural PMU of a guest. The default is a Cascade Lake with hyper-threading as KVM shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmuCaps {
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

impl Default for PmuCaps {
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

impl PmuCaps {
    /// Architectural events the guest has: all seven of Cascade Lake.
    const ARCH_EVENTS: u32 = 7;

    /// The same PMU with numbers this vPMU can keep.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            version: self.version.clamp(1, 5),
            gp: self.gp.clamp(1, MAX_GP as u8),
            fixed: if self.version < 2 { 0 } else { self.fixed.min(MAX_FIXED as u8) },
            width: self.width.clamp(33, 48),
            ..self
        }
    }

    /// CPUID.0AH as (EAX, EBX, ECX, EDX).
    #[must_use]
    pub fn cpuid_0a(&self) -> [u32; 4] {
        let (gp, fixed, width) = (u32::from(self.gp), u32::from(self.fixed), u32::from(self.width));
        let eax = u32::from(self.version) | gp << 8 | width << 16 | Self::ARCH_EVENTS << 24;
        // EDX[15], AnyThread deprecated: this vPMU refuses AnyThread whatever the version, as KVM does.
        let edx = if self.version > 1 { fixed | width << 5 | 1 << 15 } else { 0 };
        [eax, 0, 0, edx]
    }

    /// IA32_PERF_CAPABILITIES.
    #[must_use]
    pub const fn perf_capabilities(&self) -> u64 {
        (self.full_width_writes as u64) << 13
    }

    /// Every bit a counter can hold.
    #[must_use]
    pub const fn counter_mask(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// The guest's counters.
    #[must_use]
    pub fn counters(&self) -> CounterSet {
        let gp = (0..usize::from(self.gp)).filter_map(CounterId::gp);
        gp.chain((0..usize::from(self.fixed)).filter_map(CounterId::fixed)).collect()
    }

    /// Bits of GLOBAL_CTRL, and the overflow bits of GLOBAL_STATUS.
    #[must_use]
    pub const fn global_mask(&self) -> u64 {
        ((1 << self.gp) - 1) | ((1 << self.fixed) - 1) << 32
    }

    /// GLOBAL_CTRL at RESET: the general-purpose counters' bits (SDM vol. 3, 10.1.1; de120e1d692d).
    #[must_use]
    pub const fn global_ctrl_reset(&self) -> u64 {
        if self.version > 1 { (1 << self.gp) - 1 } else { 0 }
    }

    /// Bits that a write to GLOBAL_OVF_CTRL (STATUS_RESET) may have.
    #[must_use]
    pub const fn status_clear_mask(&self) -> u64 {
        let v2 = self.global_mask() | status::OVF_DS_BUFFER | status::COND_CHGD;
        if self.version >= 4 { v2 | status::LBR_FRZ | status::CTR_FRZ | status::ASCI | status::OVF_UNCORE } else { v2 }
    }

    /// Bits that a write to GLOBAL_STATUS_SET may have.
    #[must_use]
    pub const fn status_set_mask(&self) -> u64 {
        self.status_clear_mask() & !status::COND_CHGD
    }

    /// Bits of IA32_FIXED_CTR_CTRL; ANY is refused.
    #[must_use]
    pub const fn fixed_ctr_ctrl_mask(&self) -> u64 {
        0xbbbb & ((1 << (4 * self.fixed)) - 1)
    }

    /// Bits of IA32_PERFEVTSEL`n`; ANY is refused, IN_TX needs transactions, IN_TXCP also counter 2.
    #[must_use]
    pub fn selector_mask(&self, n: usize) -> u64 {
        let refused = PerfEvtSel::new().with_any(true).with_in_tx(true).with_in_txcp(true);
        let transactional = PerfEvtSel::new().with_in_tx(self.transactions).with_in_txcp(self.transactions && n == 2);
        (0x3_ffff_ffff & !u64::from(refused)) | u64::from(transactional)
    }

    /// Bits of IA32_DEBUGCTL.
    #[must_use]
    pub fn debugctl_mask(&self) -> u64 {
        let v1 = DebugCtl::new().with_lbr(true).with_btf(true).with_trace(0x1f);
        let freeze = self.version >= 2;
        u64::from(v1.with_freeze_lbrs_on_pmi(freeze).with_freeze_perfmon_on_pmi(freeze))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_cascade_lake_as_kvm_shows_it() {
        let caps = PmuCaps::default();
        assert_eq!(caps.cpuid_0a(), [0x0730_0402, 0, 0, 0x8603]);
        assert_eq!(caps.global_mask(), 0x7_0000_000f);
        assert_eq!(caps.global_ctrl_reset(), 0xf);
        assert_eq!(caps.fixed_ctr_ctrl_mask(), 0xbbb);
        assert_eq!(caps.perf_capabilities(), 0x2000);
        assert_eq!(caps.status_clear_mask(), 0xc000_0007_0000_000f);
        assert_eq!(caps.counters().into_iter().count(), 7);
    }

    #[test]
    fn version_4_adds_the_freeze_bits() {
        let caps = PmuCaps { version: 4, ..PmuCaps::default() };
        assert_eq!(caps.status_clear_mask(), 0xfc00_0007_0000_000f);
        assert_eq!(caps.status_set_mask(), 0x7c00_0007_0000_000f);
        assert_eq!(caps.cpuid_0a()[0], 0x0730_0404);
    }

    #[test]
    fn transactional_bits_follow_rtm_and_counter_2() {
        let plain = PmuCaps::default();
        assert_eq!(plain.selector_mask(2), 0xffdf_ffff);
        let rtm = PmuCaps { transactions: true, ..plain };
        assert_eq!((rtm.selector_mask(0), rtm.selector_mask(2)), (0x1_ffdf_ffff, 0x3_ffdf_ffff));
    }

    #[test]
    fn impossible_pmus_are_bounded() {
        let caps = PmuCaps { version: 9, gp: 200, fixed: 99, width: 64, ..PmuCaps::default() }.bounded();
        assert_eq!((caps.version, caps.gp, caps.fixed, caps.width), (5, 8, 4, 48));
        assert_eq!(PmuCaps { version: 1, ..PmuCaps::default() }.bounded().fixed, 0);
    }
}
