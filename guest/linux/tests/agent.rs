//! The agent as an ordinary process of this machine, under its client.
#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::fs;
use std::io::Read as _;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError, Cut, Ended};

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

struct Process(Child, UnixStream);

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
    command.arg("--agent").stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    let process = Process(command.spawn().unwrap(), ours.try_clone().unwrap());
    drop(command);
    let mut agent = Agent::new(ours).unwrap();
    agent.hello(SOON).unwrap();
    (agent, process)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn sh(agent: &mut Agent<'_>, script: &str) -> (Ended, String, String) {
    output(agent, &["sh", "-c", script], None)
}

fn output(agent: &mut Agent<'_>, argv: &[&str], limit: Option<Duration>) -> (Ended, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = agent.run(&words(argv), limit, &mut out, &mut err).unwrap();
    (ended, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// The agent serves the next request.
fn is_in_order(agent: &mut Agent<'_>) {
    assert_eq!(sh(agent, "exit 3").0.status, 3);
}

#[test]
fn a_program_runs_with_its_arguments_its_two_outputs_apart_and_its_status() {
    let (mut agent, _process) = start();
    let begin = Instant::now();
    let (ended, out, err) = sh(&mut agent, "echo one; echo two >&2; sleep 0.1; exit 7");
    assert_eq!((ended.status, out.as_str(), err.as_str(), ended.cut), (7, "one\n", "two\n", None));
    assert!(ended.wall_ns >= 100_000_000 && u128::from(ended.wall_ns) <= begin.elapsed().as_nanos());
    assert_eq!(sh(&mut agent, "kill -SEGV $$").0.status, 139);
    let (ended, out, _) = sh(&mut agent, "cat; pwd; echo $HOME:$PATH:$0");
    assert_eq!(ended.status, 0);
    assert_eq!(out, "/root\n/root:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:sh\n", "no input");
    let argv = ["sh", "-c", "printf '[%s]' \"$@\"", "name", "a b", "", "'\"\n", "é"];
    assert_eq!(output(&mut agent, &argv, None).1, "[a b][]['\"\n][é]");
    let numbers = |last: u32| (1..=last).fold(String::new(), |text, number| text + &number.to_string() + "\n");
    let (ended, out, err) = sh(&mut agent, "seq 1 300000 >&2 & seq 1 200000; wait");
    assert!(ended.status == 0 && out == numbers(200_000) && err == numbers(300_000), "large outputs");
}

#[test]
fn what_cannot_be_started_is_named_and_the_agent_goes_on() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("not-executable");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    for (argv, expected) in [
        (words(&["true", &"x".repeat(70_000)]), "the request has 70006 bytes"),
        (vec!["true".to_owned(); 2000], "in the guest: run : Invalid argument"),
        (words(&["a\0b"]), "zero byte"),
        (words(&["/nowhere/x"]), "in the guest: exec /nowhere/x: No such file"),
        (words(&["nowhere-in-path"]), "in the guest: exec nowhere-in-path: No such file"),
        (words(&[script.to_str().unwrap()]), "Permission denied"),
        (words(&[""]), "No such file"),
        (vec![], "Invalid argument"),
    ] {
        let error = agent.run(&argv, None, &mut Vec::new(), &mut Vec::new()).unwrap_err();
        assert!(matches!(&error, AgentError::Refused(why) if why.contains(expected)), "{error}");
    }
    is_in_order(&mut agent);
}

#[test]
fn a_program_at_its_limit_is_killed_with_its_children() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let script = format!("echo begun; (while :; do echo x >>{}; sleep 0.05; done) & sleep 600", file.display());
    let (ended, out, _) = output(&mut agent, &["sh", "-c", &script], Some(Duration::from_millis(400)));
    assert_eq!((ended.status, ended.cut, out.as_str()), (137, Some(Cut::Limit), "begun\n"));
    let size = fs::metadata(&file).unwrap().len();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(fs::metadata(&file).unwrap().len(), size, "its child is alive");
    is_in_order(&mut agent);
}

