//! KVM's exit as an owned value: the borrow of `kvm_run` ends here.

use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::sample::Past;
use crate::sys;

/// Reason why KVM_RUN returned. The data of a port or memory access and an instruction that KVM could not emulate stay
/// in `kvm_run`, so that an exit fits two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// RDMSR of this filtered MSR.
    Rdmsr(u32),
    /// WRMSR of a filtered MSR.
    Wrmsr {
        /// The MSR.
        index: u32,
        /// EDX:EAX.
        value: u64,
    },
    /// OUT to this port; a string instruction gives all its units at once.
    PortOut(u16),
    /// IN from this port.
    PortIn(u16),
    /// A write to guest-physical memory without a slot, at this address.
    MemoryWrite(u64),
    /// A read from guest-physical memory without a slot, at this address.
    MemoryRead(u64),
    /// A guest-debug event: a single step.
    Debug,
    /// A signal, or a vCPU that was not runnable.
    Interrupted,
    /// A triple fault.
    Shutdown,
    /// The processor refused the guest's state, with this `hardware_entry_failure_reason`.
    EntryFailed(u64),
    /// KVM_EXIT_INTERNAL_ERROR with this suberror.
    InternalError(u32),
    /// KVM_RUN failed with this errno.
    Failed(i32),
    /// Any other exit, by its `kvm_run.exit_reason`.
    Other(u32),
}

impl Exit {
    /// Calls KVM_RUN. Returns the exit and the host's TSC at its return.
    #[inline]
    pub(crate) fn next(fd: &mut VcpuFd) -> (Self, u64) {
        let result = fd.run();
        let at = sys::rdtsc();
        let exit = match result {
            Ok(VcpuExit::X86Wrmsr(exit)) => Self::Wrmsr { index: exit.index, value: exit.data },
            Ok(VcpuExit::X86Rdmsr(exit)) => Self::Rdmsr(exit.index),
            other => match Self::rarer(&other) {
                Some(exit) => exit,
                None => Self::by_reason(fd),
            },
        };
        (exit, at)
    }

    /// Reads exits other than those of MSRs; `None` if only `kvm_run` has the reason. This is a function of its own, because
    /// the registers that it uses would otherwise be saved at each MSR exit.
    #[inline(never)]
    fn rarer(result: &Result<VcpuExit<'_>, kvm_ioctls::Error>) -> Option<Self> {
        Some(match result {
            &Ok(VcpuExit::IoOut(port, _)) => Self::PortOut(port),
            &Ok(VcpuExit::IoIn(port, _)) => Self::PortIn(port),
            &Ok(VcpuExit::MmioWrite(address, _)) => Self::MemoryWrite(address),
            &Ok(VcpuExit::MmioRead(address, _)) => Self::MemoryRead(address),
            Ok(VcpuExit::Debug(_)) => Self::Debug,
            Ok(VcpuExit::Intr) => Self::Interrupted,
            Ok(VcpuExit::Shutdown) => Self::Shutdown,
            &Ok(VcpuExit::FailEntry(reason, _)) => Self::EntryFailed(reason),
            Ok(_) => return None,
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => Self::Interrupted,
            Err(error) => Self::Failed(error.errno()),
        })
    }

    /// Returns whether RIP is taken to be at the instruction that made the exit or past it (see [`Past`]); `None`: the guest did not make
    /// it.
    pub(crate) const fn past(self) -> Option<Past> {
        match self {
            Self::Interrupted | Self::Failed(_) => None,
            Self::MemoryWrite(_) => Some(Past::Yes),
            _ => Some(Past::No),
        }
    }

    #[cold]
    fn by_reason(fd: &mut VcpuFd) -> Self {
        match fd.get_kvm_run().exit_reason {
            kvm_bindings::KVM_EXIT_INTERNAL_ERROR => Self::InternalError(sys::internal_error(fd).0),
            reason => Self::Other(reason),
        }
    }
}
