//! The guests of an experiment: one kernel with one userland, in which perf is.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linux_guest::agent::Agent;
use results::document::LinuxParameters;
use results::error::Error;
use results::open;
use vmm::boot::linux::Kernel;
use vmm::kvm::{Host, linux_refusal};
use vmm::machine::linux::{LinuxPlan, PcOutcome};
use vmm::machine::{CounterSource, Plan as Machine};
use vmm::outcome::End;

use super::spec::LinuxGuestOptions;
use super::task::{FTEST, PERF};
use crate::machine::linux::guest::{Failure, Worked, with_agent};
use crate::machine::linux::place::{Placed, in_path};
use crate::machine::linux::spec::BootOptions;
use crate::machine::linux::userland;
use crate::setting::backend::open_kvm;
use crate::sys;

/// Time for a kernel to come up.
const BOOT: Duration = Duration::from_secs(300);
/// A guest is ended after this time: perf alone may take minutes on an emulated host.
const LONGEST: Duration = Duration::from_secs(1800);

/// One kernel with one userland, for any number of guests.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) host: Arc<Host>,
    pub(super) machine: Machine,
    kernel: Kernel,
    initrd: Vec<u8>,
    options: BootOptions,
    /// perf's own words on its version.
    version: String,
}

impl Boot {
    /// Reads the kernel and makes the initial RAM disk.
    pub(super) fn new(path: &Path, guest: &LinuxGuestOptions, machine: &Machine) -> Result<Self, Error> {
        linux_refusal().map_err(|why| Error::host("cannot boot a kernel", why, ""))?;
        let host = Arc::new(open_kvm()?);
        let kernel = userland::kernel(path)?;
        let perf = find(&guest.perf, std::env::var_os("PATH").as_deref())?;
        let version = version(&perf)?;
        let (options, perf) = (guest.boot.clone(), Placed { host: perf, guest: Some(PERF.to_owned()) });
        let of = (path, kernel.release());
        let mut files = userland::initramfs(of, options.modules.as_deref(), &[], &[perf])?;
        files
            .file(FTEST, 0o755, guest::FTEST)
            .map_err(|error| Error::usage("cannot put the workload into the guest", error.to_string(), ""))?;
        Ok(Self { host, machine: machine.clone(), kernel, initrd: userland::finish(files)?, options, version })
    }

    /// The guest for the document, with the command that is measured.
    pub(super) fn parameters(&self, command: &[String]) -> LinuxParameters {
        LinuxParameters {
            release: Some(self.kernel.release().to_owned()),
            cpu: self.machine.cpu.name().to_owned(),
            perf: self.version.clone(),
            memory: self.options.memory,
            command: command.join(" "),
        }
    }

    /// Boots a guest with `behind` its counters, lets `work` be done in it by its agent, and waits for its end.
    ///
    /// # Errors
    /// Conditions that make further guests pointless.
    pub(super) fn run<T>(
        &self,
        behind: CounterSource,
        work: impl FnOnce(&mut Agent<'static>) -> Result<T, Failure>,
    ) -> Result<(PcOutcome, Result<T, String>), Error> {
        let plan = LinuxPlan {
            machine: Machine { behind, time_limit: LONGEST, ..self.machine.clone() },
            memory: self.options.memory,
            initrd: self.initrd.clone(),
            command_line: self.options.append.clone(),
        };
        let Worked { mut outcome, made, .. } =
            with_agent(&self.host, self.kernel.clone(), plan, BOOT, |agent, _| work(agent))?;
        if outcome.end == End::Stopped && !sys::interrupted().load(Ordering::Relaxed) {
            // Nobody else stopped it: why its work failed says more.
            outcome.end = End::Done;
        }
        Ok((outcome, made.map_err(|Failure { what, why, .. }| format!("{what}: {why}"))))
    }
}

/// perf's file: a path with a slash, or a name in PATH.
fn find(perf: &Path, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let is_path = perf.to_string_lossy().contains('/');
    let found = if is_path { perf.is_file().then(|| perf.to_owned()) } else { in_path(perf, path) };
    let found = found.ok_or_else(|| {
        Error::usage(
            format!("no perf: {}", perf.display()),
            if is_path { "there is no such file" } else { "no such program is in PATH" },
            "install it (Debian package: linux-perf), or name its file with --perf, ./perf for one here",
        )
    })?;
    let mut magic = [0; 4];
    let read = open::found(&found, u64::MAX).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Ok(()) if magic == *b"\x7fELF" => Ok(found),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Err(Error::usage(format!("cannot read {}", found.display()), error.to_string(), ""))
        }
        _ => Err(Error::usage(
            format!("{} is no program, but a script", found.display()),
            "a distribution's script looks for the perf of the running kernel, which the guest does not have",
            "name the perf it starts with --perf: e.g. /usr/bin/perf_6.1, or perf in a folder of /usr/lib/linux-tools",
        )),
    }
}

/// The first line of `perf --version`.
fn version(perf: &Path) -> Result<String, Error> {
    let cannot = |why: String| {
        Error::usage(format!("cannot run {}", perf.display()), why, "name a perf of this host with --perf")
    };
    let output = Command::new(perf).arg("--version").output().map_err(|error| cannot(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::trim).filter(|line| output.status.success() && !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| cannot(format!("`--version` ended with {}", output.status)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_perf_is_a_program_of_path_or_a_file_with_a_slash_and_no_script() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("perf", &b"\x7fELF etc"[..]), ("script", b"#!/bin/sh\n"), ("empty", b"")] {
            let file = folder.path().join(name);
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let find = |perf: &str| find(Path::new(perf), Some(folder.path().as_os_str()));
        let file = folder.path().join("perf");
        assert_eq!((find("perf").unwrap(), find(file.to_str().unwrap()).unwrap()), (file.clone(), file));
        // There is a folder `src` here, and no such program.
        for (perf, needle) in
            [("script", "is no program"), ("empty", "is no program"), ("src", "PATH"), ("./perf", "no such file")]
        {
            let error = find(perf).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error}");
        }
    }
}
