//! The seccomp filters of a guest's threads on this host's kernel.
#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not recognise")]

mod sys;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{ExitStatusExt as _, parent_id};
use std::process::{Command, ExitCode, Output};
use std::thread;

use trials::Case;
use vmm::seccomp::{Answer, Descriptors, Jail, SeccompError};

/// A call that a child process makes on a confined thread. It gets the number of another process.
type Call = fn(u32) -> bool;

/// Calls by name, with their numbers, which neither kind of thread may make.
const FORBIDDEN: [(&str, i64, Call); 6] = [
    ("socket", libc::SYS_socket, |_| std::net::UdpSocket::bind("127.0.0.1:0").is_ok()),
    ("tgkill", libc::SYS_tgkill, sys::tgkill),
    ("kill", libc::SYS_kill, sys::kill),
    ("tkill", libc::SYS_tkill, sys::tkill),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, sys::sigqueue),
    ("set_user_memory_region", libc::SYS_ioctl, sys::set_user_memory_region),
];

/// Calls that a vCPU's thread may make, or one with other descriptors, and a device's may not.
const FORBIDDEN_TO_DEVICES: [(&str, i64, Call); 4] = [
    ("write to another descriptor", libc::SYS_write, |_| std::io::stdout().write_all(b"x\n").is_ok()),
    ("recvfrom another socket", libc::SYS_recvfrom, sys::receive_from_another),
    ("perf_event_open", libc::SYS_perf_event_open, sys::perf_event_open),
    ("KVM_RUN", libc::SYS_ioctl, sys::kvm_run),
];

/// A kind of thread, by its name for a child.
const VCPU: &str = "vcpu";
const DEVICE: &str = "device";

/// First argument of a child that makes a forbidden call; then the thread, the call's name and the answer.
const CHILD: &str = "make-a-forbidden-call";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [child, thread, name, answer] = &arguments[..]
        && child == CHILD
    {
        make_a_forbidden_call(thread, name, if answer == "kill" { Answer::Kill } else { Answer::Name });
        return ExitCode::SUCCESS;
    }
    let missing = in_jail(Answer::Name, || ()).err().map(|error| error.to_string());
    let cases: [(&str, fn()); 5] = [
        ("a_confined_device_moves_bytes_through_its_socket", device_moves_bytes),
        ("a_confined_thread_works_and_opens_nothing", works_and_opens_nothing),
        ("a_forbidden_call_is_named_and_ends_the_process", named_and_ends_the_process),
        ("a_forbidden_call_kills_the_process_at_once", kills_the_process_at_once),
        ("a_confined_thread_signals_its_own_process_only", signals_its_own_process_only),
    ];
    let cases = cases.map(|(name, run)| Case::new(name, missing.clone(), run));
    trials::run(cases, trials::expected::seccomp())
}

/// Runs `body` on a confined vCPU thread.
fn in_jail<T: Send + 'static>(answer: Answer, body: impl FnOnce() -> T + Send + 'static) -> Result<T, SeccompError> {
    on_thread(Jail::of_vcpu(answer)?, body)
}

fn on_thread<T: Send + 'static>(jail: Jail, body: impl FnOnce() -> T + Send + 'static) -> Result<T, SeccompError> {
    thread::spawn(move || jail.enter().map(|()| body())).join().expect("a confined thread that does not panic")
}

fn device_moves_bytes() {
    let (mut own, mut other) = UnixStream::pair().unwrap();
    let own_descriptors = Descriptors { socket: own.as_raw_fd(), interrupt: libc::STDERR_FILENO };
    let jail = Jail::of_device(own_descriptors, Answer::Name).unwrap();
    other.write_all(b"in").unwrap();
    let moved = on_thread(jail, move || {
        let mut bytes = vec![0; 64 << 20];
        let count = own.read(&mut bytes).unwrap();
        own.write_all(b"out").unwrap();
        own.shutdown(Shutdown::Both).unwrap();
        let opened = std::fs::File::open("/dev/null").map(drop).map_err(|error| error.kind());
        (bytes[..count].to_vec(), opened)
    });
    assert_eq!(moved.unwrap(), (b"in".to_vec(), Err(std::io::ErrorKind::PermissionDenied)));
    let mut sent = String::new();
    other.read_to_string(&mut sent).unwrap();
    assert_eq!(sent, "out");
}

fn works_and_opens_nothing() {
    let opened = in_jail(Answer::Name, || {
        // Memory from the kernel, a clock, the thread's end.
        let memory = vec![1u8; 64 << 20];
        std::hint::black_box((memory, std::time::Instant::now()));
        std::fs::File::open("/dev/null").map(drop).map_err(|error| error.kind())
    });
    assert_eq!(opened.unwrap(), Err(std::io::ErrorKind::PermissionDenied));
}

fn signals_its_own_process_only() {
    let own = std::process::id();
    assert!(in_jail(Answer::Name, move || sys::tgkill(own)).unwrap());
}

fn make_a_forbidden_call(thread: &str, name: &str, answer: Answer) {
    let all = FORBIDDEN.into_iter().chain(FORBIDDEN_TO_DEVICES);
    let (.., call) = all.into_iter().find(|(known, ..)| *known == name).unwrap();
    let other = parent_id();
    let (socket, _other_end) = UnixStream::pair().unwrap();
    let own = Descriptors { socket: socket.as_raw_fd(), interrupt: libc::STDERR_FILENO };
    let jail = if thread == DEVICE { Jail::of_device(own, answer) } else { Jail::of_vcpu(answer) };
    let made = jail.and_then(|jail| on_thread(jail, move || call(other)));
    eprintln!("the process outlived {name}: {made:?}");
}

/// What each kind of thread may not do.
fn forbidden() -> impl Iterator<Item = (&'static str, &'static str, i64)> {
    let both = [VCPU, DEVICE].into_iter().flat_map(|thread| FORBIDDEN.map(|(name, number, _)| (thread, name, number)));
    both.chain(FORBIDDEN_TO_DEVICES.map(|(name, number, _)| (DEVICE, name, number)))
}

fn child(thread: &str, name: &str, answer: &str) -> Output {
    Command::new(std::env::current_exe().unwrap()).args([CHILD, thread, name, answer]).output().unwrap()
}

fn named_and_ends_the_process() {
    for (thread, name, number) in forbidden() {
        let child = child(thread, name, "name");
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(70), "{thread}, {name}: {said}");
        assert!(said.contains(&format!("system call {number:#x} ")) && said.contains("--no-seccomp"), "{said}");
    }
}

fn kills_the_process_at_once() {
    for (thread, name, _) in forbidden() {
        let child = child(thread, name, "kill");
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!((child.status.signal(), &*said), (Some(libc::SIGSYS), ""), "{thread}, {name}");
    }
}
