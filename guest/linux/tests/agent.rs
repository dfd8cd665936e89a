//! The agent as an ordinary process of this machine, under its client.
#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError, Command, Cut, Ended, Exit};

const SOON: Duration = Duration::from_secs(20);

/// The init in a file. Written once, before any process is started, so that none holds it open for writing.
fn init() -> &'static Path {
    static INIT: OnceLock<PathBuf> = OnceLock::new();
    INIT.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("init-{}", std::process::id()));
        fs::write(&path, linux_guest::INIT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    })
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent whose connection is its descriptor 0.
fn start() -> (Agent<'static>, Process) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = std::process::Command::new(init());
    command.args(["--agent", "0"]).stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    let process = Process(command.spawn().unwrap());
    drop(command);
    let mut agent = Agent::new(ours).unwrap().with_patience(SOON);
    agent.hello(SOON).unwrap();
    (agent, process)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn sh(agent: &mut Agent<'_>, script: &str) -> (Ended, String, String) {
    let argv = words(&["sh", "-c", script]);
    output(agent, &Command::new(&argv))
}

fn output(agent: &mut Agent<'_>, command: &Command<'_>) -> (Ended, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = agent.run(command, &mut out, &mut err).unwrap();
    (ended, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn a_program_runs_with_its_two_outputs_apart_and_its_status() {
    let (mut agent, _process) = start();
    let begin = Instant::now();
    let (ended, out, err) = sh(&mut agent, "echo one; echo two >&2; sleep 0.1; exit 7");
    assert_eq!((ended.exit, out.as_str(), err.as_str(), ended.cut), (Exit::Code(7), "one\n", "two\n", None));
    assert!(ended.wall_ns >= 100_000_000 && u128::from(ended.wall_ns) <= begin.elapsed().as_nanos());
    let (ended, ..) = sh(&mut agent, "kill -SEGV $$");
    assert_eq!((ended.exit, ended.exit.shell_status()), (Exit::Signal(11), 139));
    let (ended, out, _) = sh(&mut agent, "cat; pwd; echo $HOME:$0; ps -o sid= -p $$ >/dev/null && echo ok");
    assert_eq!((ended.exit, out.lines().nth(1)), (Exit::Code(0), Some("/root:sh")), "no input: {out}");
}

#[test]
fn arguments_and_variables_arrive_as_they_are() {
    let (mut agent, _process) = start();
    let argv = words(&["sh", "-c", "printf '[%s]' \"$@\" \"$A\" \"$PATH\"", "name", "a b", "", "'\"\n", "é"]);
    let command = Command::new(&argv).env("A", "=x y=").env("PATH", "/usr/bin:/bin");
    let (ended, out, _) = output(&mut agent, &command);
    assert_eq!(ended.exit, Exit::Code(0));
    assert_eq!(out, "[a b][]['\"\n][é][=x y=][/usr/bin:/bin]");
}

#[test]
fn what_cannot_be_started_is_named_and_the_agent_goes_on() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("not-executable");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let script = script.to_str().unwrap().to_owned();
    for (argv, expected) in [
        (words(&["true", &"x".repeat(70_000)]), "70018 bytes"),
        (vec!["true".to_owned(); 2000], "list of arguments"),
        (words(&["a\0b"]), "zero byte"),
        (words(&["/nowhere/x"]), "in the guest: exec /nowhere/x: No such file"),
        (words(&["nowhere-in-path"]), "in the guest: exec nowhere-in-path: No such file"),
        (words(&[&script]), "Permission denied"),
        (words(&[""]), "No such file"),
        (vec![], "Invalid argument"),
    ] {
        let error = agent.run(&Command::new(&argv), &mut Vec::new(), &mut Vec::new()).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains(expected), "{error}");
    }
    assert_eq!(sh(&mut agent, "exit 3").0.exit, Exit::Code(3));
}

/// As seq(1) prints them.
fn numbers(last: u32) -> String {
    (1..=last).fold(String::new(), |text, number| text + &number.to_string() + "\n")
}

/// A file at its start.
fn file_of(text: &str) -> fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

#[test]
fn a_megabyte_of_input_and_large_outputs_arrive_whole() {
    let (mut agent, _process) = start();
    let (text, argv) = (numbers(200_000), words(&["sh", "-c", "seq 1 300000 >&2 & cat; wait"]));
    let (ended, out, err) = output(&mut agent, &Command::new(&argv).stdin(file_of(&text).as_fd()));
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(out == text && err == numbers(300_000));
}

/// The agent is stopped until request and input lie there together, and reads both at once.
#[test]
fn input_that_comes_with_the_request_reaches_the_program() {
    let (mut agent, process) = start();
    let pid = process.0.id().to_string();
    let signal = |name: &str| std::process::Command::new("kill").args([name, &pid]).status().unwrap();
    let text = numbers(20_000);
    let file = file_of(&text);
    assert!(signal("-STOP").success());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            assert!(signal("-CONT").success());
        });
        let argv = words(&["cat"]);
        let command = Command::new(&argv).stdin(file.as_fd()).limit(SOON);
        let (ended, out, _) = output(&mut agent, &command);
        assert_eq!((ended.exit, ended.cut), (Exit::Code(0), None));
        assert!(out == text);
    });
}

