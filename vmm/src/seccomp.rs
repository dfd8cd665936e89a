//! The system calls of the threads that a guest reaches.
//!
//! A guest that found a hole in the VMM would act from its vCPU's thread, or from that of a device that reads its
//! queues. A vCPU's thread needs few system calls: KVM's and perf's ioctls, opening and closing events of its own, its
//! timer, memory, and the end of a thread. A device's thread needs no ioctl at all: it waits, and moves bytes through
//! its own socket. Any other call kills the process by SIGSYS; the kernel's audit log has the call's number.
//!
//! `seccompiler` makes the filters; they are installed by `sys::confine`, for its flags. One is installed after everything
//! is made that takes other calls, and holds until the thread ends. Memory is one of these: KVM_SET_USER_MEMORY_REGION
//! would give a guest any part of the process.
//!
//! All threads have one address space, so a thread that obeys a guest can write the stack of one that may do more. It
//! has no call that makes another thread run a handler.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use host_pmu::kick::Owner;
use kvm_bindings::{
    kvm_debugregs, kvm_guest_debug, kvm_irq_level, kvm_lapic_state, kvm_mp_state, kvm_msi, kvm_msrs, kvm_nested_state,
    kvm_regs, kvm_sregs, kvm_vcpu_events,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, Ge, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter};
use thiserror::Error;

use crate::sys;

/// Why a thread cannot be confined.
#[derive(Debug, Error)]
pub enum SeccompError {
    /// The kernel refused it.
    #[error("the kernel refused the seccomp filter of a guest's thread: {0}")]
    Install(std::io::Error),
    /// The memory that says whom events signal.
    #[error("no page below {end:#x} for the owner of a vCPU's events: {0}; lower vm.mmap_min_addr", end = Owner::END)]
    Owner(std::io::Error),
}

/// Computes `_IOC` of <asm-generic/ioctl.h>.
const fn ioc(direction: u32, kind: u8, number: u8, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (kind as u32) << 8 | number as u32
}

const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;
const KVM: u8 = 0xae;
const PERF: u8 = b'$';

/// Ioctls of the loop and the stepper on a vCPU, a VM and a perf event; the most frequent first, as each is compared in turn.
const IOCTLS: [u32; 27] = [
    ioc(NONE, KVM, 0x80, 0),                                     // KVM_RUN
    ioc(NONE, PERF, 1, 0),                                       // PERF_EVENT_IOC_DISABLE
    ioc(NONE, PERF, 0, 0),                                       // PERF_EVENT_IOC_ENABLE
    ioc(WRITE, PERF, 4, 8),                                      // PERF_EVENT_IOC_PERIOD
    ioc(READ | WRITE, KVM, 0x88, size_of::<kvm_msrs>()),         // KVM_GET_MSRS
    ioc(WRITE, KVM, 0x89, size_of::<kvm_msrs>()),                // KVM_SET_MSRS
    ioc(READ, KVM, 0x8e, size_of::<kvm_lapic_state>()),          // KVM_GET_LAPIC
    ioc(NONE, KVM, 0x9a, 0),                                     // KVM_NMI
    ioc(WRITE, KVM, 0x8f, size_of::<kvm_lapic_state>()),         // KVM_SET_LAPIC
    ioc(NONE, PERF, 5, 0),                                       // PERF_EVENT_IOC_SET_OUTPUT
    ioc(READ, PERF, 7, 8),                                       // PERF_EVENT_IOC_ID
    ioc(NONE, PERF, 3, 0),                                       // PERF_EVENT_IOC_RESET
    ioc(READ, KVM, 0x81, size_of::<kvm_regs>()),                 // KVM_GET_REGS
    ioc(WRITE, KVM, 0x82, size_of::<kvm_regs>()),                // KVM_SET_REGS
    ioc(READ, KVM, 0x83, size_of::<kvm_sregs>()),                // KVM_GET_SREGS
    ioc(WRITE, KVM, 0xa5, size_of::<kvm_msi>()),                 // KVM_SIGNAL_MSI
    ioc(WRITE, KVM, 0x61, size_of::<kvm_irq_level>()),           // KVM_IRQ_LINE
    ioc(READ, KVM, 0x98, size_of::<kvm_mp_state>()),             // KVM_GET_MP_STATE
    ioc(WRITE, KVM, 0x99, size_of::<kvm_mp_state>()),            // KVM_SET_MP_STATE
    ioc(WRITE, KVM, 0x9b, size_of::<kvm_guest_debug>()),         // KVM_SET_GUEST_DEBUG
    ioc(READ, KVM, 0x9f, size_of::<kvm_vcpu_events>()),          // KVM_GET_VCPU_EVENTS
    ioc(WRITE, KVM, 0xa0, size_of::<kvm_vcpu_events>()),         // KVM_SET_VCPU_EVENTS
    ioc(READ, KVM, 0xa1, size_of::<kvm_debugregs>()),            // KVM_GET_DEBUGREGS
    ioc(WRITE, KVM, 0xa2, size_of::<kvm_debugregs>()),           // KVM_SET_DEBUGREGS
    ioc(NONE, KVM, 0xa3, 0),                                     // KVM_GET_TSC_KHZ
    ioc(WRITE, KVM, 0x84, size_of::<kvm_sregs>()),               // KVM_SET_SREGS
    ioc(READ | WRITE, KVM, 0xbe, size_of::<kvm_nested_state>()), // KVM_GET_NESTED_STATE
];

