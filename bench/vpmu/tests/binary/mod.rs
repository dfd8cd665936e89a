//! The binary under test.

use std::path::Path;
use std::process::{Command, Output, Stdio};

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
