//! The PMU of one vCPU.
//!
//! The order of one guest entry is KVM's: counters that must be reprogrammed ([`Vpmu::enter`]), then the PMI
//! ([`Vpmu::take_pmi`]).

use crate::caps::PmuCaps;
use crate::counters::VpmuStats;
use crate::filter::EventFilter;
use crate::host::HostCounters;
use crate::msr::{self, GeneralProtection};
use crate::rdpmc;
use crate::state::{Registers, State};

/// The PMU of one vCPU, with `H` behind its counters.
#[derive(Debug)]
pub struct Vpmu<H> {
    state: State<H>,
}

impl<H: HostCounters> Vpmu<H> {
    /// A PMU at RESET.
    pub fn new(caps: PmuCaps, host: H) -> Self {
        let mut state = State::new(caps.bounded(), host);
        msr::reset(&mut state);
        Self { state }
    }

    /// RESET: stops every counter and sets the registers to their reset values. No PMI from before outlives it.
    pub fn reset(&mut self) {
        self.state.counters.reset();
        self.state.registers = Registers::default();
        msr::reset(&mut self.state);
    }

    /// Sets the event filter. It applies to running counters from the next entry on. A denied counter keeps its registers, as
    /// in KVM, and a RESET keeps the filter.
    pub fn set_filter(&mut self, filter: EventFilter) {
        self.state.counters.sync_all();
        self.state.filter = filter;
        msr::filter_changed(&mut self.state);
        self.state.counters.reprogram_all_at_entry();
    }

    /// The guest's PMU.
    pub fn caps(&self) -> &PmuCaps {
        &self.state.caps
    }

    /// The host side of the counters.
    pub fn host(&mut self) -> &mut H {
        self.state.counters.host()
    }

    /// Gives back the host side of the counters.
    pub fn into_host(self) -> H {
        self.state.counters.into_host()
    }

    /// Whether an overflow awaits its PMI.
    pub fn pmi_requested(&self) -> bool {
        self.state.counters.pmi_requested()
    }

    /// Overflows so far.
    pub fn stats(&self) -> VpmuStats {
        self.state.counters.stats()
    }

    /// The guest reads MSR `index`.
    ///
    /// # Errors
    /// #GP if the guest has no such register.
    pub fn rdmsr(&mut self, index: u32) -> Result<u64, GeneralProtection> {
        msr::read(&mut self.state, index)
    }

    /// The guest writes MSR `index`.
    ///
    /// # Errors
    /// #GP if the guest has no such register, or it does not take `value`.
    pub fn wrmsr(&mut self, index: u32, value: u64) -> Result<(), GeneralProtection> {
        msr::write(&mut self.state, index, value)
    }

    /// RDPMC with `ecx`: the counter's value in its full width.
    ///
    /// # Errors
    /// #GP for a counter or counter type that this PMU does not have. Privilege (CPL, CR4.PCE) is the caller's matter.
    pub fn rdpmc(&mut self, ecx: u32) -> Result<u64, GeneralProtection> {
        let counter = rdpmc::counter(ecx).filter(|&counter| self.state.counters.existing().contains(counter));
        Ok(self.state.counters.read(counter.ok_or(GeneralProtection)?))
    }

    /// A signal said that a host event overflowed: looks at the counters behind it, and returns how many overflowed.
    pub fn kick(&mut self) -> u32 {
        self.state.counters.kick()
    }

    /// Everything due before the guest is entered: failed starts, counters to reprogram, release by the strategy.
    pub fn enter(&mut self) {
        self.state.counters.enter();
    }

    /// Whether a PMI is due; the caller delivers it. With freeze-on-PMI the counters stop here.
    pub fn take_pmi(&mut self) -> bool {
        let due = self.state.counters.take_pmi();
        if due {
            msr::freeze_on_pmi(&mut self.state);
        }
        due
    }

    /// Whether STATUS has an overflow that asked for a PMI: a handler that starts now finds it.
    pub fn pmi_unacknowledged(&self) -> bool {
        self.state.counters.pmi_unacknowledged()
    }

    /// How often the guest turned a counter's own enable on. A PMI's handler does not.
    pub fn turned_on(&self) -> u64 {
        self.state.counters.turned_on()
    }

    /// Whether the guest has all counters off by their global enables, and turns them on again by a write of them. A PMI that freezes
    /// the counters may have turned them off instead.
    pub fn guest_has_all_off(&self) -> bool {
        self.state.counters.global().is_empty() && !msr::freezes_on_pmi(&self.state)
    }

    /// The PMI that was taken starts no handler yet: LVTPC is masked, or has no NMI.
    pub fn pmi_not_handled(&mut self) {
        self.state.counters.pmi_not_handled();
    }
}

#[cfg(test)]
mod tests;
