//! The vCPU loop's own accounts.

use arch_pmu::exits::MsrStats;
use arch_pmu::pmi::PmiStats;
use guest::abi::PHASES;
use hdrhistogram::Histogram;
use host_pmu::stats::{Phases, ns_histogram};

use super::tsc::TickClock;

/// Counts and times of one vCPU's loop.
#[derive(Debug)]
pub(super) struct LoopStats {
    pub(super) clock: TickClock,
    pub(super) pmi: PmiStats,
    pub(super) msr: MsrStats,
    pub(super) phases: Phases<PHASES>,
    pub(super) deliveries: Vec<u64>,
    pub(super) exit_path_ns: Histogram<u64>,
    pub(super) empty_kicks: u64,
}

impl LoopStats {
    /// For a TSC of `tsc_khz`, with room for the times of so many deliveries.
    pub(super) fn new(tsc_khz: u64, deliveries: usize) -> Self {
        Self {
            clock: TickClock::new(tsc_khz),
            pmi: PmiStats::default(),
            msr: MsrStats::default(),
            phases: Phases::default(),
            deliveries: Vec::with_capacity(deliveries),
            exit_path_ns: ns_histogram(),
            empty_kicks: 0,
        }
    }

    /// An MSR access exited.
    #[inline]
    pub(super) fn count_msr(&mut self, msr: u32, write: bool, fault: bool) {
        self.msr.count(msr, write, fault);
        self.phases.exit(write);
    }
}