#[test]
fn a_program_is_killed_when_the_caller_asks_to_stop() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (agent, _process) = start();
    let mut agent = agent.stopped_by(&STOP);
    let stopper = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(300));
        STOP.store(true, Ordering::Relaxed);
    });
    let (ended, out, _) = sh(&mut agent, "echo kept; sleep 600");
    assert_eq!((ended.cut, out.as_str()), (Some(Cut::Interrupted), "kept\n"));
    stopper.join().unwrap();
    assert!(matches!(agent.get("/proc/version", 1 << 20), Err(AgentError::Interrupted)));
}

#[test]
fn what_a_program_leaves_behind_does_not_hold_its_end_up() {
    let (mut agent, _process) = start();
    let begin = Instant::now();
    let (ended, out, _) = sh(&mut agent, "echo mine; sleep 30 & exit 0");
    assert_eq!((ended.status, out.as_str()), (0, "mine\n"));
    assert!(begin.elapsed() < Duration::from_secs(10));
    // One that writes without end.
    assert_eq!(sh(&mut agent, "timeout 2 yes & sleep 0.1; exit 0").0.status, 0);
}

#[test]
fn a_full_disk_of_the_host_ends_the_program() {
    let (mut agent, _process) = start();
    let argv = words(&["sh", "-c", "echo x; sleep 600"]);
    let error = agent.run(&argv, None, &mut &mut [0; 1][..], &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("standard output: "), "{error}");
    is_in_order(&mut agent);
}

#[test]
fn files_of_a_folder_come_whole_and_bounded() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    // Small ones, which share a write, between others that do not.
    let bytes = |n: usize| vec![n as u8; [0, 1, 60, 4091, 4092, 9000, 70_000][n % 7]];
    fs::create_dir(folder.path().join("sub")).unwrap();
    symlink("0", folder.path().join("link")).unwrap();
    let name = |n: usize| if n.is_multiple_of(3) { format!("sub/{n}") } else { n.to_string() };
    let mut expected: Vec<_> = (0..200).map(|n| (name(n), bytes(n))).collect();
    for (name, bytes) in &expected {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let mut found = agent.get_files(path, 4 << 20).unwrap();
    found.sort();
    expected.sort();
    assert!(found == expected, "{} files of {}, or one with other bytes", found.len(), expected.len());
    assert_eq!(agent.get_files(&format!("{path}/2"), 1000).unwrap(), [(String::new(), bytes(2))]);
    assert!(matches!(agent.get_files(path, 1 << 20), Err(AgentError::Flood { .. })));
    is_in_order(&mut agent);
}

fn get(agent: &mut Agent<'_>, path: &Path, to: &Path) -> Result<(), AgentError> {
    agent.get_tree(path.to_str().unwrap(), 1 << 30, fs::File::open(to.parent().unwrap()).unwrap().as_fd(), to)
}

#[test]
fn a_file_comes_out_up_to_its_end() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for size in [0, 1, 65_536, 65_537, 5_000_000] {
        let bytes: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        assert!(agent.get(path.to_str().unwrap(), 1 << 30).unwrap() == bytes);
    }
    // A size that is said to be 0, or a page.
    for file in ["/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/kallsyms"] {
        let Ok(expected) = fs::read(file) else { continue };
        assert_eq!(agent.get(file, 1 << 30).unwrap().is_empty(), expected.is_empty(), "{file}");
    }
    // Records, each a read of its own, up to the one that is not there yet.
    let kernel_log = || fs::File::open("/dev/kmsg")?.read(&mut [0; 8192]);
    if kernel_log().is_ok() {
        let log = agent.get("/dev/kmsg", 1 << 30).unwrap();
        assert!(log.split(|&byte| byte == b'\n').filter(|line| line.contains(&b';')).count() > 1);
    }
}

