//! The PMU of one vCPU.
//!
//! The order of one guest entry is KVM's: counters that must be reprogrammed ([`Vpmu::enter`]), then the PMI
//! ([`Vpmu::take_pmi`]).

use crate::caps::PmuCaps;
use counts::Counts;

use crate::counters::Counters;
use crate::filter::EventFilter;
use crate::host::HostCounters;
use crate::register::GeneralProtection;
use crate::register_file::RegisterFile;

/// The PMU of one vCPU, with `H` behind its counters.
#[derive(Debug)]
pub struct Vpmu<H> {
    counters: Counters<H>,
    filter: EventFilter,
    registers: RegisterFile,
}

impl<H: HostCounters> Vpmu<H> {
    /// Creates a PMU at RESET.
    pub fn new(caps: impl Into<PmuCaps>, host: H) -> Self {
        let mut registers = RegisterFile::new(caps.into());
        let caps = registers.caps();
        let mut counters = Counters::new(host, caps.counters(), caps.counter_mask());
        let filter = EventFilter::default();
        registers.reset(&mut counters, &filter);
        Self { counters, filter, registers }
    }

    /// Handles RESET: stops every counter and sets the registers to their reset values. No PMI from before outlives it.
    pub fn reset(&mut self) {
        self.counters.reset();
        self.registers.reset(&mut self.counters, &self.filter);
    }

    /// Sets the event filter. It applies to running counters from the next entry on. A denied counter keeps its registers, as
    /// in KVM, and a RESET keeps the filter.
    pub fn set_filter(&mut self, filter: EventFilter) {
        self.counters.sync_all();
        self.filter = filter;
        self.registers.filter_changed(&mut self.counters, &self.filter);
        self.counters.reprogram_all_at_entry();
    }

    /// Returns the guest's PMU.
    pub fn caps(&self) -> PmuCaps {
        self.registers.caps()
    }

    /// Returns the host side of the counters.
    pub fn host(&mut self) -> &mut H {
        self.counters.host()
    }

    /// Gives back the host side of the counters.
    pub fn into_host(self) -> H {
        self.counters.into_host()
    }

    /// Returns whether an overflow awaits its PMI.
    pub fn pmi_requested(&self) -> bool {
        self.counters.pmi_requested()
    }

    /// Returns the counts of its overflows, which the caller may take.
    pub const fn counts(&mut self) -> &mut Counts {
        self.counters.counts()
    }

    /// Handles the guest's read of MSR `index`.
    ///
    /// # Errors
    /// #GP if the guest has no such register.
    pub fn rdmsr(&mut self, index: u32) -> Result<u64, GeneralProtection> {
        self.registers.read(&mut self.counters, &self.filter, index)
    }

    /// Handles the guest's write of MSR `index`.
    ///
    /// # Errors
    /// #GP if the guest has no such register, or it does not take `value`.
    pub fn wrmsr(&mut self, index: u32, value: u64) -> Result<(), GeneralProtection> {
        self.registers.write(&mut self.counters, &self.filter, index, value)
    }

    /// Handles RDPMC with `ecx`: returns the counter's value in its full width.
    ///
    /// # Errors
    /// #GP for a counter or counter type that this PMU does not have. Privilege (CPL, CR4.PCE) is the caller's matter.
    pub fn rdpmc(&mut self, ecx: u32) -> Result<u64, GeneralProtection> {
        let counter = self.registers.rdpmc(ecx).filter(|&counter| self.counters.existing().contains(counter));
        Ok(self.counters.read(counter.ok_or(GeneralProtection)?))
    }

    /// Looks, after a signal that a host event overflowed, at the counters behind it, and returns how many overflowed.
    pub fn kick(&mut self) -> u32 {
        self.counters.kick()
    }

    /// Does everything due before the guest is entered: failed starts, counters to reprogram, release by the strategy.
    pub fn enter(&mut self) {
        self.counters.enter();
    }

    /// Returns whether [`enter`](Self::enter) and [`take_pmi`](Self::take_pmi) have nothing to do beyond the host side's own work at each
    /// entry.
    #[inline]
    pub const fn is_quiet(&self) -> bool {
        self.counters.is_quiet()
    }

    /// Returns whether a PMI is due; the caller delivers it. With freeze-on-PMI the counters stop here.
    pub fn take_pmi(&mut self) -> bool {
        let due = self.counters.take_pmi();
        if due {
            self.registers.freeze_on_pmi(&mut self.counters, &self.filter);
        }
        due
    }

    /// Returns whether STATUS has an overflow that asked for a PMI: a handler that starts now finds it.
    pub fn pmi_unacknowledged(&self) -> bool {
        self.counters.pmi_unacknowledged()
    }

    /// Returns how often the guest turned a counter's own enable on. A PMI's handler does not.
    pub fn turned_on(&self) -> u64 {
        self.counters.turned_on()
    }

    /// Returns whether the guest has all counters off by their global enables, and turns them on again by a write of them. A PMI that
    /// freezes the counters may have turned them off instead.
    pub fn guest_has_all_off(&self) -> bool {
        self.counters.global().is_empty() && !self.registers.freezes_on_pmi()
    }

    /// Reprograms counters because the PMI that was taken starts no handler yet: LVTPC is masked, or has no NMI.
    pub fn pmi_not_handled(&mut self) {
        self.counters.pmi_not_handled();
    }
}

#[cfg(test)]
mod amd_tests;
#[cfg(test)]
mod tests;
