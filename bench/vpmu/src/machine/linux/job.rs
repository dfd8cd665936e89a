//! `vpmu linux`: one command in a Linux guest. It runs, its files come out, the guest ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError, Cut, Ended};
use minijinja::context;
use results::error::{Error, Exit};
use results::write::Target;
use vmm::kvm::linux_refusal;
use vmm::machine::linux::{Kernel, PcOutcome};
use vmm::machine::{CounterSource, Plan};
use vmm::outcome::{Account, End};

use super::bring::{self, Output};
use super::guest::{Failure, Worked, with_agent};
use super::spec::LinuxSpec;
use super::userland;
use crate::machine;
use crate::setting::backend::open_kvm;
use crate::terminal::console::{self, Stream, complain};

/// Time to bring files out that a command has which used up its time limit: so much longer the guest lives at most.
const COLLECT: Duration = Duration::from_secs(30);

/// Boots the kernel, which was read, runs the command, and returns what the guest left; a list of its symbols in `kallsyms`.
///
/// # Errors
/// Conditions that keep it from starting.
pub fn run(
    spec: &LinuxSpec,
    kernel: Kernel,
    machine: Plan,
    kallsyms: Option<&Target>,
    quiet: bool,
) -> Result<(Exit, Vec<Account>), Error> {
    let of = (spec.kernel.as_path(), kernel.release());
    let mut initramfs = userland::initramfs(of, &spec.boot, &spec.load, &spec.with)?;
    userland::shell(&mut initramfs)?;
    let (time_limit, behind) = (machine.time_limit, machine.behind.clone());
    // The command has the limit; the guest ends a while after it at the latest.
    let machine = Plan { time_limit: time_limit.saturating_add(COLLECT), ..machine };
    let plan = spec.boot.plan(machine, initramfs)?;
    let output = Output::of(spec)?;
    linux_refusal().map_err(|why| Error::host("cannot boot a kernel", why, ""))?;
    let host = open_kvm()?;
    if spec.nested {
        host.nested_svm().map_err(|why| Error::host("--nested", why, ""))?;
    }
    console::catch_interrupts()?;
    let began = Instant::now();
    let mut errors = Vec::new();
    let Worked { outcome, made, gave_up } = with_agent(&host, kernel, plan, time_limit, |agent, over| {
        let left = time_limit.saturating_sub(began.elapsed());
        session(spec, (output.as_ref(), kallsyms), agent, (left, over), &mut errors)
    })?;
    if gave_up {
        let what = "the guest's kernel log was given up: its complaints are those of the console";
        errors.push(Error::new(Exit::Inconclusive, what, "it has no end, or is too long", ""));
    }
    let exit = match made {
        Ok(Ended { cut: None, status, .. }) => Exit::Guest(u8::try_from(status).unwrap_or(u8::MAX)),
        Ok(_) => Exit::Inconclusive,
        Err(Failure { what, why, .. }) => {
            let exit = if matches!(outcome.end, End::Host(_)) { Exit::Host } else { Exit::Inconclusive };
            errors.push(Error::new(exit, what, why, ""));
            exit
        }
    };
    // A command that succeeded, and whose files were lost, did not succeed.
    let exit = errors.first().filter(|_| exit.code() == 0).map_or(exit, |error| error.exit);
    machine::say(&report(&outcome, &behind, !errors.is_empty())?, quiet);
    for error in &errors {
        complain(&format!("error: {error}"));
    }
    Ok((exit, outcome.vcpus.into_iter().map(|vcpu| vcpu.account).collect()))
}

/// Makes the requests of one command, which has this time; errors after which the guest is still of use are kept.
fn session(
    spec: &LinuxSpec,
    (output, kallsyms): (Option<&Output>, Option<&Target>),
    agent: &mut Agent<'static>,
    (left, over): (Duration, &Arc<AtomicBool>),
    errors: &mut Vec<Error>,
) -> Result<Ended, Failure> {
    let is_over = || {
        let over = Arc::clone(over);
        move || over.load(Ordering::Relaxed)
    };
    let (mut out, mut err) = (Stream::stdout(is_over()), Stream::stderr(is_over()));
    let shell = ["/bin/sh", "-c", &spec.run].map(str::to_owned);
    let ended = agent.run(&shell, Some(left), &mut out, &mut err).map_err(Failure::of("the command did not end"))?;
    match ended.cut {
        Some(Cut::Limit) => complain("warning: the command was killed at the time limit (--time-limit)"),
        Some(Cut::Interrupted) => complain("warning: interrupted: the command was killed"),
        None => {}
    }
    // What a command left that was killed is brought out.
    agent.never_stops();
    errors.extend([out, err].into_iter().filter_map(|stream| stream.result().err()));
    let mut keep = |done: Result<(), AgentError>, what: String| {
        let Err(error) = done else { return Ok(()) };
        let remedy = match error {
            AgentError::Gone(_) | AgentError::Silent { .. } | AgentError::Protocol(_) => {
                return Err(Failure::of(what)(error));
            }
            AgentError::Flood { .. } => "as many bytes come out as the guest has memory: give it more by --memory",
            _ => "",
        };
        errors.push(Error::usage(what, error.to_string(), remedy));
        Ok(())
    };
    if let Some(output) = output {
        for path in &spec.get {
            // Files of a guest are in its memory.
            let got = bring::get(agent, path, spec.boot.memory, output);
            keep(got, format!("cannot get {path} from the guest"))?;
        }
    }
    if let Some(kallsyms) = kallsyms {
        // The agent is root in the guest: a value of 1 hides nothing from it.
        let what = "cannot get /proc/kallsyms from the guest (/proc/sys/kernel/kptr_restrict)";
        keep(bring::kallsyms(agent, kallsyms), what.to_owned())?;
    }
    Ok(ended)
}

/// The report of a guest that ended. `failed`: an error that names its end follows.
fn report(outcome: &PcOutcome, behind: &CounterSource, failed: bool) -> Result<Vec<String>, Error> {
    let others = context! {
        is_linux => true,
        // An unusual end of a guest is reported even without a summary.
        stays_on => outcome.end != End::PowerOff && !failed,
        broken => outcome.channel.broken,
        agent_error => outcome.channel.error.as_ref().map(ToString::to_string),
    };
    let mut report = machine::report_of(outcome, behind, others)?;
    report.extend(outcome.complaints.lines().into_iter().map(|line| format!("! {line}")));
    Ok(report)
}