#[test]
fn input_that_a_program_does_not_read_holds_nobody_up() {
    let (mut agent, _process) = start();
    let zero = fs::File::open("/dev/zero").unwrap();
    for (script, expected) in [("exit 4", 4), ("exec <&-; sleep 0.2; exit 5", 5), ("sleep 0.3; exit 6", 6)] {
        let argv = words(&["sh", "-c", script]);
        let (ended, ..) = output(&mut agent, &Command::new(&argv).stdin(zero.as_fd()));
        assert_eq!(ended.exit, Exit::Code(expected), "{script}");
    }
    // Input that stays open and empty.
    let (reader, writer) = std::io::pipe().unwrap();
    let argv = words(&["true"]);
    assert_eq!(output(&mut agent, &Command::new(&argv).stdin(reader.as_fd())).0.exit, Exit::Code(0));
    drop(writer);
    assert_eq!(sh(&mut agent, "exit 1").0.exit, Exit::Code(1));
}

#[test]
fn a_program_at_its_limit_is_killed_with_its_children() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let script = format!("echo begun; (while :; do echo x >>{}; sleep 0.05; done) & sleep 600", file.display());
    let argv = words(&["sh", "-c", &script]);
    let begin = Instant::now();
    let (ended, out, _) = output(&mut agent, &Command::new(&argv).limit(Duration::from_millis(400)));
    assert_eq!((ended.exit, ended.cut, out.as_str()), (Exit::Signal(9), Some(Cut::Limit), "begun\n"));
    assert!(begin.elapsed() < SOON);
    let size = fs::metadata(&file).unwrap().len();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(fs::metadata(&file).unwrap().len(), size, "its child is alive");
    assert_eq!(sh(&mut agent, "echo on").1, "on\n");
}

#[test]
fn a_program_is_killed_when_the_caller_asks_to_stop() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (agent, _process) = start();
    let mut agent = agent.stopped_by(&STOP);
    let argv = words(&["sh", "-c", "echo kept; sleep 600"]);
    let stopper = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(300));
        STOP.store(true, Ordering::Relaxed);
    });
    let (ended, out, _) = output(&mut agent, &Command::new(&argv));
    assert_eq!((ended.cut, out.as_str()), (Some(Cut::Interrupted), "kept\n"));
    stopper.join().unwrap();
    assert!(matches!(agent.get("/proc/version", 1 << 20, &mut Vec::new()), Err(AgentError::Interrupted)));
}

