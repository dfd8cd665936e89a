//! The seccomp filter of vCPU threads on this host's kernel.
#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not recognise")]

use std::process::{Command, ExitCode};
use std::thread;

use trials::Case;
use vmm::seccomp::{Jail, SeccompError};

/// First argument of the child that makes a forbidden call.
const CHILD: &str = "make-a-forbidden-call";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(CHILD) {
        make_a_forbidden_call();
        return ExitCode::SUCCESS;
    }
    let missing = in_jail(|| ()).err().map(|error| error.to_string());
    let cases: [(&str, fn()); 2] = [
        ("a_confined_thread_works_and_opens_nothing", works_and_opens_nothing),
        ("a_forbidden_call_ends_the_process_by_name", ends_the_process_by_name),
    ];
    let cases = cases.map(|(name, run)| Case::new(name, missing.clone(), run));
    trials::run(cases, trials::expected::seccomp())
}

/// Runs `body` on a confined thread.
fn in_jail<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<T, SeccompError> {
    let jail = Jail::new()?;
    thread::spawn(move || jail.enter().map(|()| body())).join().expect("a confined thread that does not panic")
}

fn works_and_opens_nothing() {
    let opened = in_jail(|| {
        // Memory from the kernel, a clock, the thread's end.
        let memory = vec![1u8; 64 << 20];
        std::hint::black_box((memory, std::time::Instant::now()));
        std::fs::File::open("/dev/null").map(drop).map_err(|error| error.kind())
    });
    assert_eq!(opened.unwrap(), Err(std::io::ErrorKind::PermissionDenied));
}

fn make_a_forbidden_call() {
    let bound = in_jail(|| std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
    eprintln!("the process outlived a forbidden call: {bound:?}");
}

fn ends_the_process_by_name() {
    let child = Command::new(std::env::current_exe().unwrap()).arg(CHILD).output().unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(3), "{said}");
    let socket = format!("system call {:#x}", libc::SYS_socket);
    assert!(said.contains(&socket) && said.contains("--no-seccomp"), "{said}");
}
