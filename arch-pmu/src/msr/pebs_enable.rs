//! IA32_PEBS_ENABLE: no counter here can do PEBS (SDM vol. 3, 21.8.4).

use super::register::{GeneralProtection, Register, within};
use crate::caps::PmuCaps;
use crate::host::HostCounters;
use crate::state::State;

/// IA32_PEBS_ENABLE, with a debug store; always 0.
#[derive(Debug)]
pub(super) struct PebsEnable;

impl Register for PebsEnable {
    fn exists(caps: PmuCaps, _n: usize) -> bool {
        caps.debug_store
    }

    fn read<H: HostCounters>(_state: &mut State<H>, _n: usize) -> u64 {
        0
    }

    fn write<H: HostCounters>(_state: &mut State<H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, 0)
    }
}