#[test]
fn a_value_is_written_to_a_file_that_exists_and_refusals_name_the_path() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("value");
    let name = file.to_str().unwrap();
    let refused = |done: Result<(), AgentError>, expected: &str| {
        assert!(matches!(&done, Err(AgentError::Refused(why)) if why.contains(expected)), "{expected}: {done:?}");
    };
    refused(agent.write(name, b"1"), &format!("open {name}: No such file"));
    fs::write(&file, "a long value").unwrap();
    agent.write(name, b"1").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"1");
    agent.write(name, b"").unwrap();
    refused(agent.write("/proc/version", b"x"), "/proc/version");
    for (path, expected) in [
        ("/nowhere", "open /nowhere: No such file"),
        (&*format!("{name}/below"), "Not a directory"),
        (&*"x".repeat(5000), "a path has 5000 bytes"),
    ] {
        refused(agent.get(path, 1 << 20).map(drop), expected);
        refused(get(&mut agent, Path::new(path), &folder.path().join("x")), expected);
    }
    is_in_order(&mut agent);
}

/// Runs a shell's script in a folder, and returns what it prints.
fn shell(root: &Path, script: &str) -> Vec<u8> {
    let done = std::process::Command::new("sh").current_dir(root).args(["-ec", script]).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    done.stdout
}

const TREE: &str = "mkdir -p sub/deep empty; printf text >sub/file; head -c 200000 /dev/zero >sub/deep/large; echo '#!/bin/sh' >program; \
                    chmod 755 program; chmod 640 sub/file; chmod 750 empty; ln -s sub/file link; ln -s '/nowhere/at all' dangling";

fn same_tree(a: &Path, b: &Path) {
    let archive = |root| shell(root, "tar c --sort=name --mtime=@0 .");
    assert!(archive(a) == archive(b));
}

#[test]
fn a_folder_comes_out_with_its_links_and_modes() {
    let (mut agent, _process) = start();
    let folder = tempfile::tempdir().unwrap();
    let [guest, back, again, one] = ["guest", "back", "again", "one"].map(|name| folder.path().join(name));
    fs::create_dir(&guest).unwrap();
    shell(&guest, TREE);
    let socket = std::os::unix::net::UnixListener::bind(guest.join("socket")).unwrap();
    get(&mut agent, &guest, &back).unwrap();
    drop(socket);
    fs::remove_file(guest.join("socket")).unwrap();
    same_tree(&guest, &back);
    // A folder's path with a slash at its end, and a file.
    get(&mut agent, &guest.join(""), &again).unwrap();
    same_tree(&guest, &again);
    get(&mut agent, &guest.join("sub/file"), &one).unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"text");
    assert!(matches!(get(&mut agent, &guest, &again), Err(AgentError::Host { .. })));
    is_in_order(&mut agent);
}

#[test]
fn an_agent_that_is_gone_is_an_error_at_once() {
    let (mut agent, mut process) = start();
    agent.power_off().unwrap();
    assert!(process.0.wait().unwrap().success());
    let ran = agent.run(&words(&["true"]), None, &mut Vec::new(), &mut Vec::new());
    assert!(matches!(ran, Err(AgentError::Gone(_))));
    let (mut agent, mut process) = start();
    process.0.kill().unwrap();
    assert!(matches!(agent.get("/proc/version", 1 << 20), Err(AgentError::Gone(_))));
}

#[test]
fn a_program_dies_with_the_connection() {
    let (mut agent, mut process) = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let script = format!("while :; do echo x >>{}; echo y; sleep 0.05; done", file.display());
    let connection = process.1.try_clone().unwrap();
    let cut = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        connection.shutdown(Shutdown::Both).unwrap();
    });
    let ran = agent.run(&words(&["sh", "-c", &script]), None, &mut Vec::new(), &mut Vec::new());
    assert!(matches!(ran, Err(AgentError::Gone(_))));
    cut.join().unwrap();
    assert!(process.0.wait().unwrap().success(), "the agent ends with its connection");
    let size = fs::metadata(&file).unwrap().len();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(fs::metadata(&file).unwrap().len(), size);
}
