//! The reasons for which a run cannot begin, or has no result.

use host_pmu::backend::HostError;
use thiserror::Error;

use crate::boot::error::BootError;
use crate::kvm::KvmError;
use crate::seccomp::SeccompError;

/// A run could not begin, or has no result.
#[derive(Debug, Error)]
pub enum MachineError {
    /// KVM.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The guest cannot be put into its memory.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// More vCPUs than single-stepping counts.
    #[error(
        "backend step counts one vCPU, and this guest has {0}: while one is stepped its traps lie in memory that the others execute; \
         use --vcpus 1, or --backend cpu-clock, which counts time"
    )]
    StepsOne(usize),
    /// A vCPU thread cannot be confined.
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    /// A vCPU's thread cannot have its timer or its events.
    #[error(transparent)]
    Event(#[from] HostError),
    /// A thread of the VMM panicked, and has said why: a bug.
    #[error("{0} panicked")]
    Panicked(&'static str),
    /// The host.
    #[error("{0}")]
    Host(String),
}

impl MachineError {
    /// Returns whether the host is the reason, not the guest or the plan.
    pub const fn is_the_hosts(&self) -> bool {
        matches!(self, Self::Kvm(_) | Self::Seccomp(_) | Self::Event(_) | Self::Host(_))
    }
}
