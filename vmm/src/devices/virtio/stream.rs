//! The port's bytes: between descriptor chains and a socket, with back-pressure in both directions.
//!
//! A full socket leaves chains with the driver's queue; a queue without chains leaves bytes in the socket. Between the two
//! is one buffer in each direction, so memory is bounded whatever either end does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

pub(super) use virtio_queue::Queue;
use virtio_queue::{DescriptorChain, QueueOwnedT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

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
        // This fails if the host closed its end before.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Forgets what was half moved for a driver that is gone.
    pub(super) const fn reset(&mut self) {
        (self.taken, self.first, self.last) = (0, 0, 0);
    }

    /// Moves bytes of the driver to the socket. A closed socket takes, and loses, them all. Returns whether chains were used.
    pub(super) fn transmit(&mut self, queue: &mut Queue, memory: &GuestMemoryMmap) -> Result<(Stop, bool), Broken> {
        let mut used = false;
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
            used = true;
            // A chain without a byte counts as work, too.
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

/// Most buffers of a chain; a driver of ours needs one or two.
const MAX_BUFFERS: usize = 256;

/// The driver broke a rule of the queue: the device needs a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl From<virtio_queue::Error> for Broken {
    fn from(_: virtio_queue::Error) -> Self {
        Self
    }
}

/// A chain that the driver made available, either all to be read or all to be written by the device.
#[derive(Debug)]
pub(super) struct Chain {
    head: u16,
    buffers: Vec<(GuestAddress, usize)>,
}

impl Chain {
    /// Takes the next chain of `queue`, if there is one. All its buffers are in guest memory, and `writable` or not.
    pub(super) fn take(queue: &mut Queue, memory: &GuestMemoryMmap, writable: bool) -> Result<Option<Self>, Broken> {
        let Some(chain) = queue.iter(memory)?.next() else { return Ok(None) };
        let head = chain.head_index();
        Ok(Some(Self { head, buffers: buffers(chain, memory, writable)? }))
    }

    /// Bytes of all buffers.
    pub(super) fn len(&self) -> usize {
        self.buffers.iter().map(|&(_, length)| length).sum()
    }

    /// Copies from the chain, `skip` bytes after its begin, as much as there is room for; returns the number of bytes.
    pub(super) fn read(&self, memory: &GuestMemoryMmap, mut skip: usize, out: &mut [u8]) -> Result<usize, Broken> {
        let mut done = 0;
        for &(address, length) in &self.buffers {
            let skipped = skip.min(length);
            skip -= skipped;
            let count = (length - skipped).min(out.len() - done);
            let from = GuestAddress(address.0 + skipped as u64);
            memory.read_slice(&mut out[done..done + count], from).map_err(|_| Broken)?;
            done += count;
        }
        Ok(done)
    }

    /// Copies to the begin of the chain as much as it has room for; returns the number of bytes.
    pub(super) fn write(&self, memory: &GuestMemoryMmap, bytes: &[u8]) -> Result<usize, Broken> {
        let mut done = 0;
        for &(address, length) in &self.buffers {
            let count = length.min(bytes.len() - done);
            memory.write_slice(&bytes[done..done + count], address).map_err(|_| Broken)?;
            done += count;
        }
        Ok(done)
    }

    /// Hands the chain back to the driver, with `written` bytes in it.
    pub(super) fn give_back(self, queue: &mut Queue, memory: &GuestMemoryMmap, written: usize) -> Result<(), Broken> {
        use virtio_queue::QueueT as _;
        Ok(queue.add_used(memory, self.head, written as u32)?)
    }

    /// Puts the chain that was taken last back, as if it had not been taken.
    pub(super) fn put_back(queue: &mut Queue) {
        queue.go_to_previous_position();
    }
}

/// Iterates over a chain's buffers; it ends at a descriptor that it cannot read, at a loop, and at an index out of
/// range, as it does at the chain's end: a chain is whole only if its last descriptor has no successor.
fn buffers(
    chain: DescriptorChain<&GuestMemoryMmap>,
    memory: &GuestMemoryMmap,
    writable: bool,
) -> Result<Vec<(GuestAddress, usize)>, Broken> {
    let mut buffers = Vec::new();
    let mut whole = false;
    for descriptor in chain {
        let (address, length) = (descriptor.addr(), descriptor.len() as usize);
        let present = length == 0 || GuestMemoryBackend::check_range(memory, address, length);
        if descriptor.is_write_only() != writable || !present || buffers.len() == MAX_BUFFERS {
            return Err(Broken);
        }
        buffers.push((address, length));
        whole = !descriptor.has_next();
    }
    if whole { Ok(buffers) } else { Err(Broken) }
}