/// Calls of any confined thread, allowed with any arguments; the most frequent first.
const PLAIN: [i64; 20] = [
    libc::SYS_read,
    libc::SYS_rt_sigreturn,
    libc::SYS_close,
    libc::SYS_clock_gettime,
    libc::SYS_getrusage,
    libc::SYS_futex,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_brk,
    // The allocator and hash maps take their seeds by it.
    libc::SYS_getrandom,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The counts of the kernel module below KVM's vPMU are read between turns.
    libc::SYS_pread64,
    // Used by a vCPU's thread, and harmless to any: a timer signals the thread for which it was made.
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
];

/// Calls of a device's thread beside those, which wait on descriptors that it has.
const WAITING: [i64; 2] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];

/// Calls of a device's thread for its socket alone.
const ON_SOCKET: [i64; 3] = [libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_shutdown];

/// The descriptors that the thread of a device writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The host's end of what the device is connected to.
    pub socket: RawFd,
    /// The eventfd of its interrupt.
    pub interrupt: RawFd,
}

/// Confines the calling thread, a vCPU's, until it ends. Events that it opens from now on signal the thread while it
/// keeps what this returns.
///
/// # Errors
/// The kernel refuses it.
pub fn confine_vcpu() -> Result<Owner, SeccompError> {
    let owner = Owner::this_thread().map_err(SeccompError::Owner)?;
    let mut rules = common();
    rules.insert(libc::SYS_ioctl, IOCTLS.map(|ioctl| rule([int(1, Eq, ioctl)])).into());
    rules.entry(libc::SYS_fcntl).or_default().extend([
        rule([int(1, Eq, Owner::COMMAND as u32), long(2, Eq, owner.address())]),
        // A terminal with O_ASYNC signals its foreground processes, whoever they are.
        rule([int(1, Eq, libc::F_SETFL as u32), int(2, Eq, libc::O_ASYNC as u32), int(0, Ge, 3)]),
    ]);
    // An event may be of this thread only, on any CPU.
    let own_event = rule([int(1, Eq, 0), int(2, Eq, u32::MAX), int(4, Eq, FD_CLOEXEC)]);
    rules.insert(libc::SYS_perf_event_open, vec![own_event]);
    // A panic prints its message.
    rules.insert(libc::SYS_write, vec![rule([int(0, Eq, STDERR)])]);
    allow_only(rules)?;
    Ok(owner)
}

