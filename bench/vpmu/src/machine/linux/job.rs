//! `vpmu linux`: a shell, or one command, in a Linux guest.

use std::io::{self, IsTerminal as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use host_pmu::backend::BackendKey;
use results::error::{Error, Exit};
use results::host::REGISTER_COST_WORD;
use results::write::Target;
use vmm::kvm::{Host, linux_refusal};
use vmm::machine::linux::{Faults, Kernel, LinuxPlan, PcOutcome};
use vmm::outcome::End;

use super::bring::Output as Folder;
use super::command::{self, Ran};
use super::guest::LinuxGuest;
use super::spec::LinuxSpec;
use super::terminal::{self, Raw};
use super::userland;
use crate::machine::{self, EndedRun, Report, Watch};
use crate::setting::backend::open_kvm;
use crate::sys;
use crate::terminal::console::complain;
use crate::terminal::output::{Limits, Output};

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
    let interactive = spec.run.is_none() && spec.initrd.is_none();
    let append = if interactive {
        format!("{} {}", linux_guest::SHELL_WORD, spec.boot.append)
    } else {
        spec.boot.append.clone()
    };
    let append = match spec.msr_cost {
        Some(ns) => format!("{append} {}", with_register_cost(&host, ns)?),
        None => append,
    };
    let plan = LinuxPlan { machine, memory: spec.boot.memory, initrd, command_line: append };
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let host = Arc::new(host);
    let ran = match &spec.run {
        None => on_terminal(&host, kernel, plan)?,
        Some(command) => command::run(&host, kernel, plan, spec, (output.as_ref(), kallsyms), command)?,
    };
    if let Some(outcome) = &ran.outcome {
        machine::say(&of(outcome, backend, !ran.errors.is_empty()), spec.quiet.quiet);
    }
    for error in &ran.errors {
        complain(&format!("error: {error}"));
    }
    Ok((ran.exit, ran.outcome))
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

/// Words of the kernel's command line for a TSC that is held back. Another clock would go on, and with KVM's the kernel
/// also loses what says the TSC's frequency. What runs in the guest can say of its figures that the cost is a modelled
/// one.
fn with_register_cost(host: &Host, ns: u64) -> Result<String, Error> {
    let khz = host.tsc_khz().map_err(|error| Error::host("--msr-cost", error.to_string(), ""))?;
    Ok(format!("no-kvmclock tsc_early_khz={khz} clocksource=tsc tsc=reliable {REGISTER_COST_WORD}{ns}"))
}

/// A shell, or the user's own RAM disk, with the terminal as the serial console.
fn on_terminal(host: &Arc<Host>, kernel: Kernel, plan: LinuxPlan) -> Result<Ran, Error> {
    let limits = Limits { began: Instant::now(), time_limit: plan.machine.time_limit };
    let cannot = |error: io::Error| Error::host("cannot connect the console", error.to_string(), "");
    let (reader, writer) = io::pipe().map_err(cannot)?;
    rustix::io::ioctl_fionbio(&writer, true).map_err(|error| cannot(error.into()))?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    if io::stdin().is_terminal() {
        complain("Ctrl-] ends the guest");
    }
    let output = Output::raw_stdout(limits);
    let raw = Raw::stdin();
    let guest = LinuxGuest::start(host, kernel, plan, output.clone(), (Some(reader), None))?.ends_on_interrupt();
    if terminal::copy_input(&writer, guest.over()) {
        guest.stop();
    }
    let outcome = guest.join();
    let unsent = output.finish_soon();
    drop(raw);
    Ok(ended(outcome?, unsent))
}

fn ended(outcome: PcOutcome, unsent: io::Result<()>) -> Ran {
    if let Err(error) = unsent {
        complain(&format!("warning: console output was lost: {error}"));
    }
    let exit = match outcome.end {
        End::PowerOff => Exit::Done,
        End::Host(_) => Exit::Host,
        _ => Exit::Inconclusive,
    };
    Ran { outcome: Some(outcome), errors: Vec::new(), exit }
}

/// The report of a guest that ended. `failed`: an error that names its end follows.
pub(super) fn of(outcome: &PcOutcome, backend: &BackendKey, failed: bool) -> Report {
    let ran = EndedRun {
        end: &outcome.end,
        wall: outcome.wall,
        vcpus: &outcome.vcpus,
        rewritten: outcome.rewritten,
        absent: outcome.vcpus.iter().map(|vcpu| vcpu.left.absent).sum(),
        checked_addresses: false,
        output: &outcome.console,
    };
    let mut report = machine::report_of(&ran, backend);
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
    report.warnings.extend(of_channel(&outcome.channel));
    report
}

/// Lists the faults that broke the agent's port.
fn of_channel(faults: &Faults) -> Vec<String> {
    let mut warnings = Vec::new();
    if faults.broken > 0 {
        let times = if faults.broken == 1 { "once" } else { &format!("{} times", faults.broken) };
        warnings.push(format!(
            "the guest's virtio driver broke the rules of its queues {times}: the agent's port was closed"
        ));
    }
    if let Some(why) = &faults.error {
        warnings.push(format!("the virtio console for the agent failed on the host: {why}"));
    }
    warnings
}
