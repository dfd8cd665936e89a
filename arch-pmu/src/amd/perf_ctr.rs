//! PERF_CTRx: a counter (APM vol. 2, 13.2.1).

use super::caps::AmdCaps;
use super::registers::{Amd, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};
use crate::spec::CounterId;

/// PERF_CTRx; 0 at RESET. Bits 63:48 are reserved and not kept.
#[derive(Debug)]
pub(super) struct PerfCtr;

impl Register<Amd> for PerfCtr {
    fn exists(caps: AmdCaps, n: usize) -> bool {
        n < usize::from(caps.counters)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        CounterId::gp(n).map_or(0, |counter| state.counters.read(counter))
    }

    /// Writes the counter. A driver may leave the status register alone, as Linux before 5.19 does, and handles an
    /// overflow with its write of the counter. Without such a register that is its acknowledgement.
    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        let counter = CounterId::gp(n).ok_or(GeneralProtection)?;
        state.counters.write(counter, value);
        state.counters.handled(counter);
        if !state.caps.perfmon_v2 {
            let mut left = state.counters.overflowed();
            left.remove(counter);
            state.counters.set_overflowed(left);
        }
        Ok(())
    }
}