/// Confines the thread of a device with these descriptors.
///
/// # Errors
/// The kernel refuses it.
pub fn confine_device(own: Descriptors) -> Result<(), SeccompError> {
    let mut rules = common();
    rules.extend(WAITING.map(|call| (call, Vec::new())));
    rules.extend(ON_SOCKET.map(|call| (call, vec![rule([int(0, Eq, own.socket.cast_unsigned())])])));
    let written = [own.interrupt.cast_unsigned(), own.socket.cast_unsigned(), STDERR];
    rules.insert(libc::SYS_write, written.map(|descriptor| rule([int(0, Eq, descriptor)])).into());
    allow_only(rules)
}

/// Calls by number, with the rules of which one must hold; none: any arguments.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A condition on an argument that is an int.
fn int(argument: u8, operator: SeccompCmpOp, value: u32) -> SeccompCondition {
    SeccompCondition::new(argument, Dword, operator, value.into()).expect("one of six arguments")
}

/// A condition on an argument that is an address.
fn long(argument: u8, operator: SeccompCmpOp, value: usize) -> SeccompCondition {
    SeccompCondition::new(argument, Qword, operator, value as u64).expect("one of six arguments")
}

fn rule<const N: usize>(all: [SeccompCondition; N]) -> SeccompRule {
    SeccompRule::new(all.into()).expect("at least one condition")
}

/// Calls with any arguments, memory that is not executable and not an [`Owner`]'s, and an abort's signal to the thread itself.
fn common() -> Rules {
    let above = |argument| long(argument, Ge, Owner::END);
    let lacks = |argument, bits: i32| int(argument, MaskedEq(bits.cast_unsigned().into()), 0);
    let not_executable = || lacks(2, libc::PROT_EXEC);
    let [process, thread] = [std::process::id(), sys::gettid().cast_unsigned()];
    let mut rules: Rules = PLAIN.map(|call| (call, Vec::new())).into();
    rules.extend([
        (libc::SYS_mmap, vec![rule([not_executable(), lacks(3, libc::MAP_FIXED)]), rule([not_executable(), above(0)])]),
        (libc::SYS_mprotect, vec![rule([not_executable(), above(0)])]),
        (libc::SYS_mremap, vec![rule([lacks(3, libc::MREMAP_FIXED), above(0)])]),
        (libc::SYS_munmap, vec![rule([above(0)])]),
        (libc::SYS_madvise, vec![rule([above(0)])]),
        (libc::SYS_tgkill, vec![rule([int(0, Eq, process), int(1, Eq, thread)])]),
        // A debug build asks before it closes a file.
        (libc::SYS_fcntl, vec![rule([int(1, Eq, libc::F_GETFD as u32)])]),
    ]);
    rules
}

/// Confines the calling thread to these calls. glibc looks at /proc/sys/vm/overcommit_memory when it gives memory back,
/// and does without: opening a file fails. The calls of the x32 ABI are the same ones once more, by numbers of their own
/// and for the same architecture; seccompiler knows neither these nor a third action, so the filter begins by hand.
fn allow_only(rules: Rules) -> Result<(), SeccompError> {
    /// The first number of the x32 ABI.
    const X32: u32 = 0x4000_0000;
    let (kill, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let begin = [
        instruction(LOAD, 0, 0, 0),
        instruction(IF_AT_LEAST, X32, 0, 1),
        instruction(RETURN, kill.clone().into(), 0, 0),
        instruction(IF_EQUAL, libc::SYS_openat as u32, 0, 1),
        instruction(RETURN, SeccompAction::Errno(libc::EACCES as u32).into(), 0, 0),
    ];
    let filter = SeccompFilter::new(rules, kill, allow, TargetArch::x86_64).expect("two different actions");
    let filter = BpfProgram::try_from(filter).expect("less than 4096 instructions");
    sys::confine(&[&begin[..], &filter].concat()).map_err(SeccompError::Install)
}

// Instructions of <linux/bpf_common.h>.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// PERF_FLAG_FD_CLOEXEC of <linux/perf_event.h>.
const FD_CLOEXEC: u32 = 8;
const STDERR: u32 = 2;