#[test]
fn what_a_program_leaves_behind_does_not_hold_its_end_up() {
    let (mut agent, _process) = start();
    let begin = Instant::now();
    let (ended, out, _) = sh(&mut agent, "echo mine; sleep 30 & exit 0");
    assert_eq!((ended.exit, out.as_str()), (Exit::Code(0), "mine\n"));
    assert!(begin.elapsed() < Duration::from_secs(10));
    // One that writes without end.
    let (ended, ..) = sh(&mut agent, "timeout 2 yes & sleep 0.1; exit 0");
    assert_eq!(ended.exit, Exit::Code(0));
}

struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_of_the_host_ends_the_program() {
    let (mut agent, _process) = start();
    let argv = words(&["sh", "-c", "echo x; sleep 600"]);
    let error = agent.run(&Command::new(&argv), &mut Full, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("standard output: "), "{error}");
    assert_eq!(sh(&mut agent, "exit 2").0.exit, Exit::Code(2));
}

#[test]
fn files_of_a_folder_come_whole_and_bounded() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    // Small ones, which share a write, between others that do not.
    let bytes = |n: usize| vec![n as u8; [0, 1, 60, 4091, 4092, 9000, 70_000][n % 7]];
    fs::create_dir(folder.path().join("sub")).unwrap();
    symlink("0", folder.path().join("link")).unwrap();
    let names: Vec<_> = (0..200).map(|n| if n % 3 == 0 { format!("sub/{n}") } else { n.to_string() }).collect();
    names.iter().enumerate().for_each(|(n, name)| fs::write(folder.path().join(name), bytes(n)).unwrap());
    let path = folder.path().to_str().unwrap();
    let mut found = agent.get_files(path, 4 << 20).unwrap();
    let mut expected: Vec<_> = names.into_iter().enumerate().map(|(n, name)| (name, bytes(n))).collect();
    found.sort();
    expected.sort();
    assert_eq!(found.len(), expected.len());
    assert!(found == expected, "a file with other bytes");
    let one = agent.get_files(&format!("{path}/2"), 1000).unwrap();
    assert_eq!(one, [(String::new(), bytes(2))]);
    assert!(matches!(agent.get_files(path, 1 << 20), Err(AgentError::Flood { .. })));
    assert!(agent.get_files("/nowhere", 1).unwrap_err().is_refusal());
    assert_eq!(sh(&mut agent, "exit 3").0.exit, Exit::Code(3), "the agent is in order");
}

fn get(agent: &mut Agent<'_>, path: &str, to: &Path) -> Result<(), AgentError> {
    agent.get_tree(path, 1 << 30, fs::File::open(to.parent().unwrap()).unwrap().as_fd(), to)
}

#[test]
fn a_file_comes_out_up_to_its_end() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let name = path.to_str().unwrap();
    for size in [0, 1, 65_536, 65_537, 5_000_000] {
        let bytes: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let mut copy = Vec::new();
        assert_eq!(agent.get(name, 1 << 30, &mut copy).unwrap(), u64::from(size));
        assert!(copy == bytes);
    }
    // A size that is said to be 0, or a page.
    for file in ["/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/kallsyms"] {
        let Ok(expected) = fs::read(file) else { continue };
        let mut copy = Vec::new();
        agent.get(file, 1 << 30, &mut copy).unwrap();
        assert_eq!(copy.is_empty(), expected.is_empty(), "{file}");
    }
    // Records, each a read of its own, up to the one that is not there yet.
    let kernel_log = || fs::File::open("/dev/kmsg")?.read(&mut [0; 8192]);
    if kernel_log().is_ok() {
        let mut log = Vec::new();
        agent.get("/dev/kmsg", 1 << 30, &mut log).unwrap();
        assert!(log.split(|&byte| byte == b'\n').filter(|line| line.contains(&b';')).count() > 1);
    }
}

#[test]
fn a_value_is_written_to_a_file_that_exists() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("value");
    let name = path.to_str().unwrap();
    assert!(agent.write(name, b"1").unwrap_err().to_string().contains("open"));
    fs::write(&path, "a long value").unwrap();
    agent.write(name, b"1").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"1");
    agent.write(name, b"").unwrap();
    assert!(agent.write("/proc/version", b"x").unwrap_err().is_refusal());
}

