//! IA32_PERF_GLOBAL_STATUS_SET: sets bits of GLOBAL_STATUS (SDM vol. 3, 21.2.4).

use super::global_status::{COND_CHGD, GlobalStatus};
use super::register::{GeneralProtection, Register, within};
use crate::caps::PmuCaps;
use crate::host::HostCounters;
use crate::state::State;

/// IA32_PERF_GLOBAL_STATUS_SET, since version 4; it reads as 0.
#[derive(Debug)]
pub(super) struct GlobalStatusSet;

impl GlobalStatusSet {
    #[inline]
    const fn mask(caps: PmuCaps) -> u64 {
        GlobalStatus::mask(caps) & !COND_CHGD
    }
}

impl Register for GlobalStatusSet {
    fn exists(caps: PmuCaps, _n: usize) -> bool {
        caps.version >= 4
    }

    fn read<H: HostCounters>(_state: &mut State<H>, _n: usize) -> u64 {
        0
    }

    fn write<H: HostCounters>(state: &mut State<H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, Self::mask(state.caps))?;
        GlobalStatus::set(state, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cond_chgd_cannot_be_set() {
        let caps = PmuCaps { version: 4, ..PmuCaps::default() };
        assert_eq!(GlobalStatusSet::mask(caps), 0x7c00_0007_0000_000f);
    }
}
