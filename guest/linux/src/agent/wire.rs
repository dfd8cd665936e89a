//! Frames on a socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::error::AgentError;
use crate::protocol::{HEADER, MAX_PAYLOAD};

/// Bytes of the guest that are kept: a frame, and as much again.
const INCOMING: usize = 2 * (HEADER + MAX_PAYLOAD);

/// Time that a guest has to take a frame. The socket has room for a whole one, and each request waits for its reply.
const TAKES: Duration = Duration::from_secs(60);

/// One frame of the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

/// A connection to the agent.
#[derive(Debug)]
pub(super) struct Wire {
    socket: UnixStream,
    /// Bytes of the guest that no frame has taken: `incoming[..here]`.
    incoming: Vec<u8>,
    here: usize,
}

impl Wire {
    pub(super) fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_write_timeout(Some(TAKES))?;
        Ok(Self { socket, incoming: vec![0; INCOMING], here: 0 })
    }

    /// Sends a frame.
    pub(super) fn send(&mut self, kind: u8, payload: &[u8]) -> Result<(), AgentError> {
        if payload.len() > MAX_PAYLOAD {
            let why = format!("the request has {} bytes; at most {MAX_PAYLOAD} are possible", payload.len());
            return Err(AgentError::Refused(why));
        }
        let frame = [&[kind], &(payload.len() as u32).to_le_bytes()[..], payload].concat();
        // What a guest that is gone sent before is still to be read; one that takes no frame sends no reply either.
        let _ = self.socket.write_all(&frame);
        Ok(())
    }

    /// Takes the next frame; `None` if it is not here as a whole after waiting for bytes once, for at most `timeout`.
    pub(super) fn next(&mut self, timeout: Duration) -> Result<Option<Frame>, AgentError> {
        if let Some(frame) = self.take()? {
            return Ok(Some(frame));
        }
        let gone = |error: std::io::Error| AgentError::Gone(error.to_string());
        // No time at all would be no timeout.
        self.socket.set_read_timeout(Some(timeout.max(Duration::from_millis(1)))).map_err(gone)?;
        match self.socket.read(&mut self.incoming[self.here..]) {
            Ok(0) => Err(AgentError::Gone("the connection is closed".to_owned())),
            Ok(count) => {
                self.here += count;
                self.take()
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(None),
            Err(error) => Err(gone(error)),
        }
    }

    fn take(&mut self) -> Result<Option<Frame>, AgentError> {
        let here = &self.incoming[..self.here];
        let Some((&[kind, a, b, c, d], rest)) = here.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > MAX_PAYLOAD {
            return Err(AgentError::Protocol("a frame is too long"));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = Frame { kind, payload: payload.to_vec() };
        self.incoming.copy_within(HEADER + length..self.here, 0);
        self.here -= HEADER + length;
        Ok(Some(frame))
    }
}

/// Takes numbers and strings from a payload.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

const SHORT: AgentError = AgentError::Protocol("a frame is too short");

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], AgentError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, AgentError> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, AgentError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, AgentError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// Reads the bytes up to a zero byte.
    pub(super) fn string(&mut self) -> Result<&'a [u8], AgentError> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(SHORT)?;
        let string = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(string)
    }
}
