//! The vCPU loop's own accounts.

use arch_pmu::Vpmu;
use arch_pmu::msr::MsrStats;
use counts::Counts;
use guest::phases::Phases;
use hdrhistogram::Histogram;
use host_pmu::side::HostPmu;
use host_pmu::stats::ns_histogram;

use super::tsc::TickClock;
use crate::outcome::Account;

/// Counts and times of one vCPU's loop.
#[derive(Debug)]
pub(super) struct LoopStats {
    pub(super) clock: TickClock,
    pub(super) counts: Counts,
    pub(super) msr: MsrStats,
    pub(super) phases: Phases,
    pub(super) deliveries: Vec<u64>,
    pub(super) exit_path_ns: Histogram<u64>,
}

impl LoopStats {
    /// Creates accounts for a TSC of `tsc_khz`, with room for the times of so many deliveries.
    pub(super) fn new(tsc_khz: u64, deliveries: usize) -> Self {
        Self {
            clock: TickClock::new(tsc_khz),
            counts: Counts::default(),
            msr: MsrStats::default(),
            phases: Phases::default(),
            deliveries: Vec::with_capacity(deliveries),
            exit_path_ns: ns_histogram(),
        }
    }

    /// Takes the account of the loop and of `pmu`, with its host side's, and begins anew. Histogram and deliveries are
    /// copied, so that the loop goes on in memory that is touched already.
    pub(super) fn take<H: HostPmu>(&mut self, pmu: &mut Vpmu<H>) -> Account {
        let mut counts = std::mem::take(&mut self.counts);
        counts.merge(&std::mem::take(pmu.counts()));
        let account = Account {
            msr_exits: std::mem::take(&mut self.msr).exits(),
            phases: std::mem::take(&mut self.phases).finish(pmu.host().ops()),
            deliveries: self.deliveries.clone(),
            exit_path_ns: self.exit_path_ns.clone(),
            host: pmu.host().account(&mut counts),
            turned_on: pmu.turned_on(),
            counts,
        };
        self.deliveries.clear();
        self.exit_path_ns.reset();
        account
    }

    /// Counts an MSR access that exited.
    #[inline]
    pub(super) fn count_msr(&mut self, msr: u32, write: bool, fault: bool) {
        self.msr.count(msr, write, fault);
        self.phases.exits(u64::from(!write), u64::from(write));
    }
}
