//! A Linux guest that runs on a thread of its own, and the agent of its init.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError};
use results::error::Error;
use results::shown::steers;
use vmm::kvm::Host;
use vmm::machine::MachineError;
use vmm::machine::linux::{self, Ends, Kernel, LinuxPlan, Log, PcOutcome};

use crate::machine;
use crate::sys;
use crate::terminal::console::internal;

/// Interval at which the end of a guest is looked for.
const POLL: Duration = Duration::from_millis(5);
/// Time that a guest takes to power off once it was asked to.
const POWER_OFF: Duration = Duration::from_secs(60);
/// Time from the end of the agent to that of its guest, which says more.
const LAST: Duration = Duration::from_secs(2);
/// Lines of the console in the error of a guest that failed.
const LINES: usize = 12;

/// A guest on its way, or running. `C`: its console.
#[derive(Debug)]
pub(super) struct LinuxGuest<C> {
    thread: Option<JoinHandle<(Result<PcOutcome, MachineError>, C)>>,
    stop: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

/// Says that a guest's thread has ended, also when it panics.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<C: Write + Send + 'static> LinuxGuest<C> {
    /// Boots `kernel` by `plan` on a thread of its own. Its console goes to `console`, and takes `input`; `channel` is
    /// the agent's port.
    ///
    /// # Errors
    /// Fails if the host gives no thread.
    pub(super) fn start(
        host: &Arc<Host>,
        kernel: Kernel,
        plan: LinuxPlan,
        mut console: C,
        (input, channel): (Option<OwnedFd>, Option<UnixStream>),
    ) -> Result<Self, Error> {
        let (stop, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (host, of_thread, ending) = (Arc::clone(host), Arc::clone(&stop), Ending(Arc::clone(&over)));
        let thread = std::thread::Builder::new().name("linux".to_owned()).spawn(move || {
            let _ending = ending;
            let ends = Ends { console: &mut console as &mut (dyn Write + Send), input, channel };
            (linux::run(&host, kernel, plan, ends, &of_thread), console)
        });
        let thread = thread.map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
        Ok(Self { thread: Some(thread), stop, over })
    }

    /// Returns whether the guest has ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Waits for the guest's end, as long as this says.
    pub(super) fn wait_while(&self, goes_on: impl Fn() -> bool) {
        while !self.is_over() && goes_on() {
            std::thread::sleep(POLL);
        }
    }

    /// Ends the guest as if its power was cut, unless it is over, and returns its console, too.
    ///
    /// # Errors
    /// It could not begin.
    pub(super) fn end(mut self) -> Result<(PcOutcome, C), Error> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        let (outcome, console) = ended.ok_or_else(|| internal("the guest's thread panicked", ""))?;
        outcome.map(|outcome| (outcome, console)).map_err(|error| machine::not_begun("cannot boot the kernel", &error))
    }
}

impl<C> Drop for LinuxGuest<C> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.store(true, Ordering::Relaxed);
            // Results of a guest that is given up are dropped.
            let _ = thread.join();
        }
    }
}

/// A failure in a guest, with its reason, after which the guest is of no use.
#[derive(Debug)]
pub struct Failure {
    /// The action.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The agent's error; a program's failure has none.
    agent: Option<AgentError>,
}

impl Failure {
    /// Builds the failure of this action of the agent's.
    pub fn of(what: impl Into<String>) -> impl FnOnce(AgentError) -> Self {
        let what = what.into();
        move |error| Self { what, why: error.to_string(), agent: Some(error) }
    }

    /// Builds the failure of a program in the guest.
    pub const fn of_program(what: String, why: String) -> Self {
        Self { what, why, agent: None }
    }
}

/// A guest with an agent that has ended.
#[derive(Debug)]
pub struct Worked<T> {
    /// The guest's outcome; its kernel's log decides on complaints, if the agent gave it.
    pub outcome: PcOutcome,
    /// The result of its work.
    pub made: Result<T, Failure>,
    /// The kernel's log was given up.
    pub gave_up: bool,
}

