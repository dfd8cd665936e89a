//! A modelled cost of the guest's PMU registers: the guest's TSC is held back while the VMM serves an access.
//!
//! An access that exits costs the guest the way out of it, the VMM's work and the way back in. A guest that is a host itself has a driver that
//! touches the PMU's registers as if each were a processor's, so that its figures would be those of the exits. Here the guest's TSC loses what an access
//! took, less what it shall cost (`KVM_VCPU_TSC_OFFSET`, Linux 5.16, 828ca89628bf). Events of the host that stand behind the counters go on counting.

use std::io;

use kvm_ioctls::VcpuFd;

use crate::sys;

/// Of the least time that KVM_RUN took, which has the ways in and out and what the guest did in between, this part is held back; more could
/// move the guest's TSC back.
const SIXTEENTHS: u64 = 15;

/// What was held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Accesses that took longer than they shall cost.
    pub accesses: u64,
    /// Their time that the guest did not see, ns.
    pub ns: u64,
}

/// The guest's TSC, and what an access to one of its PMU's registers shall cost. Times are TSC ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterCost {
    wanted: u64,
    /// KVM's offset of the guest's TSC.
    offset: u64,
    entered_at: u64,
    /// The least time of a KVM_RUN that ended at an access.
    least_run: Option<u64>,
    /// Time that setting the offset took and that no access has paid yet.
    owed: u64,
    accesses: u64,
    held: u64,
}

impl RegisterCost {
    /// An access shall cost `wanted` ticks.
    ///
    /// # Errors
    /// KVM's, if it cannot shift the TSC of a vCPU.
    pub(crate) fn new(fd: &VcpuFd, wanted: u64) -> io::Result<Self> {
        let offset = sys::tsc_offset(fd)?;
        sys::set_tsc_offset(fd, offset)?;
        Ok(Self::with_offset(offset, wanted))
    }

    const fn with_offset(offset: u64, wanted: u64) -> Self {
        Self { wanted, offset, entered_at: 0, least_run: None, owed: 0, accesses: 0, held: 0 }
    }

    /// KVM_RUN begins.
    pub(super) const fn enters(&mut self, now: u64) {
        self.entered_at = now;
    }

    /// The guest goes on after an access for which KVM_RUN returned at `returned_at`.
    #[cold]
    pub(super) fn goes_on(&mut self, fd: &VcpuFd, returned_at: u64) {
        let now = sys::rdtsc();
        // KVM took one before the vCPU's first entry; this one asks for nothing more.
        if self.account(returned_at, now) && sys::set_tsc_offset(fd, self.offset).is_ok() {
            self.owed = sys::rdtsc().saturating_sub(now);
        }
    }

    /// Takes the time of an access from the offset. Returns whether it has changed.
    fn account(&mut self, returned_at: u64, now: u64) -> bool {
        let run = returned_at.saturating_sub(self.entered_at);
        let least = self.least_run.map_or(run, |least| least.min(run));
        self.least_run = Some(least);
        let took = now.saturating_sub(returned_at) + least / 16 * SIXTEENTHS + std::mem::take(&mut self.owed);
        let held = took.saturating_sub(self.wanted);
        if held == 0 {
            return false;
        }
        self.offset = self.offset.wrapping_sub(held);
        (self.accesses, self.held) = (self.accesses + 1, self.held + held);
        true
    }

    /// What was held back so far, by a clock of the TSC.
    pub(super) fn held_back(&self, ns: impl Fn(u64) -> u64) -> HeldBack {
        HeldBack { accesses: self.accesses, ns: ns(self.held) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_costs_what_it_shall() {
        let mut cost = RegisterCost::with_offset(1_000_000, 100);
        cost.enters(5000);
        // The run took 1600 ticks, the VMM 400.
        assert!(cost.account(6600, 7000));
        assert_eq!(cost.offset, 1_000_000 - (400 + 1500 - 100));
        // A longer run is the guest's own time; what setting the offset took is owed.
        cost.owed = 50;
        cost.enters(7000);
        assert!(cost.account(20_000, 20_400));
        assert_eq!(cost.held_back(|ticks| ticks / 2), HeldBack { accesses: 2, ns: 3650 / 2 });
        assert_eq!(cost.owed, 0);
    }

    #[test]
    fn time_is_never_given() {
        let mut cost = RegisterCost::with_offset(7, 1_000_000);
        cost.enters(10);
        assert!(!cost.account(20, 30));
        assert_eq!((cost.offset, cost.held_back(|ticks| ticks)), (7, HeldBack::default()));
        let mut cost = RegisterCost::with_offset(0, 0);
        cost.enters(0);
        assert!(cost.account(16, 17));
        assert_eq!(cost.offset, 0_u64.wrapping_sub(16), "offsets wrap as the TSC does");
        // A TSC that jumped back takes nothing.
        cost.enters(100);
        assert!(!cost.account(90, 80));
    }
}
