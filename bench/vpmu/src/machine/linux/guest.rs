//! A Linux guest that runs on a thread of its own, and the agent of its init.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux_guest::agent::{Agent, AgentError};
use results::error::{Error, Exit};
use results::shown::steers;
use vmm::kvm::Host;
use vmm::machine::MachineError;
use vmm::machine::linux::{self, Ends, Kernel, LinuxPlan, Log, PcOutcome};
use vmm::outcome::End;

use crate::machine;
use crate::sys;

/// Interval at which an interruption is looked for.
const POLL: Duration = Duration::from_millis(50);
/// Time that a guest takes to power off once it was asked to.
const POWER_OFF: Duration = Duration::from_secs(60);
/// Interval at which the end of a guest is looked for that was asked to power off.
const END_POLL: Duration = Duration::from_millis(5);
/// Lines of the console in the error of a guest that failed.
const LINES: usize = 12;

/// A guest on its way, or running.
#[derive(Debug)]
pub struct LinuxGuest {
    thread: Option<JoinHandle<Result<PcOutcome, MachineError>>>,
    stop: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    tail: Tail,
}

/// Says that a guest's thread has ended, also when it panics.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl LinuxGuest {
    /// Boots `kernel` by `plan` on a thread of its own. Its console goes to `console`, and takes `input`; `channel` is
    /// the agent's port.
    ///
    /// # Errors
    /// Fails if the host gives no thread.
    pub fn start(
        host: &Arc<Host>,
        kernel: Kernel,
        plan: LinuxPlan,
        console: impl Write + Send + 'static,
        (input, channel): (Option<OwnedFd>, Option<UnixStream>),
    ) -> Result<Self, Error> {
        let (stop, over, tail) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)), Tail::default());
        let thread = {
            let (host, stop, over, tail) = (Arc::clone(host), Arc::clone(&stop), Arc::clone(&over), tail.clone());
            std::thread::Builder::new().name("linux".to_owned()).spawn(move || {
                let _ending = Ending(over);
                let mut console = Both(tail, console);
                let ends = Ends { console: &mut console as &mut (dyn Write + Send), input, channel };
                linux::run(&host, kernel, plan, ends, &stop)
            })
        };
        let thread = thread.map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
        Ok(Self { thread: Some(thread), stop, over, tail })
    }

    /// Lets Ctrl-C end the guest as if its power was cut.
    pub fn ends_on_interrupt(self) -> Self {
        let (stop, over) = (Arc::clone(&self.stop), Arc::clone(&self.over));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                if sys::interrupted().load(Ordering::Relaxed) {
                    stop.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(POLL);
            }
        });
        self
    }

    /// Returns the flag that is set once the guest has ended.
    pub fn over(&self) -> &Arc<AtomicBool> {
        &self.over
    }

    /// Ends the guest as if its power was cut.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends a guest with an agent and waits for it; one that was asked to power off has time for it. `log` is its
    /// kernel's, if the agent gave it, and decides on complaints.
    ///
    /// # Errors
    /// It could not begin.
    pub fn end(self, powers_off: bool, log: Option<Log>) -> Result<PcOutcome, Error> {
        let since = Instant::now();
        while powers_off && !self.over.load(Ordering::Relaxed) && since.elapsed() < POWER_OFF {
            std::thread::sleep(END_POLL);
        }
        // A guest that is slow to power off has done its work.
        self.stop();
        let outcome = self.join()?;
        Ok(PcOutcome { complaints: outcome.complaints.decided_by(log), ..outcome })
    }

    /// Waits for the guest's end.
    ///
    /// # Errors
    /// It could not begin.
    pub fn join(mut self) -> Result<PcOutcome, Error> {
        let Some(thread) = self.thread.take() else { return Err(panicked()) };
        thread.join().map_err(|_| panicked())?.map_err(|error| machine::not_begun("cannot boot the kernel", &error))
    }

    /// Builds the error of a guest whose agent failed with `why`: the guest's own end where that says more, and the
    /// last lines of its console; and what the guest left.
    pub fn failed(self, what: &str, why: &str) -> (Error, Option<PcOutcome>) {
        let tail = self.tail.clone();
        // The agent's port closes a moment before the guest ends.
        for _ in 0..40 {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(POLL);
        }
        let ended = self.over.load(Ordering::Relaxed);
        self.stop();
        let outcome = match self.join() {
            Err(error) => return (error, None),
            Ok(outcome) => outcome,
        };
        let why = if ended { outcome.end.to_string() } else { why.to_owned() };
        let lines = tail.lines(LINES);
        let console = if lines.is_empty() { "it said nothing".to_owned() } else { lines.join(" | ") };
        let exit = if matches!(outcome.end, End::Host(_)) { Exit::Host } else { Exit::Inconclusive };
        let error = Error::new(exit, what, format!("{why}; the end of its console: {console}"), "");
        (error, Some(outcome))
    }

    /// Returns the last lines of its console.
    pub fn console(&self) -> Vec<String> {
        self.tail.lines(LINES)
    }
}

impl Drop for LinuxGuest {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop();
            // Results of a guest that is given up are dropped.
            let _ = thread.join();
        }
    }
}

fn panicked() -> Error {
    Error::new(Exit::Internal, "this is a bug of vpmu: the guest's thread panicked", "", "")
}

/// Most bytes of a kernel's log: the largest that Linux has unless its command line says otherwise is smaller.
const MOST_OF_LOG: u64 = 16 << 20;

/// Reads the log of a guest's kernel, if its agent gives it.
pub fn kernel_log(agent: &mut Agent<'_>) -> Option<Log> {
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

/// Makes a pair of ends for the agent: the guest's, and the agent, whose requests Ctrl-C ends.
///
/// # Errors
/// The host has no more file descriptors.
pub fn channel() -> Result<(UnixStream, Agent<'static>), Error> {
    let connected = UnixStream::pair().and_then(|(guest, host)| Ok((guest, Agent::new(host)?)));
    let (guest, agent) = connected.map_err(|error| Error::host("cannot connect a guest", error.to_string(), ""))?;
    Ok((guest, agent.stopped_by(sys::interrupted())))
}

/// Bytes that are kept.
const KEPT: usize = 64 << 10;

/// Keeps the last bytes written to it, and passes them on.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// The last `lines` lines, without characters that steer a terminal.
    pub(super) fn lines(&self, lines: usize) -> Vec<String> {
        let bytes: Vec<u8> = self.lock().iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let first = all.len().saturating_sub(lines);
        all[first..].iter().map(|line| line.chars().filter(|&c| !steers(c)).collect()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        // Bytes are whole whatever their holder did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.lock();
        kept.extend(bytes);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes everything to both.
#[derive(Debug)]
pub(super) struct Both<A, B>(pub(super) A, pub(super) B);

impl<A: Write, B: Write> Write for Both<A, B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.write_all(&bytes[..written])?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.1.flush()
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
        assert_eq!(tail.lines(2), ["line 99999", "[31mthe end"]);
        assert!(tail.lock().len() <= KEPT);
        assert!(Tail::default().lines(5).is_empty());
    }
}
