//! The reasons for which a run cannot begin.

use thiserror::Error;

use crate::boot::image::{MAX_MEMORY, MIN_MEMORY};
use crate::boot::linux::{BootError, KernelError};
use crate::boot::payload::PayloadError;
use crate::boot::segment::LoadError;
use crate::kvm::KvmError;
use crate::seccomp::SeccompError;

/// A run could not begin.
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
    /// Guest memory cannot be allocated.
    #[error("guest memory: {0}")]
    Memory(#[from] vm_memory::mmap::FromRangesError),
    /// Guest memory cannot be written.
    #[error("guest memory: {0}")]
    GuestMemory(#[from] vm_memory::GuestMemoryError),
    /// A vCPU thread cannot be confined.
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    /// The host.
    #[error("{0}")]
    Host(String),
}

impl MachineError {
    /// Whether the host is the reason, not the guest or the plan.
    #[must_use]
    pub const fn is_the_hosts(&self) -> bool {
        matches!(self, Self::Kvm(_) | Self::Seccomp(_) | Self::Host(_))
    }
}
