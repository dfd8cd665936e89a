//! One command in a guest: it runs, its files come out, the guest ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError, Cut, Ended};
use results::error::{Error, Exit};
use results::write::Target;
use vmm::kvm::Host;
use vmm::machine::linux::{Kernel, LinuxPlan, Log, PcOutcome};

use super::bring::{self, Output};
use super::guest::{self, LinuxGuest};
use super::spec::LinuxSpec;
use crate::terminal::console::{Stream, complain};

/// Time to bring files out that a command has which used up its time limit: so much longer the guest lives at most.
const COLLECT: Duration = Duration::from_secs(30);

/// A guest that ran, and what there is to say about it.
pub(super) struct Ran {
    /// Results of the guest, if it ran at all.
    pub(super) outcome: Option<PcOutcome>,
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
    let time_limit = plan.machine.time_limit;
    // The command has the limit; the guest ends a while after it at the latest.
    plan.machine.time_limit = time_limit.saturating_add(COLLECT);
    let (channel, agent) = guest::channel()?;
    let guest = LinuxGuest::start(host, kernel, plan, io::sink(), (None, Some(channel)))?;
    let over = Arc::clone(guest.over());
    let mut session = Session { spec, output, kallsyms, agent, over, errors: Vec::new(), log: None };
    let ended = session.run(command, time_limit);
    let Session { agent, mut errors, log, .. } = session;
    let powers_off = !agent.gave_up();
    drop(agent);
    let ended = match ended {
        Ok(ended) => ended,
        Err(Failure(what, AgentError::Interrupted)) => {
            guest.stop();
            errors.push(Error::new(Exit::Inconclusive, what, "interrupted", ""));
            return Ok(Ran { outcome: guest.join().ok(), errors, exit: Exit::Inconclusive });
        }
        Err(Failure(what, error)) => {
            let (error, outcome) = guest.failed(&what, &error.to_string());
            let exit = error.exit;
            errors.push(error);
            return Ok(Ran { outcome, errors, exit });
        }
    };
    let outcome = guest.end(powers_off, log)?;
    let exit = match ended.cut {
        Some(_) => Exit::Inconclusive,
        None => Exit::Guest(u8::try_from(ended.status).unwrap_or(u8::MAX)),
    };
    // A command that succeeded, and whose files were lost, did not succeed.
    let exit = errors.first().filter(|_| exit.code() == 0).map_or(exit, |error| error.exit);
    Ok(Ran { outcome: Some(outcome), errors, exit })
}

/// Action that failed, and the agent's reason. The guest is of no use any more.
#[derive(Debug)]
struct Failure(String, AgentError);

/// The requests of one command.
struct Session<'a> {
    spec: &'a LinuxSpec,
    output: Option<&'a Output>,
    kallsyms: Option<&'a Target>,
    agent: Agent<'static>,
    over: Arc<AtomicBool>,
    errors: Vec<Error>,
    log: Option<Log>,
}

impl Session<'_> {
    fn run(&mut self, command: &str, time_limit: Duration) -> Result<Ended, Failure> {
        let began = Instant::now();
        let failed = |what: &'static str| move |error| Failure(what.to_owned(), error);
        self.agent.hello(time_limit).map_err(failed("the guest did not come up"))?;
        let (mut out, mut err) = (Stream::stdout(&self.over), Stream::stderr(&self.over));
        let shell = ["/bin/sh", "-c", command].map(str::to_owned);
        let left = time_limit.saturating_sub(began.elapsed());
        let ran = self.agent.run(&shell, Some(left), &mut out, &mut err);
        let ended = ran.map_err(failed("the command did not end"))?;
        match ended.cut {
            Some(Cut::Limit) => complain("warning: the command was killed at the time limit (--time-limit)"),
            Some(Cut::Interrupted) => complain("warning: interrupted: the command was killed"),
            None => {}
        }
        // What a command left that was killed is brought out.
        self.agent.never_stops();
        self.errors.extend(out.result().err());
        self.errors.extend(err.result().err());
        if let Some(output) = self.output {
            for path in &self.spec.get {
                // Files of a guest are in its memory.
                let got = bring::get(&mut self.agent, path, self.spec.boot.memory, output);
                self.keep(got, &format!("cannot get {path} from the guest"))?;
            }
        }
        if let Some(kallsyms) = self.kallsyms {
            let restricted = "/proc/sys/kernel/kptr_restrict";
            // The agent is root in the guest: a value of 1 hides nothing from it.
            let fetched = bring::kallsyms(&mut self.agent, kallsyms);
            self.keep(fetched, &format!("cannot get /proc/kallsyms from the guest ({restricted})"))?;
        }
        self.log = guest::kernel_log(&mut self.agent);
        if self.agent.gave_up() {
            let what = "the guest's kernel log was given up: its complaints are those of the console";
            self.errors.push(Error::new(Exit::Inconclusive, what, "it has no end, or is too long", ""));
            return Ok(ended);
        }
        self.agent.power_off().map_err(failed("the guest did not power off"))?;
        Ok(ended)
    }

    /// Keeps an error after which the guest is still of use.
    fn keep(&mut self, done: Result<(), AgentError>, what: &str) -> Result<(), Failure> {
        match done {
            Ok(()) => {}
            Err(error @ (AgentError::Gone(_) | AgentError::Silent { .. } | AgentError::Protocol(_))) => {
                return Err(Failure(what.to_owned(), error));
            }
            Err(error @ AgentError::Flood { .. }) => {
                let remedy = "as many bytes come out as the guest has memory: give it more by --memory";
                self.errors.push(Error::usage(what, error.to_string(), remedy));
            }
            Err(error) => self.errors.push(Error::usage(what, error.to_string(), "")),
        }
        Ok(())
    }
}