/// Boots a guest, hands its agent to `work` once it is up, with a flag that is set when the guest has ended, and waits for its
/// end: it is ended in any case. Ctrl-C ends the agent's requests.
///
/// # Errors
/// It could not begin.
pub fn with_agent<T>(
    host: &Arc<Host>,
    kernel: Kernel,
    plan: LinuxPlan,
    comes_up: Duration,
    work: impl FnOnce(&mut Agent<'static>, &Arc<AtomicBool>) -> Result<T, Failure>,
) -> Result<Worked<T>, Error> {
    let connected = UnixStream::pair().and_then(|(guest, host)| Ok((guest, Agent::new(host)?)));
    let (channel, agent) = connected.map_err(|error| Error::host("cannot connect a guest", error.to_string(), ""))?;
    let mut agent = agent.stopped_by(sys::interrupted());
    let guest = LinuxGuest::start(host, kernel, plan, Tail::default(), (None, Some(channel)))?;
    let up = agent.hello(comes_up).map_err(Failure::of("the guest did not come up"));
    let made = up.and_then(|()| work(&mut agent, &guest.over));
    let log = if made.as_ref().is_err_and(|failure| failure.agent.is_some()) { None } else { kernel_log(&mut agent) };
    let gave_up = made.is_ok() && agent.gave_up();
    let made = match made {
        Ok(made) if !gave_up => agent.power_off().map_err(Failure::of("the guest did not power off")).map(|()| made),
        made => made,
    };
    drop(agent);
    let patience = match &made {
        // A guest that is slow to power off has done its work.
        Ok(_) if !gave_up => POWER_OFF,
        Err(Failure { agent: Some(AgentError::Gone(_)), .. }) => LAST,
        _ => Duration::ZERO,
    };
    let since = Instant::now();
    guest.wait_while(|| since.elapsed() < patience && !sys::interrupted().load(Ordering::Relaxed));
    let by_itself = guest.is_over();
    let (outcome, console) = guest.end()?;
    let made = made.map_err(|failure| {
        let why = if by_itself { outcome.end.to_string() } else { failure.why };
        let lines = console.lines(LINES);
        let said = if lines.is_empty() { "it said nothing".to_owned() } else { lines.join(" | ") };
        Failure { why: format!("{why}; the end of its console: {said}"), ..failure }
    });
    Ok(Worked { outcome: PcOutcome { complaints: outcome.complaints.decided_by(log), ..outcome }, made, gave_up })
}

/// Most bytes of a kernel's log: the largest that Linux has unless its command line says otherwise is smaller.
const MOST_OF_LOG: u64 = 16 << 20;

/// Reads the log of a guest's kernel, if its agent gives it.
fn kernel_log(agent: &mut Agent<'_>) -> Option<Log> {
    // A kernel that drops a record while it is read refuses the rest.
    (0..3).find_map(|_| match agent.get("/dev/kmsg", MOST_OF_LOG) {
        Ok(text) => {
            let mut log = Log::default();
            Some(log.write_all(&text).is_ok().then_some(log))
        }
        Err(AgentError::Refused(_)) => None,
        Err(_) => Some(None),
    })?
}

/// Bytes that are kept.
const KEPT: usize = 64 << 10;

/// Keeps the last bytes written to it.
#[derive(Debug, Default)]
struct Tail(VecDeque<u8>);

impl Tail {
    /// The last `lines` lines, without characters that steer a terminal.
    fn lines(mut self, lines: usize) -> Vec<String> {
        let text = String::from_utf8_lossy(self.0.make_contiguous());
        let all: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let first = all.len().saturating_sub(lines);
        all[first..].iter().map(|line| line.chars().filter(|&c| !steers(c)).collect()).collect()
    }
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend(bytes);
        self.0.drain(..self.0.len().saturating_sub(KEPT));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_in_bounded_memory() {
        let mut tail = Tail::default();
        for line in 0..100_000 {
            writeln!(tail, "line {line}\r").unwrap();
        }
        tail.write_all(b"\x1b[31m\xe2\x80\xaethe end").unwrap();
        assert!(tail.0.len() <= KEPT);
        assert_eq!(tail.lines(2), ["line 99999", "[31mthe end"]);
        assert!(Tail::default().lines(5).is_empty());
    }
}
