//! What every register file implements.

use crate::caps::PmuCaps;
use crate::host::HostCounters;
use crate::state::State;

/// The access is answered by #GP(0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralProtection;

/// A register, or a row of `n` registers of the same kind.
pub(crate) trait Register {
    /// Whether a guest with `caps` has register `n`.
    fn exists(caps: PmuCaps, n: usize) -> bool;

    /// Sets the registers to their value at RESET. They are 0, and the counters off.
    fn reset<H: HostCounters>(_state: &mut State<H>) {}

    /// The event filter changed.
    fn filter_changed<H: HostCounters>(_state: &mut State<H>) {}

    /// RDMSR of register `n`.
    fn read<H: HostCounters>(state: &mut State<H>, n: usize) -> u64;

    /// WRMSR of `value` to register `n`.
    fn write<H: HostCounters>(state: &mut State<H>, n: usize, value: u64) -> Result<(), GeneralProtection>;
}

/// `value` has no bit outside `mask`.
#[inline]
pub(crate) const fn within(value: u64, mask: u64) -> Result<(), GeneralProtection> {
    if value & !mask == 0 { Ok(()) } else { Err(GeneralProtection) }
}

/// Bits 63:47 of an address are equal.
///
/// # Errors
/// #GP for an address that is not canonical.
pub const fn canonical(address: u64) -> Result<(), GeneralProtection> {
    let upper = address.cast_signed() >> 47;
    if upper == 0 || upper == -1 { Ok(()) } else { Err(GeneralProtection) }
}
