//! IA32_FIXED_CTRx: a fixed-function counter (SDM vol. 3, 21.2.2).

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};
use crate::spec::CounterId;

/// IA32_FIXED_CTRx; 0 at RESET, writes are masked to the width.
#[derive(Debug)]
pub(super) struct FixedCtr;

impl Register<Intel> for FixedCtr {
    fn exists(caps: IntelCaps, n: usize) -> bool {
        n < usize::from(caps.fixed)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        CounterId::fixed(n).map_or(0, |counter| state.counters.read(counter))
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        let counter = CounterId::fixed(n).ok_or(GeneralProtection)?;
        state.counters.write(counter, value);
        Ok(())
    }
}
