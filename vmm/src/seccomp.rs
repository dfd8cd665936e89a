//! The system calls of the threads that a guest reaches.
//!
//! A guest that found a hole in the VMM would act from its vCPU's thread, or from that of a device that reads its queues. A vCPU's
//! thread needs few system calls: KVM's and perf's ioctls, opening and closing events of its own, its timer, memory, and the end of a
//! thread. A device's thread needs no ioctl at all: it waits, and moves bytes through its own socket. Any other call
//! ends the process at once. In a debug build it raises SIGSYS first, and the handler names the call, so that a call missing here
//! is seen as the bug it is; a thread that obeys someone else could have replaced the handler.
//!
//! The filter is installed after everything is made that takes other calls, and holds until the thread ends. Memory is one of
//! these: KVM_SET_USER_MEMORY_REGION would give a guest any part of the process.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use kvm_bindings::{
    kvm_debugregs, kvm_device_attr, kvm_guest_debug, kvm_irq_level, kvm_lapic_state, kvm_mp_state, kvm_msi, kvm_msrs,
    kvm_regs, kvm_sregs, kvm_translation, kvm_vcpu_events,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use thiserror::Error;

use crate::sys;

/// Why a thread cannot be confined.
#[derive(Debug, Error)]
pub enum SeccompError {
    /// The filter cannot be made.
    #[error("the seccomp filter cannot be made: {0}; run without it: --no-seccomp")]
    Filter(#[from] seccompiler::BackendError),
    /// The kernel refused it.
    #[error("the kernel refused the seccomp filter of a guest's thread: {0}; run without it: --no-seccomp")]
    Install(std::io::Error),
    /// The handler of what it forbids.
    #[error("sigaction for SIGSYS: {0}")]
    Handler(std::io::Error),
}

/// `_IOC` of <asm-generic/ioctl.h>.
const fn ioc(direction: u32, kind: u8, number: u8, size: usize) -> u64 {
    (direction << 30 | (size as u32) << 16 | (kind as u32) << 8 | number as u32) as u64
}

const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;
const KVM: u8 = 0xae;
const PERF: u8 = b'$';

/// Ioctls of the loop and the stepper on a vCPU, a VM and a perf event; the most frequent first.
const IOCTLS: [u64; 29] = [
    ioc(NONE, KVM, 0x80, 0),                                    // KVM_RUN
    ioc(READ, KVM, 0x8e, size_of::<kvm_lapic_state>()),         // KVM_GET_LAPIC
    ioc(NONE, KVM, 0x9a, 0),                                    // KVM_NMI
    ioc(WRITE, KVM, 0x8f, size_of::<kvm_lapic_state>()),        // KVM_SET_LAPIC
    ioc(NONE, PERF, 0, 0),                                      // PERF_EVENT_IOC_ENABLE
    ioc(NONE, PERF, 1, 0),                                      // PERF_EVENT_IOC_DISABLE
    ioc(WRITE, PERF, 4, 8),                                     // PERF_EVENT_IOC_PERIOD
    ioc(NONE, PERF, 2, 0),                                      // PERF_EVENT_IOC_REFRESH
    ioc(NONE, PERF, 5, 0),                                      // PERF_EVENT_IOC_SET_OUTPUT
    ioc(READ, PERF, 7, 8),                                      // PERF_EVENT_IOC_ID
    ioc(NONE, PERF, 3, 0),                                      // PERF_EVENT_IOC_RESET
    ioc(READ, KVM, 0x81, size_of::<kvm_regs>()),                // KVM_GET_REGS
    ioc(WRITE, KVM, 0x82, size_of::<kvm_regs>()),               // KVM_SET_REGS
    ioc(READ, KVM, 0x83, size_of::<kvm_sregs>()),               // KVM_GET_SREGS
    ioc(READ | WRITE, KVM, 0x88, size_of::<kvm_msrs>()),        // KVM_GET_MSRS
    ioc(WRITE, KVM, 0x89, size_of::<kvm_msrs>()),               // KVM_SET_MSRS
    ioc(WRITE, KVM, 0xa5, size_of::<kvm_msi>()),                // KVM_SIGNAL_MSI
    ioc(WRITE, KVM, 0x61, size_of::<kvm_irq_level>()),          // KVM_IRQ_LINE
    ioc(READ, KVM, 0x98, size_of::<kvm_mp_state>()),            // KVM_GET_MP_STATE
    ioc(WRITE, KVM, 0x99, size_of::<kvm_mp_state>()),           // KVM_SET_MP_STATE
    ioc(WRITE, KVM, 0x9b, size_of::<kvm_guest_debug>()),        // KVM_SET_GUEST_DEBUG
    ioc(READ, KVM, 0x9f, size_of::<kvm_vcpu_events>()),         // KVM_GET_VCPU_EVENTS
    ioc(WRITE, KVM, 0xa0, size_of::<kvm_vcpu_events>()),        // KVM_SET_VCPU_EVENTS
    ioc(READ, KVM, 0xa1, size_of::<kvm_debugregs>()),           // KVM_GET_DEBUGREGS
    ioc(WRITE, KVM, 0xa2, size_of::<kvm_debugregs>()),          // KVM_SET_DEBUGREGS
    ioc(NONE, KVM, 0xa3, 0),                                    // KVM_GET_TSC_KHZ
    ioc(WRITE, KVM, 0xe1, size_of::<kvm_device_attr>()),        // KVM_SET_DEVICE_ATTR
    ioc(READ | WRITE, KVM, 0x85, size_of::<kvm_translation>()), // KVM_TRANSLATE
    ioc(WRITE, KVM, 0x84, size_of::<kvm_sregs>()),              // KVM_SET_SREGS
];

/// From <fcntl.h>: what a perf event's signal needs, and what a debug build asks before it closes a file.
const FCNTLS: [u64; 3] = [libc::F_SETFL as u64, 15, libc::F_GETFD as u64];

/// Calls of any thread, allowed with any arguments.
const PLAIN: [i64; 22] = [
    libc::SYS_read,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // An abort's way, and the allocator's and the hasher's seeds.
    libc::SYS_rt_sigaction,
    libc::SYS_getrandom,
    // Answered by `refusal`.
    libc::SYS_openat,
];

/// Calls of a vCPU's thread beside those.
const TIMERS: [i64; 2] = [libc::SYS_timer_settime, libc::SYS_timer_delete];

/// Calls of a device's thread beside those, which wait on descriptors that it has.
const WAITING: [i64; 3] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_ctl];

