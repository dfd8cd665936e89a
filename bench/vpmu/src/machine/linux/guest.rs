//! A Linux guest, and the agent of its init.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError};
use results::error::Error;
use results::shown::steers;
use vmm::kvm::Host;
use vmm::machine::linux::{self, Ends, Kernel, LinuxPlan, Log, PcOutcome};

use crate::machine;
use crate::sys;

/// Interval at which the end of a guest is looked for.
const POLL: Duration = Duration::from_millis(5);
/// Time that a guest takes to power off once it was asked to.
const POWER_OFF: Duration = Duration::from_secs(60);
/// Time from the end of the agent to that of its guest, which says more.
const LAST: Duration = Duration::from_secs(2);
/// Lines of the console in the error of a guest that failed.
const LINES: usize = 12;

/// Sets a flag when it is dropped, also by a panic.
pub(crate) struct Sets<'a>(pub(crate) &'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
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

/// Boots a guest on a thread of its own, hands its agent to `work` once it is up, with a flag that is set when the guest has ended, and
/// waits for its end: it is ended in any case. Ctrl-C ends the agent's requests.
///
/// # Errors
/// It could not begin.
pub fn with_agent<T>(
    host: &Host,
    kernel: Kernel,
    plan: LinuxPlan,
    comes_up: Duration,
    work: impl FnOnce(&mut Agent<'static>, &Arc<AtomicBool>) -> Result<T, Failure>,
) -> Result<Worked<T>, Error> {
    let connected = UnixStream::pair().and_then(|(guest, host)| Ok((guest, Agent::new(host)?)));
    let (channel, agent) = connected.map_err(|error| Error::host("cannot connect a guest", error.to_string(), ""))?;
    let mut agent = agent.stopped_by(sys::interrupted());
    let (stop, over) = (&AtomicBool::new(false), &Arc::<AtomicBool>::default());
    std::thread::scope(|scope| {
        let boot = move || {
            let (_ending, mut console) = (Sets(over), Tail::default());
            let ends = Ends { console: &mut console as &mut (dyn Write + Send), channel: Some(channel) };
            (linux::run(host, kernel, plan, ends, stop), console)
        };
        let guest = std::thread::Builder::new().name("linux".to_owned()).spawn_scoped(scope, boot);
        let guest = guest.map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
        let stopping = Sets(stop);
        let up = agent.hello(comes_up).map_err(Failure::of("the guest did not come up"));
        let made = up.and_then(|()| work(&mut agent, over));
        let of_agent = made.as_ref().is_err_and(|failure| failure.agent.is_some());
        let log = if of_agent { None } else { kernel_log(&mut agent) };
        let gave_up = made.is_ok() && agent.gave_up();
        let made = match made {
            Ok(made) if !gave_up => {
                agent.power_off().map_err(Failure::of("the guest did not power off")).map(|()| made)
            }
            made => made,
        };
        drop(agent);
        let patience = match &made {
            // A guest that is slow to power off has done its work.
            Ok(_) if !gave_up => POWER_OFF,
            Err(Failure { agent: Some(AgentError::Gone(_)), .. }) => LAST,
            _ => Duration::ZERO,
        };
        let (since, is_over) = (Instant::now(), || over.load(Ordering::Relaxed));
        while !is_over() && since.elapsed() < patience && !sys::stopped() {
            std::thread::sleep(POLL);
        }
        let by_itself = is_over();
        drop(stopping);
        let (outcome, console) = guest.join().map_err(|_| Error::internal("the guest's thread panicked", ""))?;
        let outcome = outcome.map_err(|error| machine::not_begun("cannot boot the kernel", &error))?;
        let made = made.map_err(|failure| {
            let why = if by_itself { outcome.end.to_string() } else { failure.why };
            let lines = console.lines(LINES);
            let said = if lines.is_empty() { "it said nothing".to_owned() } else { lines.join(" | ") };
            Failure { why: format!("{why}; the end of its console: {said}"), ..failure }
        });
        Ok(Worked { outcome: PcOutcome { complaints: outcome.complaints.decided_by(log), ..outcome }, made, gave_up })
    })
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
pub(crate) struct Tail(VecDeque<u8>);

impl Tail {
    /// All that was kept.
    pub(crate) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.0.make_contiguous()).into_owned()
    }

    /// The last `lines` lines, without characters that steer a terminal.
    fn lines(mut self, lines: usize) -> Vec<String> {
        let text = self.text();
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
