//! One command in a guest: it runs, its files come out, the guest ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError, Cut, Ended};
use results::error::{Error, Exit};
use results::write::Target;
use vmm::kvm::Host;
use vmm::machine::linux::{Kernel, LinuxPlan, PcOutcome};
use vmm::outcome::End;

use super::bring::{self, Output};
use super::guest::{Failure, Worked, with_agent};
use super::spec::LinuxSpec;
use crate::terminal::console::{Stream, complain};

/// Time to bring files out that a command has which used up its time limit: so much longer the guest lives at most.
const COLLECT: Duration = Duration::from_secs(30);

/// A guest that ran, and what there is to say about it.
pub(super) struct Ran {
    /// Results of the guest.
    pub(super) outcome: PcOutcome,
    /// Failures, in order.
    pub(super) errors: Vec<Error>,
    /// The exit code.
    pub(super) exit: Exit,
}

/// Runs `command` by the guest's shell.
///
/// # Errors
/// The guest could not begin.
pub(super) fn run(
    host: &Arc<Host>,
    kernel: Kernel,
    mut plan: LinuxPlan,
    spec: &LinuxSpec,
    (output, kallsyms): (Option<&Output>, Option<&Target>),
    command: &str,
) -> Result<Ran, Error> {
    let (time_limit, began) = (plan.machine.time_limit, Instant::now());
    // The command has the limit; the guest ends a while after it at the latest.
    plan.machine.time_limit = time_limit.saturating_add(COLLECT);
    let mut errors = Vec::new();
    let Worked { outcome, made, gave_up } = with_agent(host, kernel, plan, time_limit, |agent, over| {
        let left = || time_limit.saturating_sub(began.elapsed());
        Session { spec, output, kallsyms, agent, errors: &mut errors }.run(command, &left, over)
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
    Ok(Ran { outcome, errors, exit })
}

/// The requests of one command.
struct Session<'a> {
    spec: &'a LinuxSpec,
    output: Option<&'a Output>,
    kallsyms: Option<&'a Target>,
    agent: &'a mut Agent<'static>,
    errors: &'a mut Vec<Error>,
}

impl Session<'_> {
    fn run(mut self, command: &str, left: &dyn Fn() -> Duration, over: &Arc<AtomicBool>) -> Result<Ended, Failure> {
        let is_over = || {
            let over = Arc::clone(over);
            move || over.load(Ordering::Relaxed)
        };
        let (mut out, mut err) = (Stream::stdout(is_over()), Stream::stderr(is_over()));
        let shell = ["/bin/sh", "-c", command].map(str::to_owned);
        let ran = self.agent.run(&shell, Some(left()), &mut out, &mut err);
        let ended = ran.map_err(Failure::of("the command did not end"))?;
        match ended.cut {
            Some(Cut::Limit) => complain("warning: the command was killed at the time limit (--time-limit)"),
            Some(Cut::Interrupted) => complain("warning: interrupted: the command was killed"),
            None => {}
        }
        // What a command left that was killed is brought out.
        self.agent.never_stops();
        self.errors.extend([out, err].into_iter().filter_map(|stream| stream.result().err()));
        if let Some(output) = self.output {
            for path in &self.spec.get {
                // Files of a guest are in its memory.
                let got = bring::get(self.agent, path, self.spec.boot.memory, output);
                self.keep(got, format!("cannot get {path} from the guest"))?;
            }
        }
        if let Some(kallsyms) = self.kallsyms {
            // The agent is root in the guest: a value of 1 hides nothing from it.
            let what = "cannot get /proc/kallsyms from the guest (/proc/sys/kernel/kptr_restrict)";
            let fetched = bring::kallsyms(self.agent, kallsyms);
            self.keep(fetched, what.to_owned())?;
        }
        Ok(ended)
    }

    /// Keeps an error after which the guest is still of use.
    fn keep(&mut self, done: Result<(), AgentError>, what: String) -> Result<(), Failure> {
        let Err(error) = done else { return Ok(()) };
        let remedy = match error {
            AgentError::Gone(_) | AgentError::Silent { .. } | AgentError::Protocol(_) => {
                return Err(Failure::of(what)(error));
            }
            AgentError::Flood { .. } => "as many bytes come out as the guest has memory: give it more by --memory",
            _ => "",
        };
        self.errors.push(Error::usage(what, error.to_string(), remedy));
        Ok(())
    }
}