/// Calls of a device's thread for its socket alone.
const ON_SOCKET: [i64; 3] = [libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_shutdown];

/// Where the words of a panic go.
const STDERR: u64 = 2;

fn is(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    SeccompRule::new(vec![condition])
}

fn lacks(argument: u8, bits: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)?;
    SeccompRule::new(vec![condition])
}

/// The answer to a forbidden call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The process is killed by SIGSYS; the kernel's audit log has the call's number.
    Kill,
    /// The process says which call it was, and ends with exit code 70.
    Name,
}

impl Default for Answer {
    /// By the kind of build.
    fn default() -> Self {
        if cfg!(debug_assertions) { Self::Name } else { Self::Kill }
    }
}

impl From<Answer> for SeccompAction {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Kill => Self::KillProcess,
            Answer::Name => Self::Trap,
        }
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    values.iter().map(|&value| is(argument, value)).collect()
}

/// Calls with any arguments, memory that is not executable, and signals to this process.
fn common<const N: usize>(also: [i64; N]) -> Result<Rules, seccompiler::BackendError> {
    let executable = libc::PROT_EXEC as u64;
    let mut rules: Rules = PLAIN.into_iter().chain(also).map(|call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_mmap, vec![lacks(2, executable)?]);
    rules.insert(libc::SYS_mprotect, vec![lacks(2, executable)?]);
    // An abort's.
    rules.insert(libc::SYS_tgkill, vec![is(0, std::process::id().into())?]);
    Ok(rules)
}

/// The rules of a vCPU's thread.
fn of_vcpu() -> Result<Rules, seccompiler::BackendError> {
    let mut rules = common(TIMERS)?;
    rules.insert(libc::SYS_ioctl, one_of(1, &IOCTLS)?);
    rules.insert(libc::SYS_fcntl, one_of(1, &FCNTLS)?);
    // The guest's serial port.
    rules.insert(libc::SYS_write, one_of(0, &[1, STDERR])?);
    // Events of this thread only: pid 0.
    rules.insert(libc::SYS_perf_event_open, vec![is(1, 0)?]);
    Ok(rules)
}

