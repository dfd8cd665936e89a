//! The results of one run of a guest.

use std::time::{Duration, Instant};

use guest::abi::{LogEntry, PHASES, Report};
use hdrhistogram::Histogram;
use thiserror::Error;

pub use arch_pmu::msr::MsrExits;
pub use counts::Counts;
pub use guest::phases::PhaseTally;
pub use host_pmu::stats::HostSide;

/// Why a run, or one of its vCPUs, ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum End {
    /// The guest said it is done.
    #[error("done")]
    Done,
    /// An image ended its run through the debug-exit port.
    #[error("the guest ended with status {status} (code {})", .status >> 1)]
    GuestExit {
        /// The run's status: `code << 1 | 1`.
        status: u32,
    },
    /// The guest asked for a reset.
    #[error("the guest asked for a reset")]
    Reset,
    /// The guest switched itself off.
    #[error("the guest switched itself off")]
    PowerOff,
    /// The guest's kernel panicked, for this reason.
    #[error("the guest's kernel panicked: {0}")]
    Panic(String),
    /// An exception for which the guest has no handler of its own.
    #[error("the guest met exception {vector} (error {error:#x}) at {rip:#x}, CR2 {cr2:#x}")]
    GuestFault {
        /// Exception vector.
        vector: u64,
        /// Error code.
        error: u64,
        /// Instruction pointer.
        rip: u64,
        /// CR2.
        cr2: u64,
    },
    /// Triple fault or shutdown.
    #[error("the guest triple-faulted")]
    TripleFault,
    /// The guest touched memory or a device it does not have.
    #[error("the guest {} {address:#x}, which is neither memory nor a device it has", if *write { "wrote to" } else { "read from" })]
    UnassignedAccess {
        /// Guest-physical address.
        address: u64,
        /// It was a write.
        write: bool,
    },
    /// KVM could not go on: its suberror and the instruction bytes it gave, if any.
    #[error("KVM internal error, suberror {suberror}, instruction bytes {instruction:02x?}")]
    InternalError {
        /// `kvm_run.internal.suberror`.
        suberror: u32,
        /// Instruction bytes.
        instruction: Vec<u8>,
    },
    /// KVM could not enter the guest, with this `hardware_entry_failure_reason`.
    #[error("KVM could not enter the guest, hardware reason {0:#x}")]
    EntryFailed(u64),
    /// An exit this VMM does not handle.
    #[error("unhandled KVM exit {0}")]
    UnknownExit(String),
    /// The time limit of the run passed.
    #[error("the time limit passed")]
    TimedOut,
    /// Its turn is over, and the next one has not begun. Never the end of a run.
    #[error("its turn is over")]
    TurnOver,
    /// The user interrupted the run, or another vCPU ended it.
    #[error("stopped")]
    Stopped,
    /// The host side failed, with the reason.
    #[error("{0}")]
    Host(String),
}

impl End {
    /// Returns whether the measurement is whole.
    pub const fn is_complete(&self) -> bool {
        matches!(self, Self::Done)
    }
}

/// Map of the guest's TSC to the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TscMap {
    /// The vCPU's TSC frequency.
    pub khz: u64,
    /// Guest TSC − host TSC.
    pub offset: i64,
    /// The offset is right to ± this many ticks.
    pub uncertainty: u64,
}

/// Counts of the single-stepper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Instructions that retired while a counter ran.
    pub instructions: u64,
    /// Events that were opened and that steps do not show, such as cycles: they count nothing.
    pub unsupported: u64,
}

/// Counts and times of a vCPU's loop and its host side in a turn, or in a run without turns.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its counts, but those of the guest's report.
    pub counts: Counts,
    /// Operations of the host side.
    pub host: HostSide,
    /// MSR exits of the PMU, one line per MSR that exited at all.
    pub msr_exits: Vec<MsrExits>,
    /// Host TSC at which each NMI's overflow was seen, in the order of delivery.
    pub deliveries: Vec<u64>,
    /// Nanoseconds from KVM_RUN's return at an MSR exit to the next KVM_RUN.
    pub exit_path_ns: Histogram<u64>,
    /// Exits and host operations of the phases of its set-ups, by `PHASE_*`; all in the first if it made none.
    pub phases: [PhaseTally; PHASES],
    /// Own enables of counters that the guest turned on since its start.
    pub turned_on: u64,
}

/// Results of a payload's vCPU, from guest memory and its doorbell.
#[derive(Clone, Debug, Default)]
pub struct PayloadLeft {
    /// When the payload's first instruction had run; `None` in a simulation.
    pub booted: Option<Instant>,
    /// The guest's report in guest memory; `None` if the guest never wrote its magic.
    pub report: Option<Box<Report>>,
    /// The guest's log, bounded by its capacity.
    pub log: Vec<LogEntry>,
    /// TSC mapping.
    pub tsc: TscMap,
    /// Sum of host events held at each tail tick: the last one is what lazy release left.
    pub held_at_tail_tick: Vec<u64>,
}

/// One vCPU's part of a run, or of a turn. `L`: results of this kind of guest alone.
#[derive(Clone, Debug)]
pub struct VcpuOutcome<L = PayloadLeft> {
    /// Why it ended.
    pub end: End,
    /// Results of this kind of guest alone.
    pub left: L,
    /// Its counts and times.
    pub account: Account,
    /// The account of single-stepping; `None` unless the backend is `step`.
    pub steps: Option<Steps>,
}

/// One run of a guest.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The first vCPU's reason that is not "done" or "stopped", else "stopped" if any, else "done".
    pub end: End,
    /// One per vCPU.
    pub vcpus: Vec<VcpuOutcome>,
    /// From creating the VM to the last vCPU's end.
    pub wall: Duration,
    /// From creating the VM to the first guest instruction.
    pub start: Duration,
}
