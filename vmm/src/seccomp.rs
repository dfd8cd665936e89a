//! The system calls of a process that runs a guest.
//!
//! A guest that found a hole in the VMM would act from its vCPU's thread, or from that of a device that reads its
//! queues. A vCPU's thread needs few system calls: KVM's and perf's ioctls, opening and closing events of its own, its
//! timer, memory, and the end of a thread. A device's thread needs no ioctl at all: it waits, and moves bytes through
//! its own socket. Any other call ends the process at once. In a debug build it raises SIGSYS first, and the handler
//! names the call, so that a call missing here is seen as the bug it is; a thread that obeys someone else could have
//! replaced the handler.
//!
//! The filter is installed after everything is made that takes other calls, and holds until the thread ends. Memory is one of
//! these: KVM_SET_USER_MEMORY_REGION would give a guest any part of the process.
//!
//! All threads have one address space, so a thread that obeys a guest can write the stack of one that may do more. It
//! has no call that makes another thread run a handler, and the process as a whole does without the calls of
//! [`confine_process`].

use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use host_pmu::kick::Owner;
use kvm_bindings::{
    kvm_debugregs, kvm_device_attr, kvm_guest_debug, kvm_irq_level, kvm_lapic_state, kvm_mp_state, kvm_msi, kvm_msrs,
    kvm_nested_state, kvm_regs, kvm_sregs, kvm_translation, kvm_vcpu_events,
};
use libc::sock_filter;
use thiserror::Error;

use crate::sys::{self, Threads};

/// Why a process or a thread cannot be confined.
#[derive(Debug, Error)]
pub enum SeccompError {
    /// The kernel refused it.
    #[error("the kernel refused the seccomp filter of a guest's {1}: {0}; run without it: --no-seccomp")]
    Install(std::io::Error, &'static str),
    /// The handler of what it forbids.
    #[error("sigaction for SIGSYS: {0}")]
    Handler(std::io::Error),
    /// The memory that says whom events signal.
    #[error("no page below {end:#x} for the owner of a vCPU's events: {0}; lower vm.mmap_min_addr, or run without seccomp filters: \
             --no-seccomp", end = Owner::END)]
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

/// Ioctls of the loop and the stepper on a vCPU, a VM and a perf event; the most frequent first.
const IOCTLS: [u32; 29] = [
    ioc(NONE, KVM, 0x80, 0),                                    // KVM_RUN
    ioc(READ, KVM, 0x8e, size_of::<kvm_lapic_state>()),         // KVM_GET_LAPIC
    ioc(NONE, KVM, 0x9a, 0),                                    // KVM_NMI
    ioc(WRITE, KVM, 0x8f, size_of::<kvm_lapic_state>()),        // KVM_SET_LAPIC
    ioc(NONE, PERF, 0, 0),                                      // PERF_EVENT_IOC_ENABLE
    ioc(NONE, PERF, 1, 0),                                      // PERF_EVENT_IOC_DISABLE
    ioc(WRITE, PERF, 4, 8),                                     // PERF_EVENT_IOC_PERIOD
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
    // KVM_GET_NESTED_STATE.
    ioc(READ | WRITE, KVM, 0xbe, size_of::<kvm_nested_state>()),
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
    // The allocator's and the hasher's seeds.
    libc::SYS_getrandom,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Counts of the kernel module below KVM's vPMU, between turns.
    libc::SYS_pread64,
    // Used by a vCPU's thread, and harmless to any: a timer signals the thread for which it was made.
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
];

/// Calls of a device's thread beside those, which wait on descriptors that it has.
const WAITING: [i64; 3] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_ctl];

/// Calls of a device's thread for its socket alone.
const ON_SOCKET: [i64; 3] = [libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_shutdown];

/// Calls that no thread of a process with a guest makes: to become another program, to act on other processes, to
/// change the kernel, the clock or what is mounted, to open files by what is no name.
const NEVER: [i64; 53] = [
    libc::SYS_connect,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_setpgid,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
];

/// The answer to a forbidden call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The process is killed by SIGSYS; the kernel's audit log has the call's number.
    Kill,
    /// The process says which call it was, and ends with exit code 70.
    Name,
}