/// The rules of a device's thread.
fn of_device(own: Descriptors) -> Result<Rules, seccompiler::BackendError> {
    let socket = u64::from(own.socket.cast_unsigned());
    let mut rules = common(WAITING)?;
    rules.insert(libc::SYS_fcntl, one_of(1, &[libc::F_GETFD as u64])?);
    rules.insert(libc::SYS_write, one_of(0, &[STDERR, own.interrupt.cast_unsigned().into(), socket])?);
    for call in ON_SOCKET {
        rules.insert(call, one_of(0, &[socket])?);
    }
    Ok(rules)
}

fn program(rules: Rules, answer: Answer) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(rules, answer.into(), SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}

/// The descriptors that the thread of a device writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The host's end of what the device is connected to.
    pub socket: RawFd,
    /// The eventfd of its interrupt.
    pub interrupt: RawFd,
}

/// Answers opening a file by EACCES: glibc looks at `/proc/sys/vm/overcommit_memory` when it gives memory back, and does
/// without. A filter of its own, as a filter has one answer to all it names.
fn refusal() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_openat, Vec::new())]);
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::x86_64)?.try_into()
}

/// The filters that confine a thread, ready to install.
#[derive(Clone, Debug)]
pub struct Jail([BpfProgram; 2]);

impl Jail {
    /// Makes the filters of a vCPU's thread of this process; for [`Answer::Name`] also installs its handler of SIGSYS.
    pub fn of_vcpu(answer: Answer) -> Result<Self, SeccompError> {
        Self::new(of_vcpu()?, answer)
    }

    /// The same for the thread of a device with these descriptors.
    pub fn of_device(own: Descriptors, answer: Answer) -> Result<Self, SeccompError> {
        Self::new(of_device(own)?, answer)
    }

    fn new(rules: Rules, answer: Answer) -> Result<Self, SeccompError> {
        if answer == Answer::Name {
            sys::install_forbidden_handler().map_err(SeccompError::Handler)?;
        }
        Ok(Self([program(rules, answer)?, refusal()?]))
    }

    /// Confines the calling thread until it ends.
    pub fn enter(&self) -> Result<(), SeccompError> {
        // The first forbids the call that would install the second.
        for filter in self.0.iter().rev() {
            sys::confine_this_thread(filter).map_err(SeccompError::Install)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        // From a host's <linux/kvm.h> and <linux/perf_event.h>.
        for number in [0xae80, 0x8400_ae8e, 0xae9a, 0x4400_ae8f, 0x2400, 0x2401, 0x4008_2404, 0x2405, 0x2403] {
            assert!(IOCTLS.contains(&number), "{number:#x}");
        }
        for number in [
            0x8090_ae81,
            0x8138_ae83,
            0xc008_ae88,
            0x4008_ae89,
            0x4020_aea5,
            0x4008_ae61,
            0x4048_ae9b,
            0x8040_ae9f,
            0xc018_ae85,
            0x8080_aea1,
            0x4080_aea2,
            0x4138_ae84,
            0x4018_aee1,
        ] {
            assert!(IOCTLS.contains(&number), "{number:#x}");
        }
    }

    #[test]
    fn no_ioctl_gives_the_guest_more_of_the_process() {
        // KVM_SET_USER_MEMORY_REGION and its second form, KVM_CREATE_VCPU, KVM_SET_MEMORY_REGION, KVM_IOEVENTFD.
        for number in [0x46, 0x49, 0x41, 0x40, 0x79] {
            let same = |ioctl: u64| ioctl & 0xffff == u64::from(KVM) << 8 | number;
            assert!(!IOCTLS.into_iter().any(same), "{number:#x}");
        }
    }

    #[test]
    fn the_filter_fits_and_is_short() {
        for rules in [of_vcpu(), of_device(Descriptors { socket: 5, interrupt: 6 })] {
            let length = program(rules.unwrap(), Answer::Kill).unwrap().len();
            assert!(length < 512, "{length} instructions are run through at each call");
        }
    }
}
