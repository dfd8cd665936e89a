//! The host side of a vCPU, as a VMM or a simulator sees it.

use arch_pmu::HostCounters;
use counts::Counts;

use crate::backend::step::StepCounts;
use crate::stats::{HostSide, OpKind};

/// A host side with its accounts, beyond the interface that the PMU needs.
pub trait HostPmu: HostCounters {
    /// Starts the work that serves only open host events: called after the guest's first exit.
    fn attend(&mut self) {}

    /// Returns whether an entry has nothing to do here; it is counted then. `false` may be said of any entry, which has its
    /// [`on_entry`](HostCounters::on_entry). Asked where the PMU has nothing to do either.
    #[inline]
    fn passes_entry(&mut self) -> bool {
        false
    }

    /// Returns the number of host events held now.
    fn held(&self) -> u64;

    /// Adds to `counts` what the host side counted since the account began, and returns its operations. Signals and
    /// kicks are counted by the vCPU loop.
    fn account(&mut self, counts: &mut Counts) -> HostSide;

    /// Begins a new account, which contains only later operations. Ends a [rest](Self::rest), if there is one.
    fn restart_account(&mut self);

    /// Notes that the VMM, kicked, looked for overflows `since_return` ns after KVM_RUN's return: for the latency of their signals.
    fn saw_signals(&mut self, _since_return: u64) {}

    /// Returns whether records prove that no counter overflowed, so that the signal was another user's: records are
    /// complete, and name none.
    fn nothing_overflowed(&mut self) -> bool {
        false
    }

    /// Rests the vCPU, its counters off, until the next account begins: nothing may signal its thread, and its switch is no
    /// sched slice of the guest's.
    fn rest(&mut self) {}

    /// Returns the [totals](crate::stats::OpStats::totals) of the account's host operations.
    fn ops(&self) -> ([u64; OpKind::ALL.len()], u64) {
        <_>::default()
    }

    /// Returns whether the thread was switched in, and whether it slept, since a trace last asked; `None` where that is not known.
    fn slices(&mut self) -> Option<(bool, bool)> {
        None
    }

    /// Returns the counts to advance by each retired instruction; `None` if the host side counts by itself.
    fn stepper(&mut self) -> Option<&mut StepCounts> {
        None
    }
}