impl Default for Answer {
    /// Answers as the kind of build does.
    fn default() -> Self {
        if cfg!(debug_assertions) { Self::Name } else { Self::Kill }
    }
}

impl From<Answer> for Verdict {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Kill => Self::Kill,
            Answer::Name => Self::Trap,
        }
    }
}

/// The descriptors that the thread of a device writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The host's end of what the device is connected to.
    pub socket: RawFd,
    /// The eventfd of its interrupt.
    pub interrupt: RawFd,
}

/// A process or thread, for rules on its own signals.
#[derive(Clone, Copy, Debug)]
struct Own {
    process: u32,
    thread: u32,
}

impl Own {
    fn current() -> Self {
        Self { process: std::process::id(), thread: sys::gettid().cast_unsigned() }
    }
}

/// Confines the calling thread, a vCPU's, until it ends. Events that it opens from now on signal the thread while it
/// keeps what this returns.
///
/// # Errors
/// The kernel refuses it.
pub fn confine_vcpu(answer: Answer) -> Result<Owner, SeccompError> {
    let owner = Owner::this_thread().map_err(SeccompError::Owner)?;
    install(&of_vcpu(Own::current(), owner.address(), answer), answer, Threads::This)?;
    Ok(owner)
}

/// Confines the thread of a device with these descriptors.
///
/// # Errors
/// The kernel refuses it.
pub fn confine_device(own: Descriptors, answer: Answer) -> Result<(), SeccompError> {
    install(&of_device(own, Own::current(), answer), answer, Threads::This)
}

/// Takes from all threads of the process what none needs once a guest runs, for good. A second call changes nothing.
///
/// # Errors
/// The kernel refuses it: some thread has a filter that the others have not.
pub fn confine_process(answer: Answer) -> Result<(), SeccompError> {
    static CONFINED: Mutex<bool> = Mutex::new(false);
    let mut confined = CONFINED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*confined {
        install(&of_process(Own::current(), answer), answer, Threads::All)?;
        *confined = true;
    }
    Ok(())
}

fn install(filter: &[sock_filter], answer: Answer, threads: Threads) -> Result<(), SeccompError> {
    if answer == Answer::Name {
        sys::install_forbidden_handler().map_err(SeccompError::Handler)?;
    }
    let whose = if threads == Threads::All { "process" } else { "thread" };
    sys::confine(filter, threads).map_err(|error| SeccompError::Install(error, whose))
}

fn int(value: i32) -> u32 {
    value.cast_unsigned()
}

/// Builds the rule that allows a call, and forbids it otherwise.
fn allow(call: i64, any: Vec<Vec<Test>>, answer: Answer) -> Rule {
    Rule { call, any, then: Verdict::Allow, otherwise: answer.into() }
}

fn one_of(position: u8, values: &[u32]) -> Test {
    Test::OneOf(position, values.to_vec())
}

/// Calls with any arguments, memory that is not executable and not an [`Owner`]'s, and an abort's signal to the thread itself.
fn common(own: Own, answer: Answer) -> Vec<Rule> {
    let allow = |call, any| allow(call, any, answer);
    let above = |position| Test::From(position, Owner::END as u32);
    let lacks = |position, bits| Test::Lacks(position, int(bits));
    let mut rules: Vec<_> = PLAIN.into_iter().map(|call| allow(call, Vec::new())).collect();
    rules.extend([
        allow(
            libc::SYS_mmap,
            vec![vec![lacks(2, libc::PROT_EXEC), lacks(3, libc::MAP_FIXED)], vec![lacks(2, libc::PROT_EXEC), above(0)]],
        ),
        allow(libc::SYS_mprotect, vec![vec![lacks(2, libc::PROT_EXEC), above(0)]]),
        allow(libc::SYS_mremap, vec![vec![lacks(3, libc::MREMAP_FIXED), above(0)]]),
        allow(libc::SYS_munmap, vec![vec![above(0)]]),
        allow(libc::SYS_madvise, vec![vec![above(0)]]),
        allow(libc::SYS_tgkill, vec![vec![one_of(0, &[own.process]), one_of(1, &[own.thread])]]),
        // glibc looks at /proc/sys/vm/overcommit_memory when it gives memory back, and does without.
        Rule {
            call: libc::SYS_openat,
            any: Vec::new(),
            then: Verdict::Refuse(libc::EACCES as u16),
            otherwise: answer.into(),
        },
    ]);
    rules
}

