//! IA32_PEBS_ENABLE: no counter here can do PEBS (SDM vol. 3, 21.8.4).

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};

/// IA32_PEBS_ENABLE, with a debug store; always 0.
#[derive(Debug)]
pub(super) struct PebsEnable;

impl Register<Intel> for PebsEnable {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.debug_store
    }

    fn read<H: HostCounters>(_state: &mut State<'_, H>, _n: usize) -> u64 {
        0
    }

    fn write<H: HostCounters>(_state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, 0)
    }
}
