//! Prerequisites of more than one module.

use std::ffi::OsStr;
use std::process::{Child, Command};

use host_pmu::backend::BackendKey;
use vpmu::setting::backend::this_host;

/// Why no guest runs here.
pub(crate) fn kvm() -> Result<(), String> {
    vmm::kvm::Host::open().map(drop).map_err(|error| error.to_string())
}

/// Why no event of the stand-in opens here.
pub(crate) fn events() -> Result<(), String> {
    this_host(&BackendKey::CpuClock).map_err(|refused| refused.why)
}

/// Why no guest with host events runs here.
pub(crate) fn guests() -> Result<(), String> {
    kvm().and_then(|()| events())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program in namespaces of its own: what it starts and mounts goes with it.
pub(crate) fn alone(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program);
    command
}

/// Why no program can.
pub(crate) fn namespaces() -> Result<(), String> {
    let is_made = alone("true").output().is_ok_and(|made| made.status.success());
    if is_made { Ok(()) } else { Err("no namespaces of processes and mounts can be made here (root?)".to_owned()) }
}

/// Why a program cannot be run.
pub(crate) fn program(name: &str, package: &str) -> Result<(), String> {
    let found = Command::new(name).arg("--version").output().is_ok();
    if found { Ok(()) } else { Err(format!("{name} is not installed (Debian package: {package})")) }
}

/// Returns whether a variable that demands a part of the trials is 1.
pub(crate) fn is_required(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// A process that does not outlive its owner.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The child is killed by its own handle: no other process can be meant. It may have ended already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