/// Builds the filter of a vCPU's thread, whose events have their owner at this address.
fn of_vcpu(own: Own, owner: usize, answer: Answer) -> Vec<sock_filter> {
    let allow = |call, any| allow(call, any, answer);
    let mut rules = vec![
        allow(libc::SYS_ioctl, vec![vec![one_of(1, &IOCTLS)]]),
        allow(
            libc::SYS_fcntl,
            vec![
                vec![one_of(1, &[int(Owner::COMMAND)]), Test::At(2, owner as u32)],
                // A terminal with O_ASYNC signals its foreground processes, whoever they are.
                vec![one_of(1, &[int(libc::F_SETFL)]), one_of(2, &[int(libc::O_ASYNC)]), Test::AtLeast(0, 3)],
                // A debug build asks before it closes a file.
                vec![one_of(1, &[int(libc::F_GETFD)])],
            ],
        ),
        // Events of this thread only, on any CPU.
        allow(libc::SYS_perf_event_open, vec![vec![one_of(1, &[0]), one_of(2, &[u32::MAX]), one_of(4, &[FD_CLOEXEC])]]),
    ];
    rules.extend(common(own, answer));
    // The guest's serial port, and the words of a panic.
    rules.push(allow(libc::SYS_write, vec![vec![one_of(0, &[STDOUT, STDERR])]]));
    program(&rules, answer.into(), answer.into())
}

/// PERF_FLAG_FD_CLOEXEC of <linux/perf_event.h>.
const FD_CLOEXEC: u32 = 8;
/// F_SETSIG of <linux/fcntl.h>, FIOSETOWN and SIOCSPGRP of <asm/sockios.h>.
const F_SETSIG: u32 = 10;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

/// Builds the filter of a device's thread.
fn of_device(own_descriptors: Descriptors, own: Own, answer: Answer) -> Vec<sock_filter> {
    let allow = |call, any| allow(call, any, answer);
    let socket = int(own_descriptors.socket);
    let writes = one_of(0, &[int(own_descriptors.interrupt), socket, STDERR]);
    let mut rules: Vec<_> = WAITING.into_iter().map(|call| allow(call, Vec::new())).collect();
    rules.push(allow(libc::SYS_write, vec![vec![writes]]));
    rules.extend(ON_SOCKET.map(|call| allow(call, vec![vec![one_of(0, &[socket])]])));
    rules.extend(common(own, answer));
    rules.push(allow(libc::SYS_fcntl, vec![vec![one_of(1, &[int(libc::F_GETFD)])]]));
    program(&rules, answer.into(), answer.into())
}

/// Builds the filter of all threads.
fn of_process(own: Own, answer: Answer) -> Vec<sock_filter> {
    let forbid = |call, any, otherwise| Rule { call, any, then: answer.into(), otherwise };
    // Two put keys into a terminal as if they had been typed there, two name the owner of a socket's signals. None has
    // this bit, which KVM_RUN has.
    let typing = vec![vec![
        Test::Lacks(1, 0x2000),
        one_of(1, &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32, FIOSETOWN, SIOCSPGRP]),
    ]];
    // F_SETSIG makes the signal of a pipe or terminal any. F_SETOWN_EX remains, for events that are tried before a
    // guest's own: its owner is in memory.
    let owning = vec![vec![one_of(1, &[int(libc::F_SETOWN), F_SETSIG])]];
    let mut rules =
        vec![forbid(libc::SYS_ioctl, typing, Verdict::Allow), forbid(libc::SYS_fcntl, owning, Verdict::Allow)];
    rules.extend(
        [libc::SYS_kill, libc::SYS_tgkill].map(|call| allow(call, vec![vec![one_of(0, &[own.process])]], answer)),
    );
    rules.push(allow(libc::SYS_socket, vec![vec![one_of(0, &[int(libc::AF_UNIX)])]], answer));
    rules.extend(NEVER.map(|call| forbid(call, Vec::new(), answer.into())));
    program(&rules, Verdict::Allow, answer.into())
}

