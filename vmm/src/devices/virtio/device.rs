//! The work on the device's queues, without its thread.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use virtio_queue::QueueT as _;
use vm_memory::GuestMemoryMmap;

use super::chain::{Broken, Chain, Queue};
use super::control::{Control, MESSAGE};
use super::ports::{CONTROL_RECEIVE, CONTROL_TRANSMIT, RECEIVE, TRANSMIT};
use super::stream::{Stop, Stream};
use super::transport::{Effect, Transport};

/// Interrupt status bits (4.2.2): a used buffer, a change of the configuration.
const USED_BUFFER: u32 = 1;
const CONFIGURATION: u32 = 2;

/// Longest time for which the interrupt for bytes to the host is put off. A driver that still has free chains does not wait for it,
/// and each interrupt costs it two exits.
pub(super) const PUT_OFF: Duration = Duration::from_millis(2);

/// Most messages of a driver that are heard before the thread looks at other work. A driver of ours sends three.
const MOST_HEARD: usize = 64;

/// The reasons for the thread to work again, and the interrupt it owes the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Bits of the interrupt status; 0 for no interrupt.
    pub(super) interrupt: u32,
    /// When the socket has bytes.
    pub(super) on_readable: bool,
    /// When the socket has room.
    pub(super) on_writable: bool,
    /// At once.
    pub(super) again: bool,
    /// After [`PUT_OFF`].
    pub(super) soon: bool,
}

/// Faults that broke the connection between the guest's driver and the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Times that a driver broke the rules of the device or of its queues, each of which stopped the device until a reset.
    pub broken: u64,
    /// The host's error that ended the device's thread.
    pub error: Option<String>,
}

/// The state that the thread and the vCPUs share.
#[derive(Debug)]
pub(super) struct Device {
    memory: GuestMemoryMmap,
    transport: Transport,
    control: Control,
    pub(super) stream: Stream,
    faults: Faults,
    /// Chains of bytes to the host that were given back without an interrupt, and since when.
    unannounced: Option<(u16, Instant)>,
}

/// Notes that chains of `queue` were used.
fn used(work: &mut Work, queue: &mut Queue, memory: &GuestMemoryMmap) -> Result<(), Broken> {
    if queue.needs_notification(memory)? {
        work.interrupt |= USED_BUFFER;
    }
    Ok(())
}

/// Asks the driver for a kick with its next chain. One may have come meanwhile: then there is more work.
fn wait_for_chains(work: &mut Work, queue: &mut Queue, memory: &GuestMemoryMmap) -> Result<(), Broken> {
    work.again |= queue.enable_notification(memory)?;
    Ok(())
}

