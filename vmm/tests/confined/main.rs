//! The seccomp filter of vCPU threads on this host's kernel.
#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not recognise")]

mod sys;

use std::os::unix::process::{ExitStatusExt as _, parent_id};
use std::process::{Command, ExitCode, Output};
use std::thread;

use trials::Case;
use vmm::seccomp::{Answer, Jail, SeccompError};

/// A call that a child process makes on a confined thread. It gets the number of another process.
type Call = fn(u32) -> bool;

/// Calls by name, with their numbers.
const FORBIDDEN: [(&str, i64, Call); 6] = [
    ("socket", libc::SYS_socket, |_| std::net::UdpSocket::bind("127.0.0.1:0").is_ok()),
    ("tgkill", libc::SYS_tgkill, sys::tgkill),
    ("kill", libc::SYS_kill, sys::kill),
    ("tkill", libc::SYS_tkill, sys::tkill),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, sys::sigqueue),
    ("set_user_memory_region", libc::SYS_ioctl, sys::set_user_memory_region),
];

/// First argument of a child that makes a forbidden call; then its name and the answer.
const CHILD: &str = "make-a-forbidden-call";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [child, name, answer] = &arguments[..]
        && child == CHILD
    {
        make_a_forbidden_call(name, if answer == "kill" { Answer::Kill } else { Answer::Name });
        return ExitCode::SUCCESS;
    }
    let missing = in_jail(Answer::Name, || ()).err().map(|error| error.to_string());
    let cases: [(&str, fn()); 4] = [
        ("a_confined_thread_works_and_opens_nothing", works_and_opens_nothing),
        ("a_forbidden_call_is_named_and_ends_the_process", named_and_ends_the_process),
        ("a_forbidden_call_kills_the_process_at_once", kills_the_process_at_once),
        ("a_confined_thread_signals_its_own_process_only", signals_its_own_process_only),
    ];
    let cases = cases.map(|(name, run)| Case::new(name, missing.clone(), run));
    trials::run(cases, trials::expected::seccomp())
}

/// Runs `body` on a confined thread.
fn in_jail<T: Send + 'static>(answer: Answer, body: impl FnOnce() -> T + Send + 'static) -> Result<T, SeccompError> {
    let jail = Jail::new(answer)?;
    thread::spawn(move || jail.enter().map(|()| body())).join().expect("a confined thread that does not panic")
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

fn make_a_forbidden_call(name: &str, answer: Answer) {
    let (.., call) = FORBIDDEN.into_iter().find(|(known, ..)| *known == name).unwrap();
    let other = parent_id();
    let made = in_jail(answer, move || call(other));
    eprintln!("the process outlived {name}: {made:?}");
}

fn child(name: &str, answer: &str) -> Output {
    Command::new(std::env::current_exe().unwrap()).args([CHILD, name, answer]).output().unwrap()
}

fn named_and_ends_the_process() {
    for (name, number, _) in FORBIDDEN {
        let child = child(name, "name");
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(70), "{name}: {said}");
        assert!(said.contains(&format!("system call {number:#x} ")) && said.contains("--no-seccomp"), "{said}");
    }
}

fn kills_the_process_at_once() {
    for (name, ..) in FORBIDDEN {
        let child = child(name, "kill");
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!((child.status.signal(), &*said), (Some(libc::SIGSYS), ""), "{name}");
    }
}
