//! IA32_PERF_GLOBAL_STATUS: overflows and freezes (SDM vol. 3, 21.2.2 and 21.2.4).

use super::caps::IntelCaps;
use super::global_bits;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};

/// LBRs are frozen (version 4).
pub(super) const LBR_FRZ: u64 = 1 << 58;
/// Counters are frozen (version 4).
pub(super) const CTR_FRZ: u64 = 1 << 59;
/// Counted inside an enclave (version 4).
pub(super) const ASCI: u64 = 1 << 60;
/// Uncore overflow (version 4).
pub(super) const OVF_UNCORE: u64 = 1 << 61;
/// DS buffer overflow.
pub(super) const OVF_DS_BUFFER: u64 = 1 << 62;
/// Conditions changed.
pub(super) const COND_CHGD: u64 = 1 << 63;

/// IA32_PERF_GLOBAL_STATUS, since version 2; 0 at RESET and read-only. The counters' bits and CTR_FRZ are views of the
/// counting core.
#[derive(Debug)]
pub(super) struct GlobalStatus;

impl GlobalStatus {
    /// Returns a mask of the bits that the register can have.
    #[inline]
    pub(super) const fn mask(caps: IntelCaps) -> u64 {
        let v2 = global_bits::mask(caps) | OVF_DS_BUFFER | COND_CHGD;
        if caps.version >= 4 { v2 | LBR_FRZ | CTR_FRZ | ASCI | OVF_UNCORE } else { v2 }
    }

    /// Sets `bits`. CTR_FRZ stops the counters; an overflow bit requests no PMI.
    pub(super) fn set<H: HostCounters>(state: &mut State<'_, H>, bits: u64) {
        let mut overflowed = state.counters.overflowed();
        overflowed.extend(global_bits::counters(bits));
        state.counters.set_overflowed(overflowed);
        state.registers.status |= bits & Self::FLAGS;
        if bits & CTR_FRZ != 0 {
            state.counters.freeze();
        }
    }

    /// Clears `bits`. Without CTR_FRZ the counters run again.
    pub(super) fn clear<H: HostCounters>(state: &mut State<'_, H>, bits: u64) {
        let left = state.counters.overflowed().and(global_bits::counters(bits).complement());
        state.counters.set_overflowed(left);
        state.registers.status &= !bits;
        if bits & CTR_FRZ != 0 {
            state.counters.unfreeze();
        }
    }

    /// Bits that are neither a counter's nor CTR_FRZ.
    const FLAGS: u64 = LBR_FRZ | ASCI | OVF_UNCORE | OVF_DS_BUFFER | COND_CHGD;
}

impl Register<Intel> for GlobalStatus {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.version >= 2
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        let frozen = if state.counters.frozen { CTR_FRZ } else { 0 };
        global_bits::of(state.counters.overflowed()) | state.registers.status | frozen
    }

    fn write<H: HostCounters>(_state: &mut State<'_, H>, _n: usize, _value: u64) -> Result<(), GeneralProtection> {
        Err(GeneralProtection)
    }
}
