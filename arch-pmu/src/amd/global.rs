//! PerfCntrGlobalCtl and PerfCntrGlobalStatus with its Set and Clr: PerfMonV2 (APM vol. 2, 13.2.3; PPR). Bit n is
//! counter n. Reserved bits are ignored, and so is a write of the status itself.

use super::caps::AmdCaps;
use super::registers::{Amd, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};
use crate::spec::CounterSet;

/// Returns the counters of `bits`; other bits are of no counter.
fn counters(caps: AmdCaps, bits: u64) -> CounterSet {
    CounterSet::from_bits((bits & 0xff) as u16).and(caps.set())
}

/// PerfCntrGlobalCtl; a view of the counting core's global enables. All are on at RESET (PPR; de120e1d692d). Without the
/// register a counter has nothing but its own enable.
#[derive(Debug)]
pub(super) struct GlobalCtl;

impl Register<Amd> for GlobalCtl {
    fn exists(caps: AmdCaps, _n: usize) -> bool {
        caps.perfmon_v2
    }

    fn reset<H: HostCounters>(state: &mut State<'_, H>) {
        state.counters.reset_global(state.caps.set());
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        state.counters.global().bits().into()
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        state.counters.set_global(counters(*state.caps, value));
        Ok(())
    }
}

/// PerfCntrGlobalStatus; read-only, a view of the counting core's overflows.
#[derive(Debug)]
pub(super) struct GlobalStatus;

impl Register<Amd> for GlobalStatus {
    fn exists(caps: AmdCaps, _n: usize) -> bool {
        caps.perfmon_v2
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        state.counters.overflowed().bits().into()
    }

    fn write<H: HostCounters>(_state: &mut State<'_, H>, _n: usize, _value: u64) -> Result<(), GeneralProtection> {
        Ok(())
    }
}

/// PerfCntrGlobalStatusClr clears bits of the status; it reads as 0.
#[derive(Debug)]
pub(super) struct GlobalStatusClr;

impl Register<Amd> for GlobalStatusClr {
    fn exists(caps: AmdCaps, _n: usize) -> bool {
        caps.perfmon_v2
    }

    fn read<H: HostCounters>(_state: &mut State<'_, H>, _n: usize) -> u64 {
        0
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        let left = state.counters.overflowed().and(counters(*state.caps, value).complement());
        state.counters.set_overflowed(left);
        Ok(())
    }
}

/// PerfCntrGlobalStatusSet sets bits of the status, without a PMI; it reads as 0.
#[derive(Debug)]
pub(super) struct GlobalStatusSet;

impl Register<Amd> for GlobalStatusSet {
    fn exists(caps: AmdCaps, _n: usize) -> bool {
        caps.perfmon_v2
    }

    fn read<H: HostCounters>(_state: &mut State<'_, H>, _n: usize) -> u64 {
        0
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        let mut overflowed = state.counters.overflowed();
        overflowed.extend(counters(*state.caps, value));
        state.counters.set_overflowed(overflowed);
        Ok(())
    }
}