impl Device {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            memory: GuestMemoryMmap::new(),
            transport: Transport::default(),
            control: Control::default(),
            stream: Stream::new(socket),
            faults: Faults::default(),
            unannounced: None,
        }
    }

    /// Sets the memory that queues are in.
    pub(super) fn set_memory(&mut self, memory: &GuestMemoryMmap) {
        self.memory = memory.clone();
    }

    /// Reads a 32-bit register.
    pub(super) fn read(&self, offset: u64) -> u32 {
        self.transport.read(offset)
    }

    /// Writes a 32-bit register; returns whether that reset the device.
    pub(super) fn write(&mut self, offset: u64, value: u32) -> bool {
        let effect = self.transport.write(offset, value, &self.memory);
        if effect == Effect::Reset {
            self.control.reset();
            self.stream.reset();
            self.unannounced = None;
        }
        effect == Effect::Reset
    }

    /// Returns whether a driver is setting the device up: its accesses may need work without a further kick.
    pub(super) const fn is_being_set_up(&self) -> bool {
        self.transport.is_being_set_up()
    }

    /// Returns the faults so far.
    pub(super) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Ends the device by the host's error `why`: no byte passes any more.
    pub(super) fn fail(&mut self, why: String) {
        self.faults.error = Some(why);
        self.stream.shut();
    }

    /// Does what can be done now, a bounded amount.
    ///
    /// Linux's driver does not look at DEVICE_NEEDS_RESET, so the host's end is closed with it: whoever waits for the guest there
    /// would wait in vain.
    pub(super) fn work(&mut self) -> Work {
        let mut work = Work::default();
        if self.transport.is_live() && self.work_on_queues(&mut work).is_err() {
            self.transport.give_up();
        }
        if self.transport.announces_reset() {
            self.faults.broken += 1;
            self.stream.shut();
            work = Work { interrupt: CONFIGURATION, ..Work::default() };
        }
        work
    }

    fn work_on_queues(&mut self, work: &mut Work) -> Result<(), Broken> {
        self.hear_driver(work)?;
        self.transmit(work)?;
        self.receive(work)?;
        self.answer_driver(work)
    }

    /// Messages of the driver.
    fn hear_driver(&mut self, work: &mut Work) -> Result<(), Broken> {
        let Some(queue) = self.transport.queue(CONTROL_TRANSMIT) else { return Ok(()) };
        let mut any = false;
        // Whoever has no room for answers is not asked: `answer_driver` makes room and works again.
        for heard in 0.. {
            if !self.control.has_room() {
                break;
            }
            // Another vCPU can send messages as fast as they are taken, which need no answer and so no room.
            if heard == MOST_HEARD {
                work.again = true;
                break;
            }
            let Some(chain) = Chain::take(queue, &self.memory, false)? else {
                wait_for_chains(work, queue, &self.memory)?;
                break;
            };
            let mut message = [0; MESSAGE];
            if chain.read(&self.memory, 0, &mut message)? < MESSAGE {
                return Err(Broken);
            }
            self.control.take(message);
            chain.give_back(queue, &self.memory, 0)?;
            any = true;
        }
        if any { used(work, queue, &self.memory) } else { Ok(()) }
    }

    /// Messages to the driver.
    fn answer_driver(&mut self, work: &mut Work) -> Result<(), Broken> {
        let Some(queue) = self.transport.queue(CONTROL_RECEIVE) else { return Ok(()) };
        let had_room = self.control.has_room();
        let mut any = false;
        while let Some(message) = self.control.next() {
            let Some(chain) = Chain::take(queue, &self.memory, true)? else {
                wait_for_chains(work, queue, &self.memory)?;
                break;
            };
            if chain.len() < message.len() {
                return Err(Broken);
            }
            let written = chain.write(&self.memory, message)?;
            chain.give_back(queue, &self.memory, written)?;
            self.control.sent();
            any = true;
        }
        work.again |= !had_room && self.control.has_room();
        if any { used(work, queue, &self.memory) } else { Ok(()) }
    }

    /// Moves the port's bytes to the host.
    fn transmit(&mut self, work: &mut Work) -> Result<(), Broken> {
        let Some(queue) = self.transport.queue(TRANSMIT) else { return Ok(()) };
        let (stop, count) = self.stream.transmit(queue, &self.memory)?;
        match stop {
            Stop::Queue => wait_for_chains(work, queue, &self.memory)?,
            Stop::Socket => work.on_writable = true,
            Stop::Budget => work.again = true,
            Stop::Closed => {}
        }
        let (before, since) = self.unannounced.unwrap_or_else(|| (0, Instant::now()));
        let count = before.saturating_add(count);
        if count == 0 {
            return Ok(());
        }
        if count >= queue.size() / 4 || since.elapsed() >= PUT_OFF {
            self.unannounced = None;
            return used(work, queue, &self.memory);
        }
        self.unannounced = Some((count, since));
        work.soon = true;
        Ok(())
    }

    /// Moves the port's bytes to the guest. A driver throws away what comes while no program has the port open.
    fn receive(&mut self, work: &mut Work) -> Result<(), Broken> {
        if !self.control.guest_is_open() {
            return Ok(());
        }
        let Some(queue) = self.transport.queue(RECEIVE) else { return Ok(()) };
        let (stop, any) = self.stream.receive(queue, &self.memory)?;
        match stop {
            Stop::Queue => wait_for_chains(work, queue, &self.memory)?,
            Stop::Socket => work.on_readable = true,
            Stop::Budget => work.again = true,
            Stop::Closed => self.control.close_host(),
        }
        if any { used(work, queue, &self.memory) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
