//! KVM's exit as an owned value: the borrow of `kvm_run` ends here.

use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::sys;

/// Longest instruction (SDM vol. 2, 2.3.11).
pub const LONGEST_INSTRUCTION: usize = 15;

/// The bytes of an instruction that KVM could not emulate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionBytes {
    bytes: [u8; LONGEST_INSTRUCTION],
    length: u8,
}

impl InstructionBytes {
    /// The first bytes of `bytes`, as many as an instruction has.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let length = bytes.len().min(LONGEST_INSTRUCTION);
        let mut own = Self { length: length as u8, ..Self::default() };
        own.bytes[..length].copy_from_slice(&bytes[..length]);
        own
    }

    /// The bytes; empty if KVM gave none.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Why KVM_RUN returned. The data of a port or memory access stay in `kvm_run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// RDMSR of a filtered MSR.
    Rdmsr {
        /// The MSR.
        index: u32,
    },
    /// WRMSR of a filtered MSR.
    Wrmsr {
        /// The MSR.
        index: u32,
        /// EDX:EAX.
        value: u64,
    },
    /// OUT; a string instruction gives all its units at once.
    PortOut {
        /// The port.
        port: u16,
    },
    /// IN.
    PortIn {
        /// The port.
        port: u16,
    },
    /// A write to guest-physical memory without a slot.
    MemoryWrite {
        /// Guest-physical address.
        address: u64,
    },
    /// A read from guest-physical memory without a slot.
    MemoryRead {
        /// Guest-physical address.
        address: u64,
    },
    /// A guest-debug event: a single step.
    Debug,
    /// A signal, or a vCPU that was not runnable.
    Interrupted,
    /// A triple fault.
    Shutdown,
    /// The processor refused the guest's state.
    EntryFailed {
        /// `hardware_entry_failure_reason`.
        reason: u64,
    },
    /// KVM_EXIT_INTERNAL_ERROR.
    InternalError {
        /// `kvm_run.internal.suberror`.
        suberror: u32,
        /// The instruction, if KVM gave it.
        instruction: InstructionBytes,
    },
    /// KVM_RUN failed.
    Failed {
        /// `errno`.
        errno: i32,
    },
    /// Any other exit.
    Other {
        /// `kvm_run.exit_reason`.
        reason: u32,
    },
}

impl Exit {
    /// KVM_RUN. Returns the exit and the host's TSC at its return.
    #[inline]
    pub(crate) fn next(fd: &mut VcpuFd) -> (Self, u64) {
        let result = fd.run();
        let at = sys::rdtsc();
        let exit = match result {
            Ok(VcpuExit::X86Wrmsr(exit)) => Self::Wrmsr { index: exit.index, value: exit.data },
            Ok(VcpuExit::X86Rdmsr(exit)) => Self::Rdmsr { index: exit.index },
            Ok(VcpuExit::IoOut(port, _)) => Self::PortOut { port },
            Ok(VcpuExit::IoIn(port, _)) => Self::PortIn { port },
            Ok(VcpuExit::MmioWrite(address, _)) => Self::MemoryWrite { address },
            Ok(VcpuExit::MmioRead(address, _)) => Self::MemoryRead { address },
            Ok(VcpuExit::Debug(_)) => Self::Debug,
            Ok(VcpuExit::Intr) => Self::Interrupted,
            Ok(VcpuExit::Shutdown) => Self::Shutdown,
            Ok(VcpuExit::FailEntry(reason, _)) => Self::EntryFailed { reason },
            Ok(VcpuExit::InternalError) => {
                let (suberror, instruction) = sys::internal_error(fd);
                Self::InternalError { suberror, instruction: InstructionBytes::new(&instruction) }
            }
            Ok(_) => Self::Other { reason: fd.get_kvm_run().exit_reason },
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => Self::Interrupted,
            Err(error) => Self::Failed { errno: error.errno() },
        };
        (exit, at)
    }
}
