//! The vCPU loop's own accounts.

use arch_pmu::msr::{MsrExits, MsrStats};
use arch_pmu::pmi::PmiStats;
use guest::abi::PHASES;
use hdrhistogram::Histogram;
use host_pmu::stats::{HostSide, OpStats, PhaseTally, Phases, ns_histogram};

use super::register_cost::HeldBack;
use super::tsc::TickClock;
use crate::sample::ReturnKind;

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
    /// Host TSC at which the vPMU had done the last access.
    #[cfg(feature = "exit-points")]
    pub(super) accessed_at: u64,
    /// Exits beside those of MSRs, in the order of [`ReturnKind::ALL`], MSRs left 0.
    pub(super) others: [u64; ReturnKind::ALL.len()],
}

/// Contents of a loop's accounts.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) pmi: PmiStats,
    pub(super) msr_exits: Vec<MsrExits>,
    pub(super) phases: [PhaseTally; PHASES],
    pub(super) deliveries: Vec<u64>,
    pub(super) exit_path_ns: Histogram<u64>,
    pub(super) empty_kicks: u64,
}

/// Counts of a vCPU's loop and its host side in a turn, or in a run without turns.
#[derive(Debug)]
pub(crate) struct Account {
    /// RDPMCs of an image that were answered.
    pub(crate) rdpmcs: u64,
    /// RDPMCs that were #GP because they were at no rewritten site.
    pub(crate) rdpmcs_elsewhere: u64,
    pub(crate) pmi: PmiStats,
    pub(crate) msr_exits: Vec<MsrExits>,
    pub(crate) deliveries: Vec<u64>,
    pub(crate) exit_path_ns: Histogram<u64>,
    pub(crate) host: HostSide,
    pub(crate) phases: [PhaseTally; PHASES],
    /// Time of accesses to the PMU's registers that the guest did not see; `None` unless they have a modelled cost.
    pub(crate) held_back: Option<HeldBack>,
}

impl LoopStats {
    /// Creates accounts for a TSC of `tsc_khz`, with room for the times of so many deliveries.
    pub(super) fn new(tsc_khz: u64, deliveries: usize) -> Self {
        Self {
            clock: TickClock::new(tsc_khz),
            pmi: PmiStats::default(),
            msr: MsrStats::default(),
            phases: Phases::default(),
            deliveries: Vec::with_capacity(deliveries),
            exit_path_ns: ns_histogram(),
            empty_kicks: 0,
            #[cfg(feature = "exit-points")]
            accessed_at: 0,
            others: Default::default(),
        }
    }

    /// Returns the exits since the account began, in the order of [`ReturnKind::ALL`].
    pub(super) fn exits(&self) -> [u64; ReturnKind::ALL.len()] {
        let (reads, writes) = self.phases.exits();
        let mut exits = self.others;
        exits[ReturnKind::MsrRead as usize] = reads;
        exits[ReturnKind::MsrWrite as usize] = writes;
        exits
    }

    /// Takes all of it, and begins anew. `ops` are the host operations so far. Histogram and deliveries are copied, so that the loop goes
    /// on in memory that is touched already.
    pub(super) fn take(&mut self, ops: Option<&OpStats>) -> Taken {
        let taken = Taken {
            pmi: std::mem::take(&mut self.pmi),
            msr_exits: std::mem::take(&mut self.msr).exits(),
            phases: std::mem::take(&mut self.phases).finish(ops),
            deliveries: self.deliveries.clone(),
            exit_path_ns: self.exit_path_ns.clone(),
            empty_kicks: std::mem::take(&mut self.empty_kicks),
        };
        self.others = Default::default();
        self.deliveries.clear();
        self.exit_path_ns.reset();
        taken
    }

    /// Counts an MSR access that exited.
    #[inline]
    pub(super) fn count_msr(&mut self, msr: u32, write: bool, fault: bool) {
        #[cfg(feature = "exit-points")]
        {
            self.accessed_at = crate::sys::rdtsc();
        }
        self.msr.count(msr, write, fault);
        self.phases.exit(write);
    }

    /// Counts an exit of another kind.
    #[inline]
    pub(super) const fn count_other(&mut self, kind: ReturnKind) {
        self.others[kind as usize] += 1;
    }
}
