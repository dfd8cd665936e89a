//! IA32_FIXED_CTRx: a fixed-function counter (SDM vol. 3, 21.2.2).

use super::register::{GeneralProtection, Register};
use crate::caps::PmuCaps;
use crate::host::HostCounters;
use crate::spec::CounterId;
use crate::state::State;

/// IA32_FIXED_CTRx; 0 at RESET, writes are masked to the width.
#[derive(Debug)]
pub(super) struct FixedCtr;

impl Register for FixedCtr {
    fn exists(caps: PmuCaps, n: usize) -> bool {
        n < usize::from(caps.fixed)
    }

    fn read<H: HostCounters>(state: &mut State<H>, n: usize) -> u64 {
        CounterId::fixed(n).map_or(0, |counter| state.counters.read(counter))
    }

    fn write<H: HostCounters>(state: &mut State<H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        let counter = CounterId::fixed(n).ok_or(GeneralProtection)?;
        state.counters.write(counter, value);
        Ok(())
    }
}
