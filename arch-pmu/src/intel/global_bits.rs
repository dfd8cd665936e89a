//! The bits of GLOBAL_CTRL, GLOBAL_STATUS and their kin: general-purpose counters from bit 0, fixed ones from bit 32
//! (SDM vol. 3, 21.2.2).

use super::caps::IntelCaps;
use crate::spec::{CounterSet, MAX_GP};

const FIRST_FIXED: u32 = 32;
const GP: u64 = (1 << MAX_GP) - 1;

/// Returns the bits of `counters`.
#[inline]
pub(super) const fn of(counters: CounterSet) -> u64 {
    let bits = counters.bits() as u64;
    bits & GP | bits >> MAX_GP << FIRST_FIXED
}

/// Returns the counters of `bits`.
#[inline]
pub(super) const fn counters(bits: u64) -> CounterSet {
    CounterSet::from_bits((bits & GP | bits >> FIRST_FIXED << MAX_GP) as u16)
}

/// Returns the bits of all counters of a guest.
#[inline]
pub(super) const fn mask(caps: IntelCaps) -> u64 {
    ((1 << caps.gp) - 1) | ((1 << caps.fixed) - 1) << FIRST_FIXED
}
