//! `vpmu linux`: a shell, or one command, in a Linux guest.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arch_pmu::caps::PmuCaps;
use host_pmu::backend::BackendKey;
use linux_guest::agent::{Agent, AgentError, Command, Cut, Ended};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use vmm::kvm::Host;
use vmm::kvm::linux_refusal;
use vmm::machine::linux::{Kernel, LinuxOutcome, LinuxPlan};
use vmm::machine::{Behind, Plan};
use vmm::outcome::End;

use super::guest::{self, LinuxGuest};
use super::report;
use super::spec::{LinuxSpec, MachineSpec};
use super::terminal::{self, Raw};
use super::userland::{self, Wanted};
use crate::console::{Stream, complain};
use crate::rounds::pin::usable_cpus;
use crate::strategy::resolve_one;
use crate::sys;

/// Largest kernel or initial RAM disk.
const MAX_FILE: u64 = 1 << 30;
/// Folder of `--share` in the guest.
const SHARE: &str = "/share";
/// How long a guest takes to power off once it was asked to.
const POWER_OFF: Duration = Duration::from_secs(60);

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
    let append = if interactive { format!("vpmu.shell {}", spec.append) } else { spec.append.clone() };
    let machine = machine(&spec.machine, backend)?;
    let plan = LinuxPlan { machine, memory: spec.machine.memory, initrd, command_line: append };
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let host = Arc::new(host);
    let (outcome, exit) = match &spec.run {
        None => on_terminal(&host, kernel, plan)?,
        Some(command) => one_command(&host, kernel, plan, spec, command)?,
    };
    let report = report::of(&outcome, backend);
    let summary = report.summary.iter().filter(|_| !spec.quiet).cloned();
    for line in summary.chain(report.warnings.iter().map(|warning| format!("warning: {warning}"))) {
        complain(&line);
    }
    Ok(exit)
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
        pmu: PmuCaps { version: spec.pmu_version as u8, ..PmuCaps::default() },
        cpu: spec.cpu,
        vcpus: spec.vcpus as usize,
        pin: pin.into_iter().map(|cpu| cpu as usize).collect(),
        time_limit: spec.time_limit,
        seccomp: spec.seccomp,
    })
}

/// Checks what is written at the end before anything begins.
fn outputs_exist(spec: &LinuxSpec) -> Result<(), Error> {
    let is_folder = |path: &PathBuf, option: &str| match path.is_dir() {
        true => Ok(()),
        false => Err(Error::usage(format!("{option} {} is no folder", path.display()), "", "make it first")),
    };
    if !spec.get.is_empty() {
        is_folder(&spec.output, "--output")?;
    }
    for path in &spec.get {
        if !path.starts_with('/') {
            let why = "it is relative, and a command may change its folder";
            return Err(Error::usage(format!("cannot get {path} from the guest"), why, "give an absolute path"));
        }
    }
    spec.share.iter().try_for_each(|folder| is_folder(folder, "--share"))
}

/// A shell, or the user's own RAM disk, with the terminal as the serial console.
fn on_terminal(host: &Arc<Host>, kernel: Kernel, plan: LinuxPlan) -> Result<(LinuxOutcome, Exit), Error> {
    let (reader, writer) =
        io::pipe().map_err(|error| Error::host("cannot connect the console", error.to_string(), ""))?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    if io::stdin().is_terminal() {
        complain("Ctrl-] ends the guest");
    }
    let raw = Raw::stdin();
    let guest = LinuxGuest::start(host, kernel, plan, Stream::stdout(), Some(reader), None)?;
    if terminal::copy_input(&writer, guest.over()) {
        guest.stop();
    }
    let outcome = guest.join();
    drop(raw);
    let outcome = outcome?;
    let exit = if outcome.end == End::PowerOff { Exit::Done } else { Exit::Inconclusive };
    Ok((outcome, exit))
}

/// One command, its files, and the end.
fn one_command(
    host: &Arc<Host>,
    kernel: Kernel,
    plan: LinuxPlan,
    spec: &LinuxSpec,
    command: &str,
) -> Result<(LinuxOutcome, Exit), Error> {
    let time_limit = plan.machine.time_limit;
    let console: Box<dyn Write + Send> = match &spec.console {
        Some(path) => Box::new(File::create(path).map_err(|error| {
            Error::usage(format!("cannot write the console to {}", path.display()), error.to_string(), "")
        })?),
        None => Box::new(io::sink()),
    };
    let (channel, mut agent) = guest::channel()?;
    let guest = LinuxGuest::start(host, kernel, plan, console, None, Some(channel))?;
    let ended = match session(&mut agent, spec, command, time_limit) {
        Ok(ended) => ended,
        Err(Failure::Guest(what, error)) => return Err(guest.failed(&what, &error.to_string())),
        Err(Failure::Here(error)) => return Err(error),
    };
    // A guest that is slow to power off has done its work: its power is cut.
    drop(agent);
    let since = Instant::now();
    while !guest.over().load(std::sync::atomic::Ordering::Relaxed) && since.elapsed() < POWER_OFF {
        std::thread::sleep(Duration::from_millis(10));
    }
    guest.stop();
    let outcome = guest.join()?;
    let exit = match ended.cut {
        Some(Cut::Interrupted) => Exit::Inconclusive,
        _ => Exit::Guest(u8::try_from(ended.exit.shell_status()).unwrap_or(u8::MAX)),
    };
    Ok((outcome, exit))
}

/// Why a session failed.
enum Failure {
    /// The guest, or its agent.
    Guest(String, AgentError),
    /// This side.
    Here(Error),
}

fn session(agent: &mut Agent<'_>, spec: &LinuxSpec, command: &str, time_limit: Duration) -> Result<Ended, Failure> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| Failure::Guest(what, error)
    };
    agent.hello(time_limit).map_err(failed("the guest did not come up"))?;
    if let Some(folder) = &spec.share {
        agent.put_tree(folder, SHARE).map_err(failed("cannot copy --share into the guest"))?;
    }
    let (mut out, mut err) = (Stream::stdout(), Stream::stderr());
    let shell = ["/bin/sh", "-c", command].map(str::to_owned);
    let ended = agent.run(&Command::new(&shell), &mut out, &mut err).map_err(failed("the command did not end"))?;
    for path in &spec.get {
        agent
            .get_tree(path, &spec.output.join(name(path)))
            .map_err(failed(&format!("cannot get {path} from the guest")))?;
    }
    if let Some(folder) = &spec.share {
        agent.get_tree(SHARE, folder).map_err(failed("cannot copy --share back"))?;
    }
    agent.power_off().map_err(failed("the guest did not power off"))?;
    out.result().and_then(|()| err.result()).map_err(Failure::Here)?;
    Ok(ended)
}

/// The last part of a path.
fn name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}
