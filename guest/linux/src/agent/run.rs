//! Running a program in the guest.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::client::{Agent, SLICE, refusal};
use super::error::AgentError;
use super::wire::Fields;
use crate::protocol::{
    ENDED, ERR, ERROR, KILL, MAX_PAYLOAD, MAX_STRINGS, OUT, RUN, RUN_STDIN, STDIN, STDIN_WINDOW, TAKEN,
};

/// Time for a program that is killed to be gone.
const GRACE: Duration = Duration::from_secs(30);

const SIGKILL: u32 = 9;

/// A program to run.
#[derive(Debug)]
pub struct Command<'a> {
    argv: &'a [String],
    env: Vec<(String, String)>,
    stdin: Option<BorrowedFd<'a>>,
    limit: Option<Duration>,
}

impl<'a> Command<'a> {
    /// Describes a program and its arguments; a name without a slash is searched for in the guest's PATH. It runs in
    /// `/root`, with the init's environment (PATH, HOME, TERM), and its input is /dev/null.
    pub const fn new(argv: &'a [String]) -> Self {
        Self { argv, env: Vec::new(), stdin: None, limit: None }
    }

    /// Adds a variable, in place of the init's of that name.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives it the bytes of a descriptor as input.
    pub const fn stdin(mut self, stdin: BorrowedFd<'a>) -> Self {
        self.stdin = Some(stdin);
        self
    }

    /// Kills it after `limit`.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    fn payload(&self) -> Result<Vec<u8>, AgentError> {
        let flags = if self.stdin.is_some() { RUN_STDIN } else { 0 };
        for (what, strings) in [("the list of arguments", self.argv.len()), ("the list of variables", self.env.len())] {
            if strings > MAX_STRINGS {
                return Err(AgentError::TooLarge { what, length: strings, most: MAX_STRINGS });
            }
        }
        let mut payload = Vec::new();
        for number in [flags, self.argv.len() as u32, self.env.len() as u32] {
            payload.extend_from_slice(&number.to_le_bytes());
        }
        let variables = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        for string in self.argv.iter().cloned().chain(variables) {
            if string.bytes().any(|byte| byte == 0) {
                return Err(AgentError::ZeroByte(string));
            }
            payload.extend_from_slice(string.as_bytes());
            payload.push(0);
        }
        if payload.len() > MAX_PAYLOAD {
            let what = "the command with its variables";
            return Err(AgentError::TooLarge { what, length: payload.len(), most: MAX_PAYLOAD });
        }
        Ok(payload)
    }
}

/// The way in which a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with a status.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl Exit {
    fn of(status: u32) -> Self {
        let signal = status & 0x7f;
        if signal == 0 { Self::Code((status >> 8 & 0xff).cast_signed()) } else { Self::Signal(signal.cast_signed()) }
    }

    /// Returns the status as a shell gives it.
    pub const fn shell_status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// The reason for which a program was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its time limit.
    Limit,
    /// The caller asked to stop.
    Interrupted,
}

/// A program that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// End of the program.
    pub exit: Exit,
    /// Its time by the guest's CLOCK_MONOTONIC, in nanoseconds.
    pub wall_ns: u64,
    /// The client had it killed.
    pub cut: Option<Cut>,
}

/// A program while it runs.
#[derive(Debug)]
struct Running<'a> {
    stdin: Option<BorrowedFd<'a>>,
    /// Bytes of input that may be sent.
    window: usize,
    killed: Option<Instant>,
    cut: Option<Cut>,
    /// Output of the program can no longer be written.
    broken: Option<AgentError>,
}

impl Agent<'_> {
    /// Runs a program until it ends; what it writes to standard output and standard error goes to `out` and `err` meanwhile. What
    /// its own children write after its end is lost.
    pub fn run(
        &mut self,
        command: &Command<'_>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Ended, AgentError> {
        self.request(RUN, &[&command.payload()?])?;
        let mut running = Running { stdin: command.stdin, window: STDIN_WINDOW, killed: None, cut: None, broken: None };
        let due = command.limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            while let Some(frame) = self.wire.frame()? {
                match frame.kind {
                    OUT => running.output("standard output", out, &frame.payload),
                    ERR => running.output("standard error", err, &frame.payload),
                    TAKEN => running.window += Fields(&frame.payload).u32()? as usize,
                    ERROR => {
                        self.replied();
                        return Err(refusal(&frame.payload));
                    }
                    ENDED => {
                        self.replied();
                        return running.end(&frame.payload);
                    }
                    _ => return Err(AgentError::Protocol("a reply of another request while a program runs")),
                }
                if running.window > STDIN_WINDOW {
                    return Err(AgentError::Protocol("more input was taken than there was"));
                }
            }
            self.kill_if_due(&mut running, due)?;
            let wait = due.map_or(SLICE, |due| SLICE.min(due.saturating_duration_since(Instant::now())));
            let watch = running.stdin.filter(|_| running.window > 0 && self.wire.has_room());
            // At its time limit a program is killed once; waiting for its end is no busy loop.
            let step = self.wire.step(if running.killed.is_some() { SLICE } else { wait }, watch)?;
            if step.watched {
                self.send_input(&mut running)?;
            }
        }
    }

    fn kill_if_due(&mut self, running: &mut Running<'_>, due: Option<Instant>) -> Result<(), AgentError> {
        if let Some(killed) = running.killed {
            if killed.elapsed() > GRACE {
                return Err(AgentError::Silent { after: killed.elapsed(), during: "a program is killed" });
            }
            return Ok(());
        }
        if self.is_stopped() {
            running.cut = Some(Cut::Interrupted);
        } else if due.is_some_and(|due| Instant::now() >= due) {
            running.cut = Some(Cut::Limit);
        }
        if running.cut.is_some() || running.broken.is_some() {
            running.killed = Some(Instant::now());
            running.stdin = None;
            self.wire.queue(KILL, &[&SIGKILL.to_le_bytes()])?;
        }
        Ok(())
    }

    fn send_input(&mut self, running: &mut Running<'_>) -> Result<(), AgentError> {
        let Some(stdin) = running.stdin else { return Ok(()) };
        let mut bytes = vec![0; running.window];
        let count = match rustix::io::read(stdin, &mut bytes) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => {
                running.broken = Some(AgentError::Stream { what: "the program's input", error: error.into() });
                return Ok(());
            }
        };
        if count == 0 {
            running.stdin = None;
        }
        running.window -= count;
        self.wire.queue(STDIN, &[&bytes[..count]])
    }
}

impl Running<'_> {
    fn output(&mut self, what: &'static str, to: &mut dyn Write, bytes: &[u8]) {
        if self.broken.is_none()
            && let Err(error) = to.write_all(bytes).and_then(|()| to.flush())
        {
            self.broken = Some(AgentError::Stream { what, error });
        }
    }

    fn end(self, payload: &[u8]) -> Result<Ended, AgentError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let mut fields = Fields(payload);
        let exit = Exit::of(fields.u32()?);
        Ok(Ended { exit, wall_ns: fields.u64()?, cut: self.cut })
    }
}
