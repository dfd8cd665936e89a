//! The seccomp filters of a guest's threads on this host's kernel.
#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not recognise")]

mod sys;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{ExitStatusExt as _, parent_id};
use std::process::{Command, ExitCode};
use std::thread;

use arch_pmu::intel::PerfEvtSel;
use host_pmu::backend::perf::PerfBackend;
use host_pmu::backend::{Backend as _, BackendKey};
use host_pmu::kick::Owner;
use host_pmu::open;
use trials::Case;
use vmm::seccomp::{Descriptors, SeccompError, confine_device, confine_vcpu};

/// A call that a child process makes on a confined thread: its name, its number, and its arguments, given the number of
/// another process.
type Call = (&'static str, i64, fn(i64) -> [i64; 6]);

/// A page that may hold the owner of a vCPU's events, and a page's size.
const OWNER: i64 = (Owner::END as u64).cast_signed() - PAGE;
const PAGE: i64 = 4096;

const NO_FILE: i64 = -1;
const COMMAND: i64 = Owner::COMMAND as i64;
const O_ASYNC: i64 = libc::O_ASYNC as i64;
const FIXED: i64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as i64;
const REMAP: i64 = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as i64;

/// Calls which neither kind of thread may make.
const FORBIDDEN: [Call; 19] = [
    // The x32 ABI's number of ptrace, which the rules by number do not have.
    ("a call of the x32 ABI", 0x4000_0000 | libc::SYS_ptrace, |_| [0; 6]),
    ("write to another descriptor", libc::SYS_write, |_| [1, 0, 0, 0, 0, 0]),
    ("socket", libc::SYS_socket, |_| [libc::AF_INET.into(), libc::SOCK_DGRAM.into(), 0, 0, 0, 0]),
    ("tgkill another process", libc::SYS_tgkill, |process| [process, sys::gettid(), 0, 0, 0, 0]),
    ("tgkill another thread", libc::SYS_tgkill, |_| [own(), own(), 0, 0, 0, 0]),
    ("rt_sigaction", libc::SYS_rt_sigaction, |_| [libc::SIGUSR1.into(), 0, 0, 8, 0, 0]),
    ("kill", libc::SYS_kill, |process| [process, 0, 0, 0, 0, 0]),
    ("tkill", libc::SYS_tkill, |_| [sys::gettid(), 0, 0, 0, 0, 0]),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, |process| [process, 0, 0, 0, 0, 0]),
    ("set_user_memory_region", libc::SYS_ioctl, |_| [NO_FILE, 0x4020_ae46, 0, 0, 0, 0]),
    ("F_SETOWN_EX of any owner", libc::SYS_fcntl, |_| [NO_FILE, COMMAND, PAGE, 0, 0, 0]),
    ("F_SETOWN_EX above 4 GiB", libc::SYS_fcntl, |_| [NO_FILE, COMMAND, 1 << 32 | OWNER, 0, 0, 0]),
    ("F_SETSIG", libc::SYS_fcntl, |_| [NO_FILE, 10, libc::SIGKILL.into(), 0, 0, 0]),
    ("O_ASYNC of a standard stream", libc::SYS_fcntl, |_| [0, libc::F_SETFL.into(), O_ASYNC, 0, 0, 0]),
    ("F_SETFL of more", libc::SYS_fcntl, |_| [9, libc::F_SETFL.into(), O_ASYNC | i64::from(libc::O_APPEND), 0, 0, 0]),
    ("mprotect of an owner", libc::SYS_mprotect, |_| [OWNER, PAGE, libc::PROT_WRITE.into(), 0, 0, 0]),
    ("munmap of an owner", libc::SYS_munmap, |_| [OWNER, PAGE, 0, 0, 0, 0]),
    ("mremap over an owner", libc::SYS_mremap, |_| [1 << 40, PAGE, PAGE, REMAP, OWNER, 0]),
    ("mmap over an owner", libc::SYS_mmap, |_| [OWNER, PAGE, libc::PROT_WRITE.into(), FIXED, -1, 0]),
];