/// AUDIT_ARCH_X86_64 of <linux/audit.h>.
const X86_64: u32 = 0xc000_003e;
/// Numbers from here on are those of the x32 ABI: the same calls once more.
const X32: u32 = 0x4000_0000;

// Offsets in struct seccomp_data.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

// Instructions of <linux/bpf_common.h>.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Stands for the way to the next alternative until that is known.
const FAIL: u8 = u8::MAX;

/// Answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allow,
    /// It fails with this error number.
    Refuse(u16),
    /// SIGSYS to the thread.
    Trap,
    /// The process ends at once.
    Kill,
}

impl Verdict {
    const fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Refuse(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
            Self::Trap => libc::SECCOMP_RET_TRAP,
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// A condition on one argument, by its position.
#[derive(Clone, Debug)]
enum Test {
    /// An int is one of these.
    OneOf(u8, Vec<u32>),
    /// None of these bits is set.
    Lacks(u8, u32),
    /// An int, unsigned, has at least this value.
    AtLeast(u8, u32),
    /// An address is this one or above.
    From(u8, u32),
    /// An address is exactly this one.
    At(u8, u32),
}

/// A decision on one call: `then` if all tests of some alternative hold, else `otherwise`. Without alternatives always `then`.
#[derive(Clone, Debug)]
struct Rule {
    call: i64,
    any: Vec<Vec<Test>>,
    then: Verdict,
    otherwise: Verdict,
}

const fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const fn answer(verdict: Verdict) -> sock_filter {
    instruction(RETURN, verdict.code(), 0, 0)
}

/// Returns the offset of the lower half of an argument; the upper one is behind it.
const fn argument(position: u8) -> u32 {
    16 + 8 * position as u32
}

impl Test {
    fn compile(&self, into: &mut Vec<sock_filter>) {
        match self {
            Self::OneOf(position, values) => {
                into.push(instruction(LOAD, argument(*position), 0, 0));
                for (number, &value) in values.iter().enumerate() {
                    let after = values.len() - number - 1;
                    into.push(instruction(IF_EQUAL, value, after as u8, if after == 0 { FAIL } else { 0 }));
                }
            }
            Self::Lacks(position, bits) => {
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_ANY_BIT, *bits, FAIL, 0));
            }
            Self::AtLeast(position, value) => {
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_AT_LEAST, *value, 0, FAIL));
            }
            Self::From(position, value) => {
                into.push(instruction(LOAD, argument(*position) + 4, 0, 0));
                into.push(instruction(IF_EQUAL, 0, 0, 2));
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_AT_LEAST, *value, 0, FAIL));
            }
            Self::At(position, value) => {
                into.push(instruction(LOAD, argument(*position) + 4, 0, 0));
                into.push(instruction(IF_EQUAL, 0, 0, FAIL));
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_EQUAL, *value, 0, FAIL));
            }
        }
    }
}

impl Rule {
    /// Instructions that always answer.
    fn compile(&self) -> Vec<sock_filter> {
        let mut all = Vec::new();
        for alternative in &self.any {
            let begin = all.len();
            for test in alternative {
                test.compile(&mut all);
            }
            let end = all.len();
            for (at, jump) in all.iter_mut().enumerate().skip(begin).filter(|(_, one)| one.code != LOAD) {
                let over = (end - at) as u8;
                for way in [&mut jump.jt, &mut jump.jf] {
                    *way = if *way == FAIL { over } else { *way };
                }
            }
            all.push(answer(self.then));
        }
        all.push(answer(if self.any.is_empty() { self.then } else { self.otherwise }));
        all
    }
}

