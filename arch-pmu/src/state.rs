//! The state of one vCPU's PMU: the counting core, and the registers that are more than views of it.

use crate::caps::PmuCaps;
use crate::counters::Counters;
use crate::filter::EventFilter;
use crate::host::HostCounters;
use crate::spec::MAX_GP;

/// Register values as the guest wrote them. [`crate::msr`] gives them their layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) perfevtsel: [u64; MAX_GP],
    pub(crate) fixed_ctr_ctrl: u64,
    /// Bits of GLOBAL_STATUS beside the counters' and CTR_FRZ.
    pub(crate) status: u64,
    pub(crate) debugctl: u64,
    pub(crate) misc_enable: u64,
    pub(crate) ds_area: u64,
}

/// A PMU, with `H` behind its counters.
#[derive(Debug)]
pub(crate) struct State<H> {
    pub(crate) caps: PmuCaps,
    pub(crate) filter: EventFilter,
    pub(crate) counters: Counters<H>,
    pub(crate) registers: Registers,
}

impl<H: HostCounters> State<H> {
    /// All registers 0: the reset values are [`crate::msr`]'s.
    pub(crate) fn new(caps: PmuCaps, host: H) -> Self {
        let counters = Counters::new(host, caps.counters(), caps.counter_mask());
        Self { caps, filter: EventFilter::default(), counters, registers: Registers::default() }
    }
}
