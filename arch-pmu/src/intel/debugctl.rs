//! IA32_DEBUGCTL: freezing on a PMI, and the branch facilities beside it (SDM vol. 3, 18.4.1 and 18.4.7).

use bitfield_struct::bitfield;

use super::caps::IntelCaps;
use super::global_status::{CTR_FRZ, GlobalStatus, LBR_FRZ};
use super::registers::{Intel, Registers, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};

/// IA32_DEBUGCTL, the bits that matter to the PMU; 0 at RESET.
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
    /// Freeze LBRs on PMI (version 2).
    pub freeze_lbrs_on_pmi: bool,
    /// Freeze counters on PMI (version 2).
    pub freeze_perfmon_on_pmi: bool,
    #[bits(51)]
    reserved_high: u64,
}

impl DebugCtl {
    #[inline]
    fn mask(caps: IntelCaps) -> u64 {
        let v1 = Self::new().with_lbr(true).with_btf(true).with_trace(0x1f);
        let freeze = caps.version >= 2;
        u64::from(v1.with_freeze_lbrs_on_pmi(freeze).with_freeze_perfmon_on_pmi(freeze))
    }
}

impl Register<Intel> for DebugCtl {
    fn exists(_caps: IntelCaps, _n: usize) -> bool {
        true
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        state.registers.debugctl
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, Self::mask(*state.caps))?;
        state.registers.debugctl = value;
        Ok(())
    }
}

/// Returns whether a PMI stops the counters.
pub(crate) const fn freezes_on_pmi(registers: &Registers) -> bool {
    DebugCtl::from_bits(registers.debugctl).freeze_perfmon_on_pmi()
}

/// Freezes the counters at the delivery of a PMI. Version 4 freezes by GLOBAL_STATUS bits, earlier ones by clearing the
/// enables themselves (SDM vol. 3, 18.4.7).
pub(crate) fn freeze_on_pmi<H: HostCounters>(state: &mut State<'_, H>) {
    let debugctl = DebugCtl::from_bits(state.registers.debugctl);
    let (lbrs, counters) = (debugctl.freeze_lbrs_on_pmi(), debugctl.freeze_perfmon_on_pmi());
    if state.caps.version >= 4 {
        let bits = if lbrs { LBR_FRZ } else { 0 } | if counters { CTR_FRZ } else { 0 };
        GlobalStatus::set(state, bits);
    } else {
        if lbrs {
            state.registers.debugctl = debugctl.with_lbr(false).into();
        }
        if counters {
            state.counters.stop_all();
        }
    }
}
