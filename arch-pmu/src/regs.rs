//! The PMU's registers as typed values, and their indices (SDM vol. 3, chapter 21; vol. 4).

use bitfield_struct::bitfield;

/// IA32_PMC0; the others follow.
pub const IA32_PMC0: u32 = 0xc1;
/// IA32_PERFEVTSEL0; the others follow.
pub const IA32_PERFEVTSEL0: u32 = 0x186;
/// IA32_DEBUGCTL.
pub const IA32_DEBUGCTL: u32 = 0x1d9;
/// IA32_FIXED_CTR0; the others follow.
pub const IA32_FIXED_CTR0: u32 = 0x309;
/// IA32_PERF_CAPABILITIES.
pub const IA32_PERF_CAPABILITIES: u32 = 0x345;
/// IA32_FIXED_CTR_CTRL.
pub const IA32_FIXED_CTR_CTRL: u32 = 0x38d;
/// IA32_PERF_GLOBAL_STATUS.
pub const IA32_PERF_GLOBAL_STATUS: u32 = 0x38e;
/// IA32_PERF_GLOBAL_CTRL.
pub const IA32_PERF_GLOBAL_CTRL: u32 = 0x38f;
/// IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERF_GLOBAL_STATUS_RESET since version 4.
pub const IA32_PERF_GLOBAL_OVF_CTRL: u32 = 0x390;
/// IA32_PERF_GLOBAL_STATUS_SET, since version 4.
pub const IA32_PERF_GLOBAL_STATUS_SET: u32 = 0x391;
/// IA32_PERF_GLOBAL_INUSE, since version 4.
pub const IA32_PERF_GLOBAL_INUSE: u32 = 0x392;
/// IA32_PEBS_ENABLE.
pub const IA32_PEBS_ENABLE: u32 = 0x3f1;
/// IA32_A_PMC0, the full-width alias of IA32_PMC0; the others follow.
pub const IA32_A_PMC0: u32 = 0x4c1;
/// IA32_DS_AREA.
pub const IA32_DS_AREA: u32 = 0x600;

/// IA32_PERFEVTSELx.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct PerfEvtSel {
    /// Event select.
    pub event: u8,
    /// Unit mask.
    pub umask: u8,
    /// Count in ring 3.
    pub usr: bool,
    /// Count in ring 0.
    pub os: bool,
    /// Edge detect.
    pub edge: bool,
    /// Pin control.
    pub pin: bool,
    /// PMI on overflow.
    pub int: bool,
    /// AnyThread.
    pub any: bool,
    /// Enable.
    pub en: bool,
    /// Invert the counter mask.
    pub inv: bool,
    /// Counter mask.
    pub cmask: u8,
    /// Only inside transactions.
    pub in_tx: bool,
    /// Not inside aborted transactions.
    pub in_txcp: bool,
    #[bits(30)]
    reserved: u64,
}

/// One nibble of IA32_FIXED_CTR_CTRL.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct FixedControl {
    /// Count in ring 0.
    pub os: bool,
    /// Count in ring 3.
    pub usr: bool,
    /// AnyThread.
    pub any: bool,
    /// PMI on overflow.
    pub pmi: bool,
    #[bits(4)]
    reserved: u8,
}

impl FixedControl {
    /// The nibble of fixed counter `n`.
    #[must_use]
    pub const fn of(fixed_ctr_ctrl: u64, n: usize) -> Self {
        Self::from_bits((fixed_ctr_ctrl >> (4 * n)) as u8 & 0xf)
    }

    /// Whether the counter's own enable is on: some ring is counted.
    #[must_use]
    pub const fn enabled(self) -> bool {
        self.os() || self.usr()
    }
}

/// IA32_DEBUGCTL, the bits that matter to the PMU.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct DebugCtl {
    /// Last-branch records.
    pub lbr: bool,
    /// Single-step on branches.
    pub btf: bool,
    #[bits(4)]
    reserved_low: u8,
    /// TR, BTS, BTINT, BTS_OFF_OS, BTS_OFF_USR.
    #[bits(5)]
    pub trace: u8,
    /// Freeze LBRs on PMI.
    pub freeze_lbrs_on_pmi: bool,
    /// Freeze counters on PMI.
    pub freeze_perfmon_on_pmi: bool,
    #[bits(51)]
    reserved_high: u64,
}

/// Bits of IA32_PERF_GLOBAL_STATUS that are no counter's.
pub mod status {
    /// LBRs are frozen (version 4).
    pub const LBR_FRZ: u64 = 1 << 58;
    /// Counters are frozen (version 4).
    pub const CTR_FRZ: u64 = 1 << 59;
    /// Counted inside an enclave (version 4).
    pub const ASCI: u64 = 1 << 60;
    /// Uncore overflow.
    pub const OVF_UNCORE: u64 = 1 << 61;
    /// DS buffer overflow.
    pub const OVF_DS_BUFFER: u64 = 1 << 62;
    /// Conditions changed.
    pub const COND_CHGD: u64 = 1 << 63;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_fields_stand_where_the_sdm_has_them() {
        let selector = PerfEvtSel::new().with_event(0xc5).with_usr(true).with_int(true).with_en(true).with_cmask(1);
        assert_eq!(u64::from(selector), 0x0151_00c5);
        assert_eq!(u64::from(PerfEvtSel::new().with_any(true)), 1 << 21);
        assert_eq!(u64::from(PerfEvtSel::new().with_in_txcp(true)), 1 << 33);
    }

    #[test]
    fn nibbles_and_freeze_bits() {
        let control = FixedControl::of(0xb80, 1);
        assert!(control.pmi() && !control.enabled());
        assert!(FixedControl::of(0xb80, 2).enabled());
        assert_eq!(u64::from(DebugCtl::new().with_freeze_lbrs_on_pmi(true).with_freeze_perfmon_on_pmi(true)), 0x1800);
    }
}
