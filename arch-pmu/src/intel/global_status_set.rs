//! IA32_PERF_GLOBAL_STATUS_SET: sets bits of GLOBAL_STATUS (SDM vol. 3, 21.2.4).

use super::caps::IntelCaps;
use super::global_status::{COND_CHGD, GlobalStatus};
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};

/// IA32_PERF_GLOBAL_STATUS_SET, since version 4; it reads as 0.
#[derive(Debug)]
pub(super) struct GlobalStatusSet;

impl GlobalStatusSet {
    #[inline]
    const fn mask(caps: IntelCaps) -> u64 {
        GlobalStatus::mask(caps) & !COND_CHGD
    }
}

impl Register<Intel> for GlobalStatusSet {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.version >= 4
    }

    fn read<H: HostCounters>(_state: &mut State<'_, H>, _n: usize) -> u64 {
        0
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, Self::mask(*state.caps))?;
        GlobalStatus::set(state, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cond_chgd_cannot_be_set() {
        let caps = IntelCaps { version: 4, ..IntelCaps::default() };
        assert_eq!(GlobalStatusSet::mask(caps), 0x7c00_0007_0000_000f);
    }
}
