//! Results of a vCPU, whatever its guest.

use arch_pmu::msr::MsrExits;
use arch_pmu::pmi::PmiStats;
use guest::abi::PHASES;
use hdrhistogram::Histogram;
use host_pmu::stats::{HostSide, PhaseTally};

use crate::kvm::HeldBack;
use crate::kvm::stats::Account;
use crate::outcome::End;

/// Counts of the single-stepper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Instructions that retired while a counter ran.
    pub instructions: u64,
    /// Events that were opened and that steps do not show, such as cycles: they count nothing.
    pub unsupported: u64,
}

/// One vCPU's part of a run, or of a turn.
#[derive(Clone, Debug)]
pub struct VcpuRun<L> {
    /// Why it ended.
    pub end: End,
    /// Results of this kind of guest alone.
    pub left: L,
    /// Host TSC at which each NMI's overflow was seen, in the order of delivery.
    pub deliveries: Vec<u64>,
    /// PMIs.
    pub pmi: PmiStats,
    /// MSR exits of the PMU, one line per MSR that exited at all.
    pub msr_exits: Vec<MsrExits>,
    /// Rewritten RDPMCs that were answered.
    pub rdpmcs: u64,
    /// RDMSRs with an index of RDPMC that were #GP, as they were at no rewritten site: a rewritten RDPMC that was copied.
    pub rdpmcs_elsewhere: u64,
    /// Nanoseconds from KVM_RUN's return at an MSR exit to the next KVM_RUN.
    pub exit_path_ns: Histogram<u64>,
    /// Host events.
    pub host: HostSide,
    /// The account of single-stepping; `None` unless the backend is `step`.
    pub steps: Option<Steps>,
    /// Exits and host operations by the guest's phase.
    pub phases: [PhaseTally; PHASES],
    /// Time of accesses to the PMU's registers that the guest did not see; `None` unless they have a modelled cost.
    pub held_back: Option<HeldBack>,
    /// Time of the throughput probe before the turn; `None` outside of turns.
    pub probe_ns: Option<u64>,
}

impl<L> VcpuRun<L> {
    /// Builds the results from an account.
    pub(super) fn new(end: End, left: L, account: Account, steps: Option<Steps>, probe_ns: Option<u64>) -> Self {
        let Account { rdpmcs, rdpmcs_elsewhere, pmi, msr_exits, deliveries, exit_path_ns, host, phases, held_back } =
            account;
        Self {
            end,
            left,
            deliveries,
            pmi,
            msr_exits,
            rdpmcs,
            rdpmcs_elsewhere,
            exit_path_ns,
            host,
            steps,
            phases,
            held_back,
            probe_ns,
        }
    }
}
