//! IA32_PERF_CAPABILITIES: what else the PMU can do (SDM vol. 3, 21.2.8).

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};

/// IA32_PERF_CAPABILITIES; read-only. Bit 13 is full-width writes, the only capability here.
#[derive(Debug)]
pub(super) struct PerfCapabilities;

impl PerfCapabilities {
    const fn value(caps: IntelCaps) -> u64 {
        (caps.full_width_writes as u64) << 13
    }
}

impl Register<Intel> for PerfCapabilities {
    fn exists(_caps: IntelCaps, _n: usize) -> bool {
        true
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        Self::value(*state.caps)
    }

    fn write<H: HostCounters>(_state: &mut State<'_, H>, _n: usize, _value: u64) -> Result<(), GeneralProtection> {
        Err(GeneralProtection)
    }
}
