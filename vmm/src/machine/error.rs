//! The reasons for which a run cannot begin, or has no result.

use std::time::Duration;

use host_pmu::kick::TimerError;
use thiserror::Error;

use super::crew::Lost;
use crate::boot::image::{MAX_MEMORY, MIN_MEMORY};
use crate::boot::linux::{BootError, KernelError};
use crate::boot::payload::PayloadError;
use crate::boot::segment::LoadError;
use crate::kvm::KvmError;
use crate::seccomp::SeccompError;

/// A run could not begin, or has no result.
#[derive(Debug, Error)]
pub enum MachineError {
    /// KVM.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// A payload cannot be loaded.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// An image, or one of its files, cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A Linux kernel cannot be loaded.
    #[error("the kernel: {0}")]
    Kernel(#[from] KernelError),
    /// A Linux kernel cannot be started.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The size of guest memory is out of range.
    #[error("{0:#x} bytes of guest memory are not between {MIN_MEMORY:#x} and {MAX_MEMORY:#x}")]
    MemorySize(u64),
    /// More vCPUs than single-stepping counts.
    #[error(
        "backend step counts one vCPU, and this guest has {0}: while one is stepped its traps lie in memory that the others execute; \
         use --vcpus 1, or --backend cpu-clock, which counts time"
    )]
    StepsOne(usize),
    /// Guest memory cannot be allocated.
    #[error("guest memory: {0}")]
    Memory(#[from] vm_memory::mmap::FromRangesError),
    /// Guest memory cannot be written.
    #[error("guest memory: {0}")]
    GuestMemory(#[from] vm_memory::GuestMemoryError),
    /// A vCPU thread cannot be confined.
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    /// A vCPU's thread cannot have its timer.
    #[error(transparent)]
    Timer(#[from] TimerError),
    /// A vCPU's thread did not stop when it was told to, and did when its host events were taken from it.
    #[error(
        "a vCPU's thread did not come out of the signals of its host events within {} s, and the events were disabled: a signal takes this \
         host longer than its counters leave between two; use longer periods, fewer counters, or another strategy",
        after.as_secs()
    )]
    Starved {
        /// Time that it was waited for.
        after: Duration,
    },
    /// A thread of the VMM panicked, and has said why: a bug.
    #[error("{0} panicked")]
    Panicked(&'static str),
    /// The host.
    #[error("{0}")]
    Host(String),
}

impl From<Lost> for MachineError {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::NotStarted(error) => Self::Host(format!("a vCPU's thread cannot be started: {error}")),
            Lost::Panicked => Self::Panicked("a vCPU's thread"),
        }
    }
}

impl MachineError {
    /// Returns whether the host is the reason, not the guest or the plan.
    pub const fn is_the_hosts(&self) -> bool {
        matches!(self, Self::Kvm(_) | Self::Seccomp(_) | Self::Timer(_) | Self::Starved { .. } | Self::Host(_))
    }
}
