//! `vpmu linux`: a shell, or one command, in a Linux guest.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use host_pmu::backend::BackendKey;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use vmm::kvm::Host;
use vmm::kvm::linux_refusal;
use vmm::machine::linux::{Kernel, LinuxPlan};
use vmm::machine::{Behind, Plan};
use vmm::outcome::End;

use super::bring;
use super::command::{self, Ran};
use super::guest::LinuxGuest;
use super::report;
use super::spec::{LinuxSpec, MachineSpec};
use super::terminal::{self, Raw};
use super::userland::{self, Wanted};
use crate::console::complain;
use crate::output::{Limits, Output};
use crate::rounds::pin::usable_cpus;
use crate::strategy::resolve_one;
use crate::sys;

/// Largest kernel or initial RAM disk.
const MAX_FILE: u64 = 1 << 30;

/// Boots the kernel, and does what was asked for.
///
/// # Errors
/// Conditions that keep it from starting, and a guest that ends before its command.
pub fn run(spec: &LinuxSpec, backend: &BackendKey) -> Result<Exit, Error> {
    linux_refusal().map_err(|why| Error::host("cannot boot a kernel", why, ""))?;
    let host = Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
    outputs_exist(spec)?;
    let kernel = kernel(&spec.kernel)?;
    let initrd = match &spec.initrd {
        Some(path) => read(path, "the initial RAM disk")?,
        None => userland::make(&Wanted {
            kernel: &spec.kernel,
            release: kernel.release(),
            modules: spec.modules.as_deref(),
            load: &spec.load,
            with: &spec.with,
            shell: true,
        })?,
    };
    let interactive = spec.run.is_none() && spec.initrd.is_none();
    let append = if interactive { format!("{} {}", linux_guest::SHELL_WORD, spec.append) } else { spec.append.clone() };
    let machine = machine(&spec.machine, backend)?;
    let plan = LinuxPlan { machine, memory: spec.machine.memory, initrd, command_line: append };
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let host = Arc::new(host);
    let ran = match &spec.run {
        None => on_terminal(&host, kernel, plan)?,
        Some(command) => command::run(&host, kernel, plan, spec, command)?,
    };
    if let Some(outcome) = &ran.outcome {
        let report = report::of(outcome, backend);
        let summary = report.summary.iter().filter(|_| !spec.quiet).cloned();
        for line in summary.chain(report.warnings.iter().map(|warning| format!("warning: {warning}"))) {
            complain(&line);
        }
    }
    for error in &ran.errors {
        complain(&format!("error: {error}"));
    }
    Ok(ran.exit)
}

/// Reads and unpacks the kernel.
///
/// # Errors
/// Exit 2: it cannot be read, or is none.
pub fn kernel(path: &Path) -> Result<Kernel, Error> {
    let file = read(path, "the kernel")?;
    Kernel::parse(&file).map_err(|error| Error::usage(format!("cannot boot {}", path.display()), error.to_string(), ""))
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    let cannot = || format!("cannot read {what} {}", path.display());
    read.map_err(|error| Error::usage(cannot(), error.to_string(), ""))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::usage(cannot(), format!("it is larger than {} MiB", MAX_FILE >> 20), ""));
    }
    Ok(bytes)
}

/// The machine of a specification, with `backend` behind its counters.
///
/// # Errors
/// The strategy cannot be read, or the CPUs to pin to are not usable.
pub fn machine(spec: &MachineSpec, backend: &BackendKey) -> Result<Plan, Error> {
    let behind = if *backend == BackendKey::None {
        Behind::Floor
    } else {
        Behind::Events { backend: backend.clone(), strategy: resolve_one(&spec.strategy)? }
    };
    let fs = HostFs::default();
    let usable = usable_cpus(&HostFacts::read(&fs), fs.text("proc/self/status").as_deref());
    let pin = spec.pin.cpus(spec.vcpus, usable.as_deref())?;
    Ok(Plan {
        behind,
        pmu: spec.cpu.pmu_of_version(spec.pmu_version as u8),
        cpu: spec.cpu,
        vcpus: spec.vcpus as usize,
        pin: pin.into_iter().map(|cpu| cpu as usize).collect(),
        time_limit: spec.time_limit,
        seccomp: spec.seccomp,
    })
}

/// Checks what is written at the end before anything begins.
fn outputs_exist(spec: &LinuxSpec) -> Result<(), Error> {
    let is_folder = |path: &PathBuf, option: &str| {
        let absent = || Error::usage(format!("{option} {} is no folder", path.display()), "", "make it first");
        path.is_dir().then_some(()).ok_or_else(absent)
    };
    if !spec.get.is_empty() {
        is_folder(&spec.output, "--output")?;
    }
    bring::check(&spec.output, &spec.get)?;
    spec.share.iter().try_for_each(|folder| is_folder(folder, "--share"))
}

/// A shell, or the user's own RAM disk, with the terminal as the serial console.
fn on_terminal(host: &Arc<Host>, kernel: Kernel, plan: LinuxPlan) -> Result<Ran, Error> {
    let limits = Limits { began: Instant::now(), time_limit: plan.machine.time_limit };
    let (reader, writer) =
        io::pipe().map_err(|error| Error::host("cannot connect the console", error.to_string(), ""))?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    if io::stdin().is_terminal() {
        complain("Ctrl-] ends the guest");
    }
    let output = Output::raw_stdout(limits);
    let raw = Raw::stdin();
    let guest = LinuxGuest::start(host, kernel, plan, output.clone(), Some(reader), None)?;
    if terminal::copy_input(&writer, guest.over()) {
        guest.stop();
    }
    let outcome = guest.join();
    let unsent = output.finish_soon();
    drop(raw);
    if let Err(error) = &unsent {
        complain(&format!("warning: console output was lost: {error}"));
    }
    let outcome = outcome?;
    let exit = if outcome.end == End::PowerOff { Exit::Done } else { Exit::Inconclusive };
    Ok(Ran { outcome: Some(outcome), errors: Vec::new(), exit })
}
