//! `vpmu linux`: a shell, or one command, in a Linux guest.

use std::io::{self, IsTerminal as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host_pmu::backend::BackendKey;
use results::error::{Error, Exit};
use results::write::Target;
use vmm::kvm::{Host, linux_refusal};
use vmm::machine::linux::{Faults, Kernel, LinuxPlan, PcOutcome};
use vmm::outcome::End;

use super::bring::Output as Folder;
use super::command::{self, Ran};
use super::guest::LinuxGuest;
use super::spec::LinuxSpec;
use super::terminal;
use super::userland;
use crate::machine::{self, Report, Watch};
use crate::setting::backend::open_kvm;
use crate::sys;
use crate::terminal::console::{Stream, complain};

/// Boots the kernel, which was read, does what was asked for, and returns what the guest left; a list of its symbols in `kallsyms`.
///
/// # Errors
/// Conditions that keep it from starting, and a guest that ends before its command.
pub fn run(
    spec: &LinuxSpec,
    kernel: Kernel,
    backend: &BackendKey,
    watch: Watch,
    kallsyms: Option<&Target>,
) -> Result<(Exit, Option<PcOutcome>), Error> {
    let machine = spec.plan(backend, watch)?;
    let (output, initrd) = contents(spec, &kernel)?;
    linux_refusal().map_err(|why| Error::host("cannot boot a kernel", why, ""))?;
    let host = open_kvm()?;
    if spec.nested {
        host.nested_svm().map_err(|why| Error::host("--nested", why, ""))?;
    }
    let mut command_line = spec.boot.append.clone();
    if spec.run.is_none() && spec.initrd.is_none() {
        command_line = format!("{} {command_line}", linux_guest::SHELL_WORD);
    }
    let plan = LinuxPlan { machine, memory: spec.boot.memory, initrd, command_line };
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let host = Arc::new(host);
    let ran = match &spec.run {
        None => on_terminal(&host, kernel, plan)?,
        Some(command) => command::run(&host, kernel, plan, spec, (output.as_ref(), kallsyms), command)?,
    };
    machine::say(&of(&ran.outcome, backend, !ran.errors.is_empty()), spec.quiet.quiet);
    for error in &ran.errors {
        complain(&format!("error: {error}"));
    }
    Ok((ran.exit, Some(ran.outcome)))
}

/// The initial RAM disk, once the files that the guest leaves can be written.
fn contents(spec: &LinuxSpec, kernel: &Kernel) -> Result<(Option<Folder>, Vec<u8>), Error> {
    let initrd = match &spec.initrd {
        Some(path) => machine::read(path, "the initial RAM disk")?,
        None => {
            let of = (spec.kernel.as_path(), kernel.release());
            let mut initramfs = userland::initramfs(of, spec.boot.modules.as_deref(), &spec.load, &spec.with)?;
            userland::shell(&mut initramfs)?;
            userland::finish(initramfs)?
        }
    };
    Ok((Folder::of(spec)?, initrd))
}

/// A shell, or the user's own RAM disk, with the terminal as the serial console.
fn on_terminal(host: &Arc<Host>, kernel: Kernel, plan: LinuxPlan) -> Result<Ran, Error> {
    let cannot = |error: io::Error| Error::host("cannot connect the console", error.to_string(), "");
    let (reader, writer) = io::pipe().map_err(cannot)?;
    rustix::io::ioctl_fionbio(&writer, true).map_err(|error| cannot(error.into()))?;
    if io::stdin().is_terminal() {
        complain("Ctrl-] ends the guest");
    }
    let ends = Arc::<AtomicBool>::default();
    let is_ending = Arc::clone(&ends);
    let console = Stream::stdout(move || is_ending.load(Ordering::Relaxed)).unfiltered();
    let raw = terminal::raw_stdin();
    let guest = LinuxGuest::start(host, kernel, plan, console, (Some(OwnedFd::from(reader)), None))?;
    let (writer, goes_on) = (OwnedFd::from(writer), || !sys::interrupted().load(Ordering::Relaxed));
    if !terminal::copy_input(&writer, &|| guest.is_over() || !goes_on()) {
        guest.wait_while(goes_on);
    }
    ends.store(true, Ordering::Relaxed);
    let ended = guest.end();
    drop(raw);
    let (outcome, console) = ended?;
    if let Err(error) = console.result() {
        complain(&format!("warning: {error}"));
    }
    let exit = match outcome.end {
        End::PowerOff => Exit::Done,
        End::Host(_) => Exit::Host,
        _ => Exit::Inconclusive,
    };
    Ok(Ran { outcome, errors: Vec::new(), exit })
}

/// The report of a guest that ended. `failed`: an error that names its end follows.
fn of(outcome: &PcOutcome, backend: &BackendKey, failed: bool) -> Report {
    let mut report = machine::report_of(outcome, backend);
    // An unusual end of a guest is reported even without a summary.
    if outcome.end != End::PowerOff && !failed {
        report.warnings.push(format!("the guest did not switch itself off: {}", outcome.end));
    }
    if outcome.rewritten == 0 {
        report.warnings.push(
            "the kernel has no RDPMC that was found and rewritten: its reads of counters will fault, or it has no PMU driver"
                .to_owned(),
        );
    }
    report.warnings.extend(outcome.complaints.lines());
    let Faults { broken, error } = &outcome.channel;
    if *broken > 0 {
        let times = if *broken == 1 { "once" } else { &format!("{broken} times") };
        report.warnings.push(format!(
            "the guest's virtio driver broke the rules of its queues {times}: the agent's port was closed"
        ));
    }
    report
        .warnings
        .extend(error.as_ref().map(|why| format!("the virtio console for the agent failed on the host: {why}")));
    report
}
