//! IA32_DS_AREA: the address of the debug store (SDM vol. 3, 18.4.9.4).

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, canonical};

/// IA32_DS_AREA, with a debug store; 0 at RESET. Nothing is stored there.
#[derive(Debug)]
pub(super) struct DsArea;

impl Register<Intel> for DsArea {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.debug_store
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        state.registers.ds_area
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        canonical(value)?;
        state.registers.ds_area = value;
        Ok(())
    }
}
