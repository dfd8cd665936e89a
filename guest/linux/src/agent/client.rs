//! The connection as requests and replies.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::AgentError;
use super::wire::{Fields, Frame, Wire};
use crate::protocol::{DONE, ERROR, HEADER, HELLO, MAX_PATH, POWER_OFF, VERSION, WRITE};

/// Time without a byte after which a guest is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of files that a guest may send unless the caller says otherwise.
const BUDGET: u64 = 1 << 30;

/// Bytes of a reply that are read for nothing before the connection is given up.
const MOST_DRAINED: usize = 16 << 20;

/// Time between two looks at whether the caller asks to stop.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// The guest's first words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Time since the guest's kernel began, by its CLOCK_BOOTTIME.
    pub uptime: Duration,
    /// The kernel's release, as `uname -r` gives it.
    pub release: String,
}

/// The agent of one guest.
#[derive(Debug)]
pub struct Agent<'a> {
    pub(super) wire: Wire,
    pub(super) patience: Duration,
    /// Bytes of files that the guest may send, and how many of them are left.
    pub(super) budget: [u64; 2],
    deadline: Option<Instant>,
    stop: Option<&'a AtomicBool>,
    /// A request has no reply yet.
    pending: bool,
}

impl<'a> Agent<'a> {
    /// Talks to the agent at the other end of `stream`.
    pub fn new(stream: UnixStream) -> std::io::Result<Self> {
        let (patience, budget) = (PATIENCE, [BUDGET; 2]);
        Ok(Self { wire: Wire::new(stream)?, patience, budget, deadline: None, stop: None, pending: false })
    }

    /// Requests end early once `stop` is true.
    pub const fn stopped_by(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Gives the guest up after `patience` without a byte; 60 s otherwise. A running program may be silent for ever.
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Takes at most so many bytes of files from the guest in all, 1 GiB otherwise. A file also costs its name and what
    /// it takes on the host.
    pub const fn with_budget(mut self, bytes: u64) -> Self {
        self.budget = [bytes; 2];
        self
    }

    /// Ends requests at `deadline`, whatever the guest sends. A running program has a limit of its own.
    pub const fn ends_by(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Returns whether a request was given up before its reply: nothing more can be asked.
    pub const fn gave_up(&self) -> bool {
        self.pending
    }

    /// Returns why a request ends early: after `quiet` without a byte, at the deadline, or because the caller asks to stop.
    pub(super) fn early(&self, quiet: Duration, patience: Duration, during: &'static str) -> Option<AgentError> {
        if self.is_stopped() {
            return Some(AgentError::Interrupted);
        }
        if quiet > patience {
            return Some(AgentError::Silent { after: quiet, during });
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline).then_some(AgentError::Late { during })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Waits for the agent's first frame, for at most `timeout`.
    pub fn hello(&mut self, timeout: Duration) -> Result<Hello, AgentError> {
        let before = self.deadline;
        // A guest that is silent until then is called so.
        let due = Instant::now().checked_add(timeout.saturating_add(SLICE));
        self.deadline = [before, due].into_iter().flatten().min();
        let frame = self.wait_for(timeout, "booting");
        self.deadline = before;
        let frame = frame?;
        if frame.kind != HELLO {
            return Err(AgentError::Protocol("it did not begin with HELLO"));
        }
        let mut fields = Fields(&frame.payload);
        let version = fields.u32()?;
        if version != VERSION {
            return Err(AgentError::Version(version));
        }
        let uptime = Duration::from_nanos(fields.u64()?);
        Ok(Hello { uptime, release: text(fields.string()?) })
    }

    /// Writes `bytes` to a file that exists, by one write(2): how sysfs and tracefs take a value.
    pub fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), AgentError> {
        let path = zero_ended(path)?;
        self.request(WRITE, &[&path, bytes])?;
        self.done("writing a file").map(drop)
    }

    /// Switches the guest off. The connection is of no use after that.
    pub fn power_off(&mut self) -> Result<(), AgentError> {
        self.request(POWER_OFF, &[])?;
        self.done("powering off").map(drop)
    }

    /// Begins a request. After one that was given up the connection is of no use: its reply may still come.
    pub(super) fn request(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), AgentError> {
        if self.pending {
            return Err(AgentError::Gone("the request before was given up".to_owned()));
        }
        self.wire.queue(kind, parts)?;
        self.pending = true;
        Ok(())
    }

    /// Notes the reply of a request.
    pub(super) const fn replied(&mut self) {
        self.pending = false;
    }

    /// Throws the rest of a reply away, after an error of the host's own, if it is not long.
    pub(super) fn drain(&mut self) {
        let mut left = MOST_DRAINED;
        while self.pending && left > 0 {
            let Ok(frame) = self.wait_for(self.patience, "its reply is thrown away") else { return };
            left = left.saturating_sub(HEADER + frame.payload.len());
            if matches!(frame.kind, DONE | ERROR) {
                self.replied();
            }
        }
    }

    /// Waits for the next frame; the guest is given up after `patience` without a byte, and at the deadline.
    pub(super) fn wait_for(&mut self, patience: Duration, during: &'static str) -> Result<Frame, AgentError> {
        let mut last = Instant::now();
        loop {
            if let Some(frame) = self.wire.frame()? {
                return Ok(frame);
            }
            if let Some(error) = self.early(last.elapsed(), patience, during) {
                return Err(error);
            }
            if self.wire.step(SLICE, None)?.moved {
                last = Instant::now();
            }
        }
    }

    /// Waits for the reply DONE: its number of bytes.
    pub(super) fn done(&mut self, during: &'static str) -> Result<u64, AgentError> {
        let frame = self.wait_for(self.patience, during)?;
        self.replied();
        match frame.kind {
            DONE => Fields(&frame.payload).u64(),
            ERROR => Err(refusal(&frame.payload)),
            _ => Err(AgentError::Protocol("a reply of another request")),
        }
    }
}

/// Reads the error in a frame ERROR.
pub(super) fn refusal(payload: &[u8]) -> AgentError {
    let mut fields = Fields(payload);
    let parse = |fields: &mut Fields<'_>| Ok((fields.u32()?, text(fields.string()?), text(fields.string()?)));
    match parse(&mut fields) {
        Ok((errno, operation, path)) => AgentError::Guest { operation, path, errno: errno.cast_signed() },
        Err(error) => error,
    }
}

/// Filters text of the guest for messages: no control characters, and no longer than a path.
pub(super) fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(MAX_PATH)];
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Encodes a path, or another string, as it is sent.
pub(super) fn zero_ended(string: &str) -> Result<Vec<u8>, AgentError> {
    if string.bytes().any(|byte| byte == 0) {
        return Err(AgentError::ZeroByte(string.to_owned()));
    }
    if string.len() >= MAX_PATH {
        return Err(AgentError::TooLarge { what: "a path", length: string.len(), most: MAX_PATH - 1 });
    }
    Ok([string.as_bytes(), &[0]].concat())
}
