//! IA32_PERF_GLOBAL_INUSE: which counters are in use (SDM vol. 3, 21.2.4).

use super::caps::IntelCaps;
use super::fixed_ctr_ctrl::FixedControl;
use super::perfevtsel::PerfEvtSel;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};

/// PMI_INUSE: some counter has its interrupt enable on.
const PMI: u64 = 1 << 63;

/// IA32_PERF_GLOBAL_INUSE, since version 4; read-only. A counter is in use if its event select, or the enable in its nibble,
/// is not 0.
#[derive(Debug)]
pub(super) struct GlobalInUse;

impl Register<Intel> for GlobalInUse {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.version >= 4
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        let mut bits = 0;
        for n in 0..usize::from(state.caps.gp) {
            let selector = PerfEvtSel::from_bits(state.registers.perfevtsel[n]);
            bits |= u64::from(selector.event() != 0) << n;
            bits |= if selector.int() { PMI } else { 0 };
        }
        for n in 0..usize::from(state.caps.fixed) {
            let control = FixedControl::of(state.registers.fixed_ctr_ctrl, n);
            bits |= u64::from(control.enabled()) << (32 + n);
            bits |= if control.pmi() { PMI } else { 0 };
        }
        bits
    }

    fn write<H: HostCounters>(_state: &mut State<'_, H>, _n: usize, _value: u64) -> Result<(), GeneralProtection> {
        Err(GeneralProtection)
    }
}
