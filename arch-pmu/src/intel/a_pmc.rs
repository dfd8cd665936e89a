//! IA32_A_PMCx: a general-purpose counter with full-width writes (SDM vol. 3, 21.2.8).

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};
use crate::spec::CounterId;

/// IA32_A_PMCx, the alias of IA32_PMCx; there with IA32_PERF_CAPABILITIES[13].
#[derive(Debug)]
pub(super) struct APmc;

impl Register<Intel> for APmc {
    fn exists(caps: IntelCaps, n: usize) -> bool {
        caps.full_width_writes && n < usize::from(caps.gp)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        CounterId::gp(n).map_or(0, |counter| state.counters.read(counter))
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        let counter = CounterId::gp(n).ok_or(GeneralProtection)?;
        within(value, state.caps.counter_mask())?;
        state.counters.write(counter, value);
        Ok(())
    }
}
