//! The host side of a simulated vCPU: the source of its counters, and the thread's clock.

use host_pmu::bank::Bank;
use host_pmu::side::HostPmu;

use crate::backend::{Creates, SimBackend};
use crate::clock::Clock;
use crate::floor::SimFloor;
use crate::mediated::{SimMediated, Switches};

/// Implementation behind the counters of a simulated vCPU.
///
/// The methods with a body are for a guest that owns its PMU; with any other, every access exits, and leaving the guest costs no more
/// than the exit.
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

    /// Counts an entry at which nothing is due: no slice ends, no signal, nothing of the strategy. `false`: something may be, and nothing
    /// was done.
    fn pass_entry(&mut self) -> bool {
        false
    }

    /// Returns the counts of events created.
    fn creates(&mut self) -> Creates {
        Creates::default()
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

    /// Returns the counts of the account's PMU switches.
    fn switches(&self) -> Switches {
        Switches::default()
    }
}

impl SimHost for Bank<SimBackend> {
    fn clock(&mut self) -> &mut Clock {
        self.backend().clock_mut()
    }

    fn preempt_if_due(&mut self) {
        self.backend().preempt_if_due();
    }

    fn sleep_until(&mut self, at: u64) {
        self.backend().sleep_until(at);
    }

    fn user_ns_to_signal(&mut self) -> u64 {
        self.backend().user_ns_to_signal()
    }

    fn take_signals(&mut self) -> u64 {
        self.backend().take_signals()
    }

    fn signals_in_ring_3(&mut self) {
        self.backend().signals_in_ring_3();
    }

    #[inline]
    fn pass_entry(&mut self) -> bool {
        let backend = self.backend_ref();
        let clock = backend.clock();
        let (switched_in, slept) = clock.was_away();
        let passes = !clock.slice_is_over() && !backend.may_signal() && self.is_quiet(switched_in, slept);
        if passes {
            self.count_entry();
        }
        passes
    }

    fn creates(&mut self) -> Creates {
        self.backend().creates()
    }
}

impl SimHost for SimFloor {
    fn clock(&mut self) -> &mut Clock {
        self.clock_mut()
    }

    fn user_ns_to_signal(&mut self) -> u64 {
        self.ns_to_signal()
    }

    fn take_signals(&mut self) -> u64 {
        u64::from(self.take_signal())
    }

    #[inline]
    fn pass_entry(&mut self) -> bool {
        let passes = !self.clock().slice_is_over() && self.ns_to_signal() > 0 && self.is_quiet();
        if passes {
            self.count_entry();
        }
        passes
    }
}

impl SimHost for SimMediated {
    fn clock(&mut self) -> &mut Clock {
        self.clock_mut()
    }

    fn user_ns_to_signal(&mut self) -> u64 {
        self.user_ns_to_overflow()
    }

    fn take_signals(&mut self) -> u64 {
        self.take_overflows()
    }

    fn intercepts(&self, msr: u32) -> bool {
        self.exits_at(msr)
    }

    fn access_register(&mut self) {
        self.plain_access();
    }

    fn overflow_due(&self) -> bool {
        self.due_now()
    }

    fn leaves(&mut self) {
        self.exited();
    }

    fn returns(&mut self) {
        self.entered();
    }

    fn switches(&self) -> Switches {
        self.stats()
    }
}