#[test]
fn refusals_of_files_name_the_path_and_leave_the_agent_in_order() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let below = format!("{}/below", file.display());
    let mut out = Vec::new();
    for (path, expected) in [("/nowhere", "No such file"), ("/proc", "Is a directory"), (&below, "Not a directory")] {
        let error = agent.get(path, 1 << 20, &mut out).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains(expected), "{error}");
    }
    assert!(get(&mut agent, "/nowhere", &folder.path().join("x")).unwrap_err().is_refusal());
    assert!(matches!(agent.get(&"x".repeat(5000), 1 << 20, &mut out), Err(AgentError::TooLarge { .. })));
    assert_eq!(sh(&mut agent, "exit 9").0.exit, Exit::Code(9));
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("sub/file"), "text").unwrap();
    fs::write(root.join("sub/deep/large"), vec![3; 200_000]).unwrap();
    fs::write(root.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(root.join("sub/file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("sub/file", root.join("link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o750)).unwrap();
}

fn same_tree(a: &Path, b: &Path) {
    let listing = |root: &Path| {
        let output = std::process::Command::new("find").arg(root).args(["-printf", "%P %y %m %l\n"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(listing(a), listing(b));
    assert!(
        std::process::Command::new("diff").arg("-r").arg("--no-dereference").args([a, b]).status().unwrap().success()
    );
}

#[test]
fn a_folder_comes_out_with_its_links_and_modes() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let (guest, back) = (folder.path().join("guest"), folder.path().join("back"));
    fs::create_dir(&guest).unwrap();
    tree(&guest);
    let socket = std::os::unix::net::UnixListener::bind(guest.join("socket")).unwrap();
    get(&mut agent, guest.to_str().unwrap(), &back).unwrap();
    drop(socket);
    fs::remove_file(guest.join("socket")).unwrap();
    same_tree(&guest, &back);
    // A folder's path with a slash at its end, and a file.
    let again = folder.path().join("again");
    get(&mut agent, &format!("{}/", guest.display()), &again).unwrap();
    same_tree(&guest, &again);
    let one = folder.path().join("one");
    get(&mut agent, guest.join("sub/file").to_str().unwrap(), &one).unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"text");
    assert!(matches!(get(&mut agent, guest.to_str().unwrap(), &again), Err(AgentError::Host { .. })));
    let program = guest.join("program");
    assert!(matches!(agent.get(program.to_str().unwrap(), 1 << 20, &mut Full), Err(AgentError::Stream { .. })));
    assert_eq!(sh(&mut agent, "exit 8").0.exit, Exit::Code(8), "an error of the host leaves the agent in order");
}

#[test]
fn an_agent_that_is_gone_is_an_error_at_once() {
    let (mut agent, mut process) = start();
    agent.power_off().unwrap();
    assert!(process.0.wait().unwrap().success());
    let argv = words(&["true"]);
    assert!(matches!(agent.run(&Command::new(&argv), &mut Vec::new(), &mut Vec::new()), Err(AgentError::Gone(_))));
    let (mut agent, mut process) = start();
    process.0.kill().unwrap();
    assert!(matches!(agent.get("/proc/version", 1 << 20, &mut Vec::new()), Err(AgentError::Gone(_))));
}

#[test]
fn a_program_dies_with_the_connection() {
    let (agent, mut process) = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let script = format!("while :; do echo x >>{}; sleep 0.05; done", file.display());
    let running = std::thread::spawn(move || {
        let mut agent = agent;
        let argv = words(&["sh", "-c", &script]);
        // The panic drops the connection in the middle of the run.
        let mut out = Full;
        let command = Command::new(&argv).limit(Duration::from_millis(300));
        let _ = agent.run(&command, &mut out, &mut Vec::new());
    });
    running.join().unwrap();
    assert!(process.0.wait().unwrap().success(), "the agent ends with its connection");
    let size = fs::metadata(&file).unwrap().len();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(fs::metadata(&file).unwrap().len(), size);
}
