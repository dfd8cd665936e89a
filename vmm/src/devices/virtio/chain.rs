//! The buffers of a descriptor chain, checked.

use virtio_queue::{DescriptorChain, QueueOwnedT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

pub(super) use virtio_queue::Queue;

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

/// Iterates over a chain's buffers; it ends at a descriptor that it cannot read, at a loop, and at an index out of range, as it does at the chain's end:
/// a chain is whole only if its last descriptor has no successor.
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
