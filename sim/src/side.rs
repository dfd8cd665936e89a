//! What a simulated vCPU asks of whatever is behind its counters, and what it leaves at the end.

use arch_pmu::msr::MsrExits;
use counts::Counts;
use guest::abi::PHASES;
use guest::phases::PhaseTally;
use host_pmu::side::HostPmu;
use host_pmu::stats::{HostSide, Recorder};

use crate::clock::Clock;

/// Result of a vCPU, without the guest's report.
#[derive(Clone, Debug)]
pub struct VcpuSide {
    /// Its counts, but those of the guest's report.
    pub counts: Counts,
    /// MSR exits by register.
    pub msrs: Vec<MsrExits>,
    /// Time of the phases of set-ups.
    pub phases: [PhaseTally; PHASES],
    /// Time from an MSR exit to the entry after it.
    pub exit_path_ns: Recorder,
    /// Operations of the host side.
    pub host: HostSide,
}

/// Implementation behind the counters of a simulated vCPU.
///
/// The methods with a body are for a guest that owns its PMU; with any other, every access exits, and leaving the guest
/// costs no more than the exit.
pub trait SimHost: HostPmu {
    /// Returns the thread's clock.
    fn clock(&mut self) -> &mut Clock;

    /// Yields the CPU if the slice is over.
    fn preempt_if_due(&mut self) {
        self.clock().preempt_if_due();
    }

    /// Sleeps until `at`, then waits for a slice.
    fn sleep_until(&mut self, at: u64) {
        self.clock().sleep_until(at);
    }

    /// Returns the ns of ring 3 until the next signal.
    fn user_ns_to_signal(&mut self) -> u64;

    /// Takes the due signals; returns their number.
    fn take_signals(&mut self) -> u64;

    /// Notes that the guest's run in ring 3 ends with a signal, whose cost the vCPU charges.
    fn signals_in_ring_3(&mut self) {}

    /// Returns whether the slice goes on and no signal is due. `false` may be said of any entry.
    fn is_quiet(&mut self) -> bool {
        false
    }

    /// Returns whether an access to this register exits.
    fn intercepts(&self, _msr: u32) -> bool {
        true
    }

    /// Acts on the guest's access to a register without an exit.
    fn access_register(&mut self) {}

    /// Returns whether a counter overflowed without an exit since.
    fn overflow_due(&self) -> bool {
        false
    }

    /// Notes that guest mode has ended.
    fn leaves(&mut self) {}

    /// Notes that guest mode goes on after an exit that the kernel handled by itself. Other entries are [`HostCounters::on_entry`].
    ///
    /// [`HostCounters::on_entry`]: arch_pmu::host::HostCounters::on_entry
    fn returns(&mut self) {}
}
