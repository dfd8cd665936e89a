//! The port's bytes: between descriptor chains and a socket, with back-pressure in both directions.
//!
//! A full socket leaves chains with the driver's queue; a queue without chains leaves bytes in the socket. Between the two
//! is one buffer in each direction, so memory is bounded whatever either end does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use vm_memory::GuestMemoryMmap;

use super::chain::{Broken, Chain, Queue};

/// Bytes moved by one system call.
const CHUNK: usize = 64 << 10;

/// Bytes moved in one direction before the thread looks at other work.
const BUDGET: usize = 4 * CHUNK;

/// Why no more bytes are moved for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The driver's queue has no chain.
    Queue,
    /// The socket is full, or empty.
    Socket,
    /// The host closed its end: nothing more will come.
    Closed,
    /// There is more to do.
    Budget,
}

/// The host's end of the port.
#[derive(Debug)]
pub(super) struct Stream {
    socket: UnixStream,
    /// Bytes of the first chain that the socket has taken.
    taken: usize,
    outgoing: Vec<u8>,
    /// Bytes of the socket that no chain has taken: `incoming[first..last]`.
    incoming: Vec<u8>,
    first: usize,
    last: usize,
}

impl Stream {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, taken: 0, outgoing: vec![0; CHUNK], incoming: vec![0; CHUNK], first: 0, last: 0 }
    }

    /// Makes both ends non-blocking before the first byte: neither waits for the other within a call.
    pub(super) fn prepare(&self) -> io::Result<()> {
        self.socket.set_nonblocking(true)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Ends the connection: the host reads what was sent, then its end.
    pub(super) fn shut(&self) {
        // An error is a host that closed its end before.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Forgets what was half moved for a driver that is gone.
    pub(super) const fn reset(&mut self) {
        (self.taken, self.first, self.last) = (0, 0, 0);
    }

    /// Moves bytes of the driver to the socket. A closed socket takes, and loses, them all. Returns the number of chains that
    /// were used.
    pub(super) fn transmit(&mut self, queue: &mut Queue, memory: &GuestMemoryMmap) -> Result<(Stop, u16), Broken> {
        let mut used = 0_u16;
        let mut left = BUDGET;
        while let Some(chain) = Chain::take(queue, memory, false)? {
            while self.taken < chain.len() {
                let count = chain.read(memory, self.taken, &mut self.outgoing)?;
                match self.socket.write(&self.outgoing[..count]) {
                    Ok(written) => self.taken += written,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        Chain::put_back(queue);
                        return Ok((Stop::Socket, used));
                    }
                    Err(_) => self.taken += count,
                }
                left = left.saturating_sub(count);
                if left == 0 && self.taken < chain.len() {
                    Chain::put_back(queue);
                    return Ok((Stop::Budget, used));
                }
            }
            self.taken = 0;
            chain.give_back(queue, memory, 0)?;
            used = used.saturating_add(1);
            // A chain without a byte is work, too.
            left = left.saturating_sub(1);
            if left == 0 {
                return Ok((Stop::Budget, used));
            }
        }
        Ok((Stop::Queue, used))
    }

    /// Moves bytes of the socket to the driver. Returns whether chains were used.
    pub(super) fn receive(&mut self, queue: &mut Queue, memory: &GuestMemoryMmap) -> Result<(Stop, bool), Broken> {
        let mut used = false;
        let mut left = BUDGET;
        while let Some(chain) = Chain::take(queue, memory, true)? {
            if chain.len() == 0 {
                return Err(Broken);
            }
            if self.first == self.last
                && let Some(stop) = self.fill()
            {
                Chain::put_back(queue);
                return Ok((stop, used));
            }
            let count = chain.write(memory, &self.incoming[self.first..self.last])?;
            self.first += count;
            chain.give_back(queue, memory, count)?;
            used = true;
            left = left.saturating_sub(count);
            if left == 0 {
                return Ok((Stop::Budget, used));
            }
        }
        Ok((Stop::Queue, used))
    }

    fn fill(&mut self) -> Option<Stop> {
        (self.first, self.last) = (0, 0);
        loop {
            match self.socket.read(&mut self.incoming) {
                Ok(0) => return Some(Stop::Closed),
                Ok(count) => {
                    self.last = count;
                    return None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(Stop::Socket),
                Err(_) => return Some(Stop::Closed),
            }
        }
    }
}
