//! Frames on a socket that is never waited for in one direction only.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::AgentError;
use crate::protocol::{HEADER, MAX_PAYLOAD};

/// Bytes kept for the guest before a caller has to wait.
const OUTGOING: usize = 4 * MAX_PAYLOAD;

/// Bytes of the guest that are kept: a frame, and as much again.
const INCOMING: usize = 2 * (HEADER + MAX_PAYLOAD);

/// One frame of the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

/// The outcome of [`Wire::step`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// Bytes moved in either direction.
    pub(super) moved: bool,
    /// The descriptor that was watched can be read.
    pub(super) watched: bool,
}

/// A connection to the agent.
#[derive(Debug)]
pub(super) struct Wire {
    socket: UnixStream,
    /// Bytes of the guest that no frame has taken: `incoming[first..last]`.
    incoming: Vec<u8>,
    first: usize,
    last: usize,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that the socket has taken.
    sent: usize,
    /// The guest closed its end.
    ended: bool,
}

impl Wire {
    pub(super) fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let incoming = vec![0; INCOMING];
        Ok(Self { socket, incoming, first: 0, last: 0, outgoing: Vec::new(), sent: 0, ended: false })
    }

    /// Returns whether another frame can be queued without keeping too much.
    pub(super) const fn has_room(&self) -> bool {
        self.outgoing.len() - self.sent < OUTGOING
    }

    /// Returns whether everything queued is with the socket.
    pub(super) const fn is_flushed(&self) -> bool {
        self.sent == self.outgoing.len()
    }

    /// Queues a frame of `parts`, one after the other.
    pub(super) fn queue(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), AgentError> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > MAX_PAYLOAD {
            return Err(AgentError::TooLarge { what: "the request", length, most: MAX_PAYLOAD });
        }
        if self.is_flushed() {
            self.outgoing.clear();
            self.sent = 0;
        }
        self.outgoing.push(kind);
        self.outgoing.extend_from_slice(&(length as u32).to_le_bytes());
        for part in parts {
            self.outgoing.extend_from_slice(part);
        }
        Ok(())
    }

    /// Returns the next frame that is here as a whole.
    pub(super) fn frame(&mut self) -> Result<Option<Frame>, AgentError> {
        let here = &self.incoming[self.first..self.last];
        let Some((&[kind, a, b, c, d], rest)) = here.split_first_chunk::<HEADER>() else { return self.no_frame() };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > MAX_PAYLOAD {
            return Err(AgentError::Protocol("a frame is too long"));
        }
        let Some(payload) = rest.get(..length) else { return self.no_frame() };
        let frame = Frame { kind, payload: payload.to_vec() };
        self.first += HEADER + length;
        Ok(Some(frame))
    }

    fn no_frame(&self) -> Result<Option<Frame>, AgentError> {
        if self.ended { Err(AgentError::Gone("the connection is closed".to_owned())) } else { Ok(None) }
    }

    /// Moves what can be moved, after waiting for at most `timeout` until something can be; also until `watch` can be read.
    pub(super) fn step(&mut self, timeout: Duration, watch: Option<BorrowedFd<'_>>) -> Result<Step, AgentError> {
        let mut descriptors = vec![PollFd::from_borrowed_fd(self.socket.as_fd(), self.events())];
        descriptors.extend(watch.map(|watch| PollFd::from_borrowed_fd(watch, PollFlags::IN)));
        let timeout = Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(AgentError::Stream { what: "poll", error: error.into() }),
        }
        let watched = descriptors.get(1).is_some_and(|watch| !watch.revents().is_empty());
        drop(descriptors);
        let sent = self.send();
        let received = self.receive()?;
        Ok(Step { moved: sent || received, watched })
    }

    /// Returns the events to wait for. Bytes without room are none: they would end each wait at once, for as long as
    /// nobody takes a frame.
    fn events(&self) -> PollFlags {
        let receives = !self.ended && self.last - self.first < INCOMING;
        let [receive, send] = [(receives, PollFlags::IN), (!self.is_flushed(), PollFlags::OUT)]
            .map(|(wanted, flag)| if wanted { flag } else { PollFlags::empty() });
        receive | send
    }

    fn send(&mut self) -> bool {
        let before = self.sent;
        while !self.is_flushed() {
            match self.socket.write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The guest is gone; what it sent before is still to be read.
                Err(_) => self.sent = self.outgoing.len(),
            }
        }
        if self.sent > OUTGOING {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
            return true;
        }
        self.sent != before
    }

    /// Reads what there is room for.
    fn receive(&mut self) -> Result<bool, AgentError> {
        self.incoming.copy_within(self.first..self.last, 0);
        (self.first, self.last) = (0, self.last - self.first);
        if self.last == INCOMING {
            return Ok(false);
        }
        match self.socket.read(&mut self.incoming[self.last..]) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                self.last += count;
                return Ok(true);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.ended = true,
            Err(error) => return Err(AgentError::Gone(error.to_string())),
        }
        Ok(false)
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

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut sender, mut wire) = (Wire::new(theirs).unwrap(), Wire::new(ours).unwrap());
        let payloads: Vec<Vec<u8>> =
            [0, 1, 5, 1000, MAX_PAYLOAD].iter().map(|&length| vec![length as u8; length]).collect();
        for payload in &payloads {
            sender.queue(9, &[payload]).unwrap();
        }
        let mut frames = Vec::new();
        while frames.len() < payloads.len() {
            sender.step(Duration::ZERO, None).unwrap();
            wire.step(SOON, None).unwrap();
            frames.extend(std::iter::from_fn(|| wire.frame().unwrap()));
        }
        assert!(frames.iter().zip(&payloads).all(|(frame, payload)| frame.kind == 9 && &frame.payload == payload));
        assert!(wire.frame().unwrap().is_none());
        drop(sender);
        wire.step(SOON, None).unwrap();
        assert!(matches!(wire.frame(), Err(AgentError::Gone(_))));
    }

    #[test]
    fn a_payload_that_is_too_long_is_refused_in_both_directions() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(ours).unwrap();
        assert!(matches!(wire.queue(1, &[&[0; 1], &vec![0; MAX_PAYLOAD]]), Err(AgentError::TooLarge { .. })));
        assert!(wire.is_flushed());
        theirs.write_all(&[1, 0xfc, 0xff, 0, 0]).unwrap();
        wire.step(SOON, None).unwrap();
        assert!(matches!(wire.frame(), Err(AgentError::Protocol(_))));
    }

    #[test]
    fn memory_is_bounded_by_whoever_does_not_take_frames() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(ours).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut written = 0;
        for _ in 0..200 {
            written += theirs.write(&[2; 8192]).unwrap_or(0);
            wire.step(Duration::ZERO, None).unwrap();
        }
        assert!(wire.last == INCOMING && written > INCOMING && written < 1 << 20, "{written} bytes");
        wire.step(SOON, None).unwrap();
        assert!(!wire.ended, "a full buffer is no end");
        assert_eq!(wire.events(), PollFlags::empty(), "it waits for nothing that it cannot take");
    }
}