/// Calls that a vCPU's thread may make, or one with other descriptors, and a device's may not.
const FORBIDDEN_TO_DEVICES: [Call; 3] = [
    ("recvfrom another socket", libc::SYS_recvfrom, |_| [NO_FILE, 0, 0, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, |_| [0, 0, -1, -1, 0, 0]),
    ("KVM_RUN", libc::SYS_ioctl, |_| [NO_FILE, 0xae80, 0, 0, 0, 0]),
];

fn own() -> i64 {
    std::process::id().into()
}

/// A kind of thread, by its name for a child.
const VCPU: &str = "vcpu";
const DEVICE: &str = "device";

/// First argument of a child that makes a forbidden call; then the thread and the call's name.
const CHILD: &str = "make-a-forbidden-call";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [child, thread, name] = &arguments[..]
        && child == CHILD
    {
        make_a_forbidden_call(thread, name);
        return ExitCode::SUCCESS;
    }
    let missing = in_jail(|| ()).err().map(|error| error.to_string());
    let cases: [(&str, fn()); 5] = [
        ("a_confined_device_moves_bytes_through_its_socket", device_moves_bytes),
        ("a_confined_thread_works_signals_itself_and_opens_nothing", works_signals_itself_and_opens_nothing),
        ("a_forbidden_call_kills_the_process_at_once", kills_the_process_at_once),
        ("a_confined_thread_opens_events_that_signal_it", opens_events),
        ("threads_leave_their_owners_to_later_ones", owners_are_reused),
    ];
    let no_perf = |name: &str| (name.contains("opens_events")).then(|| open::probe(&BackendKey::CpuClock).err());
    let cases = cases.map(|(name, run)| {
        let missing = missing.clone().or_else(|| no_perf(name).flatten().map(|error| error.to_string()));
        Case::new(name, missing, run)
    });
    trials::run(cases)
}

/// Runs `body` on a confined vCPU thread.
fn in_jail<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<T, SeccompError> {
    on_thread(confine_vcpu, body)
}

fn on_thread<G, T: Send + 'static>(
    confine: impl FnOnce() -> Result<G, SeccompError> + Send + 'static,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SeccompError> {
    let confined = thread::spawn(move || confine().map(|_held| body()));
    confined.join().expect("a confined thread that does not panic")
}

fn device_moves_bytes() {
    let (mut own, mut other) = UnixStream::pair().unwrap();
    let own_descriptors = Descriptors { socket: own.as_raw_fd(), interrupt: libc::STDERR_FILENO };
    other.write_all(b"in").unwrap();
    let moved = on_thread(
        move || confine_device(own_descriptors),
        move || {
            let mut bytes = vec![0; 64 << 20];
            let count = own.read(&mut bytes).unwrap();
            own.write_all(b"out").unwrap();
            own.shutdown(Shutdown::Both).unwrap();
            let opened = std::fs::File::open("/dev/null").map(drop).map_err(|error| error.kind());
            (bytes[..count].to_vec(), opened)
        },
    );
    assert_eq!(moved.unwrap(), (b"in".to_vec(), Err(std::io::ErrorKind::PermissionDenied)));
    let mut sent = String::new();
    other.read_to_string(&mut sent).unwrap();
    assert_eq!(sent, "out");
}

fn works_signals_itself_and_opens_nothing() {
    let done = in_jail(|| {
        // Memory from the kernel, a clock, the thread's end.
        let memory = vec![1u8; 64 << 20];
        std::hint::black_box((memory, std::time::Instant::now()));
        let opened = std::fs::File::open("/dev/null").map(drop).map_err(|error| error.kind());
        (sys::call(libc::SYS_tgkill, [own(), sys::gettid(), 0, 0, 0, 0]), opened)
    });
    assert_eq!(done.unwrap(), (true, Err(std::io::ErrorKind::PermissionDenied)));
}

fn opens_events() {
    let open = || {
        let mut backend = PerfBackend::new(&BackendKey::CpuClock, 1_000_000, None).unwrap();
        let _owner = confine_vcpu().unwrap();
        // Cycles, which the clock stands in for.
        let mut event = backend.open(PerfEvtSel::from_bits(0x53_003c).spec(), 1 << 40).unwrap();
        let count = backend.pause(&mut event).unwrap();
        backend.release(event);
        count
    };
    assert!(thread::spawn(open).join().unwrap() > 0);
}

fn owners_are_reused() {
    // There is memory for 768 at a time.
    for _ in 0..800 {
        in_jail(|| ()).unwrap();
    }
}

fn make_a_forbidden_call(thread: &str, name: &str) {
    let all = FORBIDDEN.into_iter().chain(FORBIDDEN_TO_DEVICES);
    let (_, number, arguments) = all.into_iter().find(|(known, ..)| *known == name).unwrap();
    let other = parent_id().into();
    let call = move || sys::call(number, arguments(other));
    let (socket, _other_end) = UnixStream::pair().unwrap();
    let own = Descriptors { socket: socket.as_raw_fd(), interrupt: libc::STDERR_FILENO };
    let made = if thread == DEVICE { on_thread(move || confine_device(own), call) } else { in_jail(call) };
    eprintln!("the process outlived {name}: {made:?}");
}

fn kills_the_process_at_once() {
    let of = |thread, calls: &'static [Call]| calls.iter().map(move |&(name, ..)| (thread, name));
    for (thread, name) in of(VCPU, &FORBIDDEN).chain(of(DEVICE, &FORBIDDEN)).chain(of(DEVICE, &FORBIDDEN_TO_DEVICES)) {
        let child = Command::new(std::env::current_exe().unwrap()).args([CHILD, thread, name]).output().unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!((child.status.signal(), &*said), (Some(libc::SIGSYS), ""), "{thread}, {name}");
    }
}
