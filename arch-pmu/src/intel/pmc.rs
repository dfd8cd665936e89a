//! IA32_PMCx: a general-purpose counter with 32-bit writes (SDM vol. 3, 21.2.5).

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};
use crate::spec::CounterId;

/// IA32_PMCx; 0 at RESET.
#[derive(Debug)]
pub(super) struct Pmc;

impl Register<Intel> for Pmc {
    fn exists(caps: IntelCaps, n: usize) -> bool {
        n < usize::from(caps.gp)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        CounterId::gp(n).map_or(0, |counter| state.counters.read(counter))
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        let counter = CounterId::gp(n).ok_or(GeneralProtection)?;
        // Bit 31 is extended to the counter's width.
        state.counters.write(counter, i64::from(value as i32).cast_unsigned());
        Ok(())
    }
}
