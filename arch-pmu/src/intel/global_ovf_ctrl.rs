//! IA32_PERF_GLOBAL_OVF_CTRL, since version 4 IA32_PERF_GLOBAL_STATUS_RESET: clears bits of GLOBAL_STATUS (SDM vol. 3, 21.2.2
//! and 21.2.4).

use super::caps::IntelCaps;
use super::global_status::GlobalStatus;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};

/// IA32_PERF_GLOBAL_OVF_CTRL, since version 2; it reads as 0.
#[derive(Debug)]
pub(super) struct GlobalOvfCtrl;

impl Register<Intel> for GlobalOvfCtrl {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.version >= 2
    }

    fn read<H: HostCounters>(_state: &mut State<'_, H>, _n: usize) -> u64 {
        0
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, GlobalStatus::mask(*state.caps))?;
        GlobalStatus::clear(state, value);
        Ok(())
    }
}
