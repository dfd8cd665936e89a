//! The connection as requests and replies.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::AgentError;
use super::wire::{Fields, Frame, Wire};
use crate::protocol::{DONE, ERROR, HEADER, HELLO, MAX_PATH, POWER_OFF, WRITE};

/// Time without a frame after which a guest is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a reply that are read for nothing before the connection is given up.
const MOST_DRAINED: usize = 16 << 20;

/// Time between two looks at whether the caller asks to stop.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// The agent of one guest.
#[derive(Debug)]
pub struct Agent<'a> {
    pub(super) wire: Wire,
    stop: Option<&'a AtomicBool>,
    /// A request has no reply yet.
    pending: bool,
}

impl<'a> Agent<'a> {
    /// Talks to the agent at the other end of `stream`.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { wire: Wire::new(stream)?, stop: None, pending: false })
    }

    /// Requests end early once `stop` is true.
    pub const fn stopped_by(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Requests no longer end early.
    pub const fn never_stops(&mut self) {
        self.stop = None;
    }

    /// Returns whether a request was given up before its reply: nothing more can be asked.
    pub const fn gave_up(&self) -> bool {
        self.pending
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Waits for the agent's first frame; the guest is given up after `timeout`.
    pub fn hello(&mut self, timeout: Duration) -> Result<(), AgentError> {
        match self.wait_within(timeout, "booting")?.kind {
            HELLO => Ok(()),
            _ => Err(AgentError::Protocol("it did not begin with HELLO")),
        }
    }

    /// Writes `bytes` to a file that exists, by one write(2): how sysfs and tracefs take a value.
    pub fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), AgentError> {
        self.request(WRITE, &[&path_of(path)?, bytes].concat())?;
        self.done("writing a file")
    }

    /// Switches the guest off. The connection is of no use after that.
    pub fn power_off(&mut self) -> Result<(), AgentError> {
        self.request(POWER_OFF, &[])?;
        self.done("powering off")
    }

    /// Begins a request. After one that was given up the connection is of no use: its reply may still come.
    pub(super) fn request(&mut self, kind: u8, payload: &[u8]) -> Result<(), AgentError> {
        if self.pending {
            return Err(AgentError::Gone("the request before was given up".to_owned()));
        }
        self.wire.send(kind, payload)?;
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
            let Ok(frame) = self.wait_for("its reply is thrown away") else { return };
            left = left.saturating_sub(HEADER + frame.payload.len());
            if matches!(frame.kind, DONE | ERROR) {
                self.replied();
            }
        }
    }

    /// Waits for the next frame. How long the guest may send is up to whoever runs it: its end closes the connection.
    pub(super) fn wait_for(&mut self, during: &'static str) -> Result<Frame, AgentError> {
        self.wait_within(PATIENCE, during)
    }

    fn wait_within(&mut self, patience: Duration, during: &'static str) -> Result<Frame, AgentError> {
        let began = Instant::now();
        loop {
            if self.is_stopped() {
                return Err(AgentError::Interrupted);
            }
            if let Some(frame) = self.wire.next(SLICE.min(patience))? {
                return Ok(frame);
            }
            if began.elapsed() > patience {
                return Err(AgentError::Silent { after: began.elapsed(), during });
            }
        }
    }

    /// Waits for the reply DONE.
    fn done(&mut self, during: &'static str) -> Result<(), AgentError> {
        let frame = self.wait_for(during)?;
        self.replied();
        match frame.kind {
            DONE => Ok(()),
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
        Ok((errno, operation, path)) => {
            let error = io::Error::from_raw_os_error(errno.cast_signed());
            AgentError::Refused(format!("in the guest: {operation} {path}: {error}"))
        }
        Err(error) => error,
    }
}

/// Filters text of the guest for messages: no control characters, and no longer than a path.
pub(super) fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(MAX_PATH)];
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Encodes a string as it is sent.
pub(super) fn zero_ended(string: &str) -> Result<Vec<u8>, AgentError> {
    if string.contains('\0') {
        return Err(AgentError::Refused(format!("{string:?} has a zero byte")));
    }
    Ok([string.as_bytes(), &[0]].concat())
}

/// Encodes a path.
pub(super) fn path_of(path: &str) -> Result<Vec<u8>, AgentError> {
    if path.len() >= MAX_PATH {
        return Err(AgentError::Refused(format!(
            "a path has {} bytes; at most {} are possible",
            path.len(),
            MAX_PATH - 1
        )));
    }
    zero_ended(path)
}
