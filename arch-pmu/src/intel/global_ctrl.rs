//! IA32_PERF_GLOBAL_CTRL: the global enables (SDM vol. 3, 21.2.2).

use super::caps::IntelCaps;
use super::global_bits;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};
use crate::spec::{CounterId, CounterSet};

/// IA32_PERF_GLOBAL_CTRL, since version 2; a view of the counting core's global enables.
#[derive(Debug)]
pub(super) struct GlobalCtrl;

impl GlobalCtrl {
    /// Returns the counters that are enabled at RESET: the general-purpose ones (SDM vol. 3, 10.1.1; de120e1d692d).
    /// Version 1 has no such register, and nothing but a counter's own enable.
    fn at_reset(caps: IntelCaps) -> CounterSet {
        let gp: CounterSet = (0..usize::from(caps.gp)).filter_map(CounterId::gp).collect();
        if caps.version > 1 { gp } else { CounterSet::ALL }
    }
}

impl Register<Intel> for GlobalCtrl {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.version >= 2
    }

    fn reset<H: HostCounters>(state: &mut State<'_, H>) {
        state.counters.reset_global(Self::at_reset(*state.caps));
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        global_bits::of(state.counters.global())
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, global_bits::mask(*state.caps))?;
        state.counters.set_global(global_bits::counters(value));
        Ok(())
    }
}
