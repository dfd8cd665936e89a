//! The binary under test.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const VPMU: &str = env!("CARGO_BIN_EXE_vpmu");

/// A command of the binary in a folder, without anything of this process that changes what it prints.
pub(crate) fn vpmu(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(VPMU);
    command.args(args).current_dir(dir).env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    command
}

/// Runs the binary in a folder to its end.
pub(crate) fn run(dir: &Path, args: &[&str]) -> Output {
    vpmu(dir, args).output().expect("the binary starts")
}

/// The document that a run printed.
pub(crate) fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Longest wait for the moment of a signal, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Starts a command, sends it `signal` once its process has `begun`, and returns its end.
pub(crate) fn ended_by(signal: &str, command: &mut Command, mut begun: impl FnMut(u32) -> bool) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let start = Instant::now();
    while !begun(child.id()) {
        assert_eq!(child.try_wait().expect("a child"), None, "it ended by itself");
        assert!(start.elapsed() < PATIENCE, "it does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    child.wait_with_output().expect("its end")
}
