//! The choices of a run that do not depend on the kind of guest.

use std::sync::Arc;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;

pub use crate::kvm::Cpu;
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
    Kvm,
}

#[cfg(feature = "planted-slowdown")]
impl CounterSource {
    /// Returns the name of the strategy, if there is one.
    pub(super) fn strategy_name(&self) -> Option<&str> {
        match self {
            Self::Events { strategy, .. } => Some(&strategy.name),
            Self::Floor | Self::PacedFloor { .. } | Self::Kvm => None,
        }
    }
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
    /// The threads that the guest reaches run under seccomp filters.
    pub seccomp: bool,
    /// Modelled cost of an access to a register of the PMU for the guest, ns. One vCPU alone can have it: TSCs that are held back differ.
    pub register_cost_ns: Option<u64>,
    /// Samples of the guest, if it is recorded.
    pub sampling: Option<Arc<Sampling>>,
}
