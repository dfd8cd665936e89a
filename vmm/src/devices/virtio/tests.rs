//! A driver for tests: rings in guest memory, registers by a function.

use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::control::{CONTROL_RECEIVE, CONTROL_TRANSMIT, QUEUES, RECEIVE};
use super::transport::{register, status};

/// VIRTQ_DESC_F_NEXT and _WRITE.
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;

/// Entries of each queue.
pub(super) const SIZE: u16 = 128;

/// Bytes of a buffer that is offered by [`Driver::offer_room`].
pub(super) const BUFFER: u32 = 1024;

const MEMORY: usize = 4 << 20;

pub(super) fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap()
}

/// Returns the address of a queue's descriptors; its other rings follow.
pub(super) const fn descriptors(queue: usize) -> u64 {
    0x1_0000 * (queue as u64 + 1)
}

pub(super) const fn available(queue: usize) -> u64 {
    descriptors(queue) + 0x2000
}

pub(super) const fn used(queue: usize) -> u64 {
    descriptors(queue) + 0x3000
}

/// Returns the buffer of a descriptor.
pub(super) const fn buffer(queue: usize, index: u16) -> GuestAddress {
    GuestAddress(0x10_0000 + queue as u64 * 0x2_0000 + index as u64 * BUFFER as u64)
}

/// The driver's side of the rings.
#[derive(Debug)]
pub(super) struct Driver<'a> {
    memory: &'a GuestMemoryMmap,
    next_available: [u16; QUEUES],
    next_used: [u16; QUEUES],
}

impl<'a> Driver<'a> {
    /// Resets the device and sets it up; `write` writes a register.
    pub(super) fn new(memory: &'a GuestMemoryMmap, features: u64, mut write: impl FnMut(u64, u32)) -> Self {
        for queue in 0..QUEUES {
            memory.write_slice(&[0; 0x4000], GuestAddress(descriptors(queue))).unwrap();
        }
        let mut state = 0;
        write(register::STATUS, 0);
        for step in [status::ACKNOWLEDGE, status::DRIVER] {
            state |= step;
            write(register::STATUS, state);
        }
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            write(register::DRIVER_FEATURES_SEL, select);
            write(register::DRIVER_FEATURES, half);
        }
        state |= status::FEATURES_OK;
        write(register::STATUS, state);
        for queue in 0..QUEUES {
            write(register::QUEUE_SEL, queue as u32);
            write(register::QUEUE_NUM, u32::from(SIZE));
            write(register::QUEUE_DESC_LOW, descriptors(queue) as u32);
            write(register::QUEUE_DRIVER_LOW, available(queue) as u32);
            write(register::QUEUE_DEVICE_LOW, used(queue) as u32);
            for high in [register::QUEUE_DESC_HIGH, register::QUEUE_DRIVER_HIGH, register::QUEUE_DEVICE_HIGH] {
                write(high, 0);
            }
            write(register::QUEUE_READY, 1);
        }
        write(register::STATUS, state | status::DRIVER_OK);
        let mut driver = Self { memory, next_available: [0; QUEUES], next_used: [0; QUEUES] };
        for queue in [CONTROL_RECEIVE, RECEIVE] {
            for _ in 0..SIZE {
                driver.offer_room(queue);
            }
        }
        driver
    }

    /// Writes one descriptor.
    pub(super) fn describe(&self, queue: usize, index: u16, address: GuestAddress, length: u32, flags: u16, next: u16) {
        let descriptor = RawDescriptor::from(Descriptor::new(address.0, length, flags, next));
        self.memory.write_obj(descriptor, GuestAddress(descriptors(queue) + u64::from(index) * 16)).unwrap();
    }

    /// Makes the chain at `head` available.
    pub(super) fn offer(&mut self, queue: usize, head: u16) {
        let next = &mut self.next_available[queue];
        let slot = available(queue) + 4 + u64::from(*next % SIZE) * 2;
        self.memory.write_obj(head, GuestAddress(slot)).unwrap();
        *next = next.wrapping_add(1);
        self.memory.write_obj(*next, GuestAddress(available(queue) + 2)).unwrap();
    }

    /// Returns the descriptor that the next [`Self::offer_room`] or [`Self::send`] takes.
    fn next(&self, queue: usize) -> u16 {
        self.next_available[queue] % SIZE
    }

    /// Offers one buffer to write to.
    pub(super) fn offer_room(&mut self, queue: usize) {
        let index = self.next(queue);
        self.describe(queue, index, buffer(queue, index), BUFFER, WRITE, 0);
        self.offer(queue, index);
    }

    /// Offers one buffer with `bytes`.
    pub(super) fn send(&mut self, queue: usize, bytes: &[u8]) {
        let index = self.next(queue);
        self.memory.write_slice(bytes, buffer(queue, index)).unwrap();
        self.describe(queue, index, buffer(queue, index), bytes.len() as u32, 0, 0);
        self.offer(queue, index);
    }

    /// Sends a control message.
    pub(super) fn control(&mut self, id: u32, event: u16, value: u16) {
        let bytes = [&id.to_le_bytes()[..], &event.to_le_bytes(), &value.to_le_bytes()].concat();
        self.send(CONTROL_TRANSMIT, &bytes);
    }

    /// Chains given back and not yet taken.
    pub(super) fn given_back(&self, queue: usize) -> u16 {
        let index: u16 = self.memory.read_obj(GuestAddress(used(queue) + 2)).unwrap();
        index.wrapping_sub(self.next_used[queue])
    }

    /// Takes the next chain given back: its bytes.
    pub(super) fn take(&mut self, queue: usize) -> Option<Vec<u8>> {
        if self.given_back(queue) == 0 {
            return None;
        }
        let next = &mut self.next_used[queue];
        let [head, length]: [u32; 2] =
            self.memory.read_obj(GuestAddress(used(queue) + 4 + u64::from(*next % SIZE) * 8)).unwrap();
        *next = next.wrapping_add(1);
        let mut bytes = vec![0; length as usize];
        self.memory.read_slice(&mut bytes, buffer(queue, head as u16)).unwrap();
        Some(bytes)
    }

    /// Takes all chains given back, and offers their room again.
    pub(super) fn receive(&mut self, queue: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(some) = self.take(queue) {
            bytes.extend(some);
            self.offer_room(queue);
        }
        bytes
    }
}
