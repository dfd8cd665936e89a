//! The choices of a run that do not depend on the kind of guest.

use std::sync::Arc;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use host_pmu::backend::BackendKey;
use host_pmu::floor::Floor;
use host_pmu::open::{self, WithHost};
use host_pmu::strategy::Strategy;
use host_pmu::trace::Tracing;

use super::error::MachineError;
pub use crate::kvm::Cpu;
use crate::kvm::{GuestPmu, Host, KvmError};
use crate::sample::Sampling;

/// The host side of the guest's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterSource {
    /// No host events: a timer raises the PMIs, and a counter advances by one per TSC tick.
    Floor,
    /// The floor with a given rate of counts.
    PacedFloor {
        /// Counts per millisecond.
        counts_per_ms: u64,
    },
    /// Host events, kept by a strategy.
    Events {
        /// The source of the events.
        backend: BackendKey,
        /// Rules by which they are held.
        strategy: Strategy,
    },
    /// KVM's own vPMU.
    Kvm {
        /// The words of the kernel module that keeps its host events; `None`: without it.
        module: Option<String>,
    },
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The host side of the counters.
    pub behind: CounterSource,
    /// The guest's processor.
    pub cpu: Cpu,
    /// The guest's PMU.
    pub pmu: PmuCaps,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// CPUs to bind vCPU threads to, in turn; empty = not bound.
    pub pin: Vec<u32>,
    /// Wall time after which the run is stopped.
    pub time_limit: Duration,
    /// Samples of the guest, if it is recorded.
    pub sampling: Option<Arc<Sampling>>,
    /// Its trace, if it is traced.
    pub trace: Option<Arc<Tracing>>,
}

/// Returns the PMU that `plan`'s guest sees.
pub(super) fn guest_pmu(plan: &Plan, host: &Host) -> Result<GuestPmu, MachineError> {
    match &plan.behind {
        CounterSource::Kvm { .. } => {
            host.kvm_pmu().map_err(KvmError::NoKvmPmu)?;
            Ok(GuestPmu::Kvm)
        }
        CounterSource::Events { backend: BackendKey::Step, .. } if plan.vcpus > 1 => {
            Err(MachineError::StepsOne(plan.vcpus))
        }
        _ => Ok(GuestPmu::Userspace(plan.pmu.bounded())),
    }
}

/// Makes the host side and runs `job` with it. Host events belong to the thread that opens them, so this is called on
/// the vCPU's thread.
pub(super) fn open<W: WithHost>(behind: &CounterSource, tsc_khz: u64, job: W) -> Result<W::Out, MachineError> {
    match behind {
        CounterSource::Floor | CounterSource::Kvm { .. } => Ok(job.run(Floor::new(tsc_khz, tsc_khz)?)),
        CounterSource::PacedFloor { counts_per_ms } => Ok(job.run(Floor::new(tsc_khz, *counts_per_ms)?)),
        CounterSource::Events { backend, strategy } => Ok(open::open(backend, strategy, tsc_khz, job)?),
    }
}