/// Builds a program of `rules` in their order; `rest` for all other calls, and `foreign` for those of another ABI.
fn program(rules: &[Rule], rest: Verdict, foreign: Verdict) -> Vec<sock_filter> {
    let mut all = vec![
        instruction(LOAD, ARCHITECTURE, 0, 0),
        instruction(IF_EQUAL, X86_64, 1, 0),
        answer(foreign),
        instruction(LOAD, NUMBER, 0, 0),
    ];
    for rule in rules {
        let body = rule.compile();
        let over = u8::try_from(body.len()).expect("a rule shorter than the longest jump");
        all.push(instruction(IF_EQUAL, rule.call.cast_unsigned() as u32, 0, over));
        all.extend(body);
    }
    all.extend([instruction(IF_AT_LEAST, X32, 0, 1), answer(foreign), answer(rest)]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ioctl_gives_the_guest_more_of_the_process() {
        // KVM_SET_USER_MEMORY_REGION and its second form, KVM_CREATE_VCPU, KVM_SET_MEMORY_REGION, KVM_IOEVENTFD.
        for number in [0x46, 0x49, 0x41, 0x40, 0x79] {
            let same = |ioctl: u32| ioctl & 0xffff == u32::from(KVM) << 8 | number;
            assert!(!IOCTLS.into_iter().any(same), "{number:#x}");
        }
    }

    const OWN: Own = Own { process: 100, thread: 101 };
    const OWNER: usize = 0x10_0000;

    #[test]
    fn an_entry_into_a_guest_is_decided_first() {
        let run = [9, ioc(NONE, KVM, 0x80, 0).into(), 0, 0, 0, 0];
        let (kill, device) = (Answer::Kill, Descriptors { socket: 5, interrupt: 6 });
        for filter in [of_vcpu(OWN, OWNER, kill), of_process(OWN, kill)] {
            let (verdict, steps) = tests::decide(&filter, libc::SYS_ioctl, run);
            assert_eq!(verdict, libc::SECCOMP_RET_ALLOW);
            assert!(steps <= 9, "{steps} instructions");
        }
        for filter in [of_vcpu(OWN, OWNER, kill), of_device(device, OWN, kill), of_process(OWN, kill)] {
            assert!(filter.len() < 200, "{} instructions", filter.len());
        }
    }

    #[test]
    fn no_thread_chooses_a_signal_for_another_process() {
        let filter = of_process(OWN, Answer::Kill);
        let allows = |call, arguments| tests::decide(&filter, call, arguments).0 == libc::SECCOMP_RET_ALLOW;
        for command in [libc::F_SETOWN, 10] {
            assert!(!allows(libc::SYS_fcntl, [9, int(command).into(), 1, 0, 0, 0]));
        }
        assert!(allows(libc::SYS_fcntl, [9, int(libc::F_SETFL).into(), int(libc::O_NONBLOCK).into(), 0, 0, 0]));
        assert!(!allows(libc::SYS_ioctl, [9, 0x8901, 0, 0, 0, 0]) && !allows(libc::SYS_connect, [9, 0, 0, 0, 0, 0]));
        assert!(!allows(libc::SYS_ioctl, [9, 0x5412, 0, 0, 0, 0]));
    }

    #[test]
    fn signals_stay_in_the_thread() {
        let filter = of_vcpu(OWN, OWNER, Answer::Kill);
        let allows = |call, arguments| tests::decide(&filter, call, arguments).0 == libc::SECCOMP_RET_ALLOW;
        assert!(allows(libc::SYS_tgkill, [100, 101, 6, 0, 0, 0]));
        assert!(!allows(libc::SYS_tgkill, [100, 102, 6, 0, 0, 0]));
        assert!(!allows(libc::SYS_tgkill, [99, 101, 6, 0, 0, 0]));
        assert!(!allows(libc::SYS_rt_sigaction, [10, 0, 0, 8, 0, 0]));
        let owner = OWNER as u64;
        for (command, argument, descriptor, allowed) in [
            (Owner::COMMAND, owner, 9, true),
            (Owner::COMMAND, owner + 8, 9, false),
            (Owner::COMMAND, owner | 1 << 32, 9, false),
            (libc::F_SETOWN, 1, 9, false),
            (10, 9, 9, false),
            (libc::F_SETFL, int(libc::O_ASYNC).into(), 9, true),
            (libc::F_SETFL, int(libc::O_ASYNC | libc::O_NONBLOCK).into(), 9, false),
            (libc::F_SETFL, int(libc::O_ASYNC).into(), 1, false),
        ] {
            let arguments = [descriptor, int(command).into(), argument, 0, 0, 0];
            assert_eq!(allows(libc::SYS_fcntl, arguments), allowed, "{arguments:x?}");
        }
    }

    /// Returns the answer of `program` to a call, and the number of instructions it took.
    pub(in crate::seccomp) fn decide(program: &[sock_filter], call: i64, arguments: [u64; 6]) -> (u32, usize) {
        let mut data = vec![call.cast_unsigned() as u32, X86_64, 0, 0];
        data.extend(arguments.iter().flat_map(|value| [*value as u32, (value >> 32) as u32]));
        let (mut at, mut loaded) = (0, 0);
        for steps in 1.. {
            let sock_filter { code, jt, jf, k } = program[at];
            let holds = match code {
                LOAD => {
                    loaded = data[k as usize / 4];
                    at += 1;
                    continue;
                }
                RETURN => return (k, steps),
                IF_EQUAL => loaded == k,
                IF_AT_LEAST => loaded >= k,
                IF_ANY_BIT => loaded & k != 0,
                _ => panic!("instruction {code:#x}"),
            };
            at += 1 + usize::from(if holds { jt } else { jf });
        }
        unreachable!("a program ends")
    }

    #[test]
    fn each_test_reads_its_argument_and_alternatives_are_tried_in_turn() {
        let rule = |any| Rule { call: 7, any, then: Verdict::Allow, otherwise: Verdict::Kill };
        let allows = |any: Vec<Vec<Test>>, arguments: [u64; 3]| {
            let program = program(&[rule(any)], Verdict::Trap, Verdict::Kill);
            let [a, b, c] = arguments;
            decide(&program, 7, [a, b, c, 0, 0, 0]).0 == Verdict::Allow.code()
        };
        let high = 1 << 32;
        let one_of = || vec![vec![Test::OneOf(1, vec![3, 5, 9])]];
        for (value, allowed) in [(3, true), (5, true), (9, true), (4, false), (high | 5, true)] {
            assert_eq!(allows(one_of(), [5, value, 5]), allowed, "{value}");
        }
        for (value, allowed) in [(0, true), (2, true), (4, false), (7, false)] {
            assert_eq!(allows(vec![vec![Test::Lacks(2, 4)]], [4, 4, value]), allowed, "{value}");
        }
        for (value, allowed) in [(2, false), (3, true), (u64::MAX, true)] {
            assert_eq!(allows(vec![vec![Test::AtLeast(0, 3)]], [value, 0, 0]), allowed, "{value}");
        }
        for (value, allowed) in [(0x3f_ffff, false), (0x40_0000, true), (high, true)] {
            assert_eq!(allows(vec![vec![Test::From(0, 0x40_0000)]], [value, 0, 0]), allowed, "{value:#x}");
        }
        for (value, allowed) in [(0x10_0000, true), (high | 0x10_0000, false), (0x10_0008, false)] {
            assert_eq!(allows(vec![vec![Test::At(2, 0x10_0000)]], [0, 0, value]), allowed, "{value:#x}");
        }
        let both = || vec![vec![Test::OneOf(0, vec![1]), Test::Lacks(1, 1)], vec![Test::AtLeast(0, 8)]];
        for (arguments, allowed) in [([1, 0, 0], true), ([1, 1, 0], false), ([8, 1, 0], true), ([2, 0, 0], false)] {
            assert_eq!(allows(both(), arguments), allowed, "{arguments:?}");
        }
    }

    #[test]
    fn calls_without_a_rule_and_those_of_another_abi_are_told_apart() {
        let rule = Rule { call: 7, any: Vec::new(), then: Verdict::Refuse(13), otherwise: Verdict::Allow };
        let program = program(&[rule], Verdict::Allow, Verdict::Kill);
        let of = |call| decide(&program, call, [0; 6]).0;
        assert_eq!([of(7), of(8)], [Verdict::Refuse(13).code(), Verdict::Allow.code()]);
        assert_eq!(of(i64::from(X32) | 8), Verdict::Kill.code());
    }
}
