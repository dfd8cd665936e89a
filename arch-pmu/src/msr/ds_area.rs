//! IA32_DS_AREA: the address of the debug store (SDM vol. 3, 18.4.9.4).

use super::register::{GeneralProtection, Register, canonical};
use crate::caps::PmuCaps;
use crate::host::HostCounters;
use crate::state::State;

/// IA32_DS_AREA, with a debug store; 0 at RESET. Nothing is stored there.
#[derive(Debug)]
pub(super) struct DsArea;

impl Register for DsArea {
    fn exists(caps: PmuCaps, _n: usize) -> bool {
        caps.debug_store
    }

    fn read<H: HostCounters>(state: &mut State<H>, _n: usize) -> u64 {
        state.registers.ds_area
    }

    fn write<H: HostCounters>(state: &mut State<H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        canonical(value)?;
        state.registers.ds_area = value;
        Ok(())
    }
}
