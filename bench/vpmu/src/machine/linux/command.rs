//! One command in a guest: it runs, its files come out, the guest ends.

use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError, Command, Cut, Ended};
use linux_guest::loaded;
use results::error::{Error, Exit};
use results::open;
use vmm::kvm::Host;
use vmm::machine::linux::{Kernel, LinuxPlan, Log, PcOutcome};

use super::bring::{self, Places};
use super::guest::{self, LinuxGuest, OnInterrupt};
use super::spec::LinuxSpec;
use super::symbols::Symbols;
use crate::sys;
use crate::terminal::console::{Stream, complain};

/// Time to bring files out that a command has which used up its time limit: so much longer the guest lives at most.
const COLLECT: Duration = Duration::from_secs(30);
/// Interval at which an interruption is looked for.
const POLL: Duration = Duration::from_millis(20);

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
    places: &Places,
    command: &str,
) -> Result<Ran, Error> {
    let time_limit = plan.machine.time_limit;
    // The command has the limit; the guest ends a while after it at the latest.
    plan.machine.time_limit = time_limit.saturating_add(COLLECT);
    let console: Box<dyn Write + Send> = match &places.console {
        Some(target) => Box::new(target.create().map_err(|error| {
            Error::output(format!("cannot write the console to {}", target.path().display()), &error, "")
        })?),
        None => Box::new(io::sink()),
    };
    let stdin = spec.stdin.as_deref().map(input).transpose()?;
    let (cut, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (channel, agent) = guest::pair()?;
    let mut agent = agent.stopped_by(&cut);
    let guest = LinuxGuest::start(host, kernel, plan, console, (None, Some(channel)), OnInterrupt::Leave)?;
    let over = Arc::clone(guest.over());
    let mut session = Session { spec, places, stdin, over, cut: &cut, errors: Vec::new(), log: None };
    let ended = std::thread::scope(|scope| {
        // Once: what the command left is brought out after it was killed.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if sys::interrupted().load(Ordering::Relaxed) {
                    cut.store(true, Ordering::Relaxed);
                    return;
                }
                std::thread::sleep(POLL);
            }
        });
        let ended = session.run(&mut agent, command, time_limit);
        done.store(true, Ordering::Relaxed);
        ended
    });
    let powers_off = !agent.gave_up();
    drop(agent);
    let Session { mut errors, log, .. } = session;
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
        None => Exit::Guest(u8::try_from(ended.exit.shell_status()).unwrap_or(u8::MAX)),
    };
    // A command that succeeded, and whose files were lost, did not succeed.
    let exit = errors.first().filter(|_| exit.code() == 0).map_or(exit, |error| error.exit);
    Ok(Ran { outcome: Some(outcome), errors, exit })
}

/// Opens the command's input.
fn input(path: &Path) -> Result<OwnedFd, Error> {
    let opened = if path == Path::new("-") {
        io::stdin().as_fd().try_clone_to_owned()
    } else {
        open::stream(path).map(OwnedFd::from)
    };
    opened.map_err(|error| Error::usage(format!("cannot read --stdin {}", path.display()), error.to_string(), ""))
}

/// Action that failed, and the agent's reason. The guest is of no use any more.
#[derive(Debug)]
struct Failure(String, AgentError);

/// The requests of one command.
struct Session<'a> {
    spec: &'a LinuxSpec,
    places: &'a Places,
    stdin: Option<OwnedFd>,
    over: Arc<AtomicBool>,
    cut: &'a AtomicBool,
    errors: Vec<Error>,
    log: Option<Log>,
}

impl Session<'_> {
    fn run(&mut self, agent: &mut Agent<'_>, command: &str, time_limit: Duration) -> Result<Ended, Failure> {
        let began = Instant::now();
        let failed = |what: &'static str| move |error| Failure(what.to_owned(), error);
        agent.hello(time_limit).map_err(failed("the guest did not come up"))?;
        if let Some(symbols) = &self.spec.symbols {
            self.report_code(agent, symbols)?;
            symbols.reports.command_begins();
        }
        let (mut out, mut err) = (Stream::stdout(&self.over), Stream::stderr(&self.over));
        let shell = ["/bin/sh", "-c", command].map(str::to_owned);
        let mut shell = Command::new(&shell).limit(time_limit.saturating_sub(began.elapsed()));
        for (name, value) in &self.spec.env {
            shell = shell.env(name, value);
        }
        if let Some(stdin) = &self.stdin {
            shell = shell.stdin(stdin.as_fd());
        }
        let ran = agent.run(&shell, &mut out, &mut err);
        if let Some(symbols) = &self.spec.symbols {
            symbols.reports.command_ended();
        }
        let ended = ran.map_err(failed("the command did not end"))?;
        match ended.cut {
            Some(Cut::Limit) => complain("warning: the command was killed at the time limit (--time-limit)"),
            Some(Cut::Interrupted) => complain("warning: interrupted: the command was killed"),
            None => {}
        }
        self.cut.store(false, Ordering::Relaxed);
        self.errors.extend(out.result().err());
        self.errors.extend(err.result().err());
        if let Some(output) = &self.places.output {
            for path in &self.spec.get {
                // Files of a guest are in its memory.
                let got = bring::get(agent, path, self.spec.memory, output);
                self.keep(got, &format!("cannot get {path} from the guest"))?;
            }
        }
        if let Some(symbols) = &self.spec.symbols {
            self.report_code(agent, symbols)?;
            let restricted = "/proc/sys/kernel/kptr_restrict";
            // The agent is root in the guest: a value of 1 hides nothing from it.
            for (from, to) in [("/proc/kallsyms", &symbols.kallsyms), ("/proc/modules", &symbols.modules)] {
                self.keep(bring::fetch(agent, from, to), &format!("cannot get {from} from the guest ({restricted})"))?;
            }
        }
        self.log = guest::kernel_log(agent);
        if agent.gave_up() {
            let what = "the guest's kernel log was given up: its complaints are those of the console";
            self.errors.push(Error::new(Exit::Inconclusive, what, "it has no end, or is too long", ""));
            return Ok(ended);
        }
        agent.power_off().map_err(failed("the guest did not power off"))?;
        Ok(ended)
    }

    /// Asks for the kernel's code, and passes it on.
    fn report_code(&mut self, agent: &mut Agent<'_>, symbols: &Symbols) -> Result<(), Failure> {
        let fetched = loaded::fetch(agent).map(|code| symbols.reports.push(code));
        self.keep(fetched, "cannot get the places of the kernel's modules from the guest")
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
