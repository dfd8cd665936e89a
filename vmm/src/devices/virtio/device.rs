//! The work on the device's queues, without its thread.

use std::os::unix::net::UnixStream;

use vm_memory::GuestMemoryMmap;

use super::control::{CONTROL_RECEIVE, CONTROL_TRANSMIT, Control, MESSAGE, RECEIVE, TRANSMIT};
use super::stream::{Broken, Chain, Stop, Stream};
use super::transport::Transport;

/// Interrupt status bits (4.2.2): a used buffer, a change of the configuration.
const USED_BUFFER: u32 = 1;
const CONFIGURATION: u32 = 2;

/// Most messages of a driver that are heard before the thread looks at other work. A driver of ours sends three.
const MOST_HEARD: usize = 64;

/// The interrupt that a driver is due after the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Bits of the interrupt status; 0 for no interrupt.
    pub(super) interrupt: u32,
    /// The thread is to work again at once.
    pub(super) again: bool,
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
}

impl Device {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            memory: GuestMemoryMmap::new(),
            transport: Transport::default(),
            control: Control::default(),
            stream: Stream::new(socket),
            faults: Faults::default(),
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
        let reset = self.transport.write(offset, value, &self.memory);
        if reset {
            self.control.reset();
            self.stream.reset();
        }
        reset
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
    pub(super) fn work(&mut self) -> Due {
        let mut due = Due::default();
        if self.transport.is_live() && self.work_on_queues(&mut due).is_err() {
            self.transport.give_up();
        }
        if self.transport.announces_reset() {
            self.faults.broken += 1;
            self.stream.shut();
            due = Due { interrupt: CONFIGURATION, ..Due::default() };
        }
        due
    }

    fn work_on_queues(&mut self, due: &mut Due) -> Result<(), Broken> {
        self.hear_driver(due)?;
        self.transmit(due)?;
        self.receive(due)?;
        self.answer_driver(due)
    }

    /// Messages of the driver.
    fn hear_driver(&mut self, due: &mut Due) -> Result<(), Broken> {
        let Some(queue) = self.transport.queue(CONTROL_TRANSMIT) else { return Ok(()) };
        // Messages stay in the queue while there is no room for answers: `answer_driver` makes room and asks for further work.
        for heard in 0.. {
            if !self.control.has_room() {
                break;
            }
            // Another vCPU can send messages as fast as they are taken; without an answer they need no room, which would end this.
            if heard == MOST_HEARD {
                due.again = true;
                break;
            }
            let Some(chain) = Chain::take(queue, &self.memory, false)? else { break };
            let mut message = [0; MESSAGE];
            if chain.read(&self.memory, 0, &mut message)? < MESSAGE {
                return Err(Broken);
            }
            self.control.take(message);
            chain.give_back(queue, &self.memory, 0)?;
            due.interrupt |= USED_BUFFER;
        }
        Ok(())
    }

    /// Messages to the driver.
    fn answer_driver(&mut self, due: &mut Due) -> Result<(), Broken> {
        let Some(queue) = self.transport.queue(CONTROL_RECEIVE) else { return Ok(()) };
        let had_room = self.control.has_room();
        while let Some(message) = self.control.next() {
            let Some(chain) = Chain::take(queue, &self.memory, true)? else { break };
            if chain.len() < message.len() {
                return Err(Broken);
            }
            let written = chain.write(&self.memory, message)?;
            chain.give_back(queue, &self.memory, written)?;
            self.control.sent();
            due.interrupt |= USED_BUFFER;
        }
        due.again |= !had_room && self.control.has_room();
        Ok(())
    }

    /// Moves the port's bytes to the host.
    fn transmit(&mut self, due: &mut Due) -> Result<(), Broken> {
        let Some(queue) = self.transport.queue(TRANSMIT) else { return Ok(()) };
        let (stop, any) = self.stream.transmit(queue, &self.memory)?;
        due.again |= stop == Stop::Budget;
        due.interrupt |= if any { USED_BUFFER } else { 0 };
        Ok(())
    }

    /// Moves the port's bytes to the guest. A driver throws away what comes while no program has the port open.
    fn receive(&mut self, due: &mut Due) -> Result<(), Broken> {
        if !self.control.guest_is_open() {
            return Ok(());
        }
        let Some(queue) = self.transport.queue(RECEIVE) else { return Ok(()) };
        let (stop, any) = self.stream.receive(queue, &self.memory)?;
        if stop == Stop::Closed {
            self.control.close_host();
        }
        due.again |= stop == Stop::Budget;
        due.interrupt |= if any { USED_BUFFER } else { 0 };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::super::tests::{Driver, NEXT, SIZE, WRITE, available, buffer, memory};
    use super::super::transport::{register, status};
    use super::{Device, Due, Faults};
    use crate::devices::virtio::control::{CONTROL_RECEIVE, CONTROL_TRANSMIT, QUEUES, RECEIVE, TRANSMIT};

    const FEATURES: u64 = 1 << 32 | 1 << 1;

    fn device(memory: &GuestMemoryMmap) -> (Device, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut device = Device::new(ours);
        device.stream.prepare().unwrap();
        device.set_memory(memory);
        (device, theirs)
    }

    fn driver<'a>(device: &mut Device, memory: &'a GuestMemoryMmap, features: u64) -> Driver<'a> {
        Driver::new(memory, features, |offset, value| {
            device.write(offset, value);
        })
    }

    /// Works until nothing is left to do; returns all interrupts and the last state.
    fn settle(device: &mut Device) -> Due {
        let mut interrupt = 0;
        loop {
            let due = device.work();
            interrupt |= due.interrupt;
            if !due.again {
                return Due { interrupt, ..due };
            }
        }
    }

    /// A device with a driver that has the port open.
    fn open(memory: &GuestMemoryMmap, features: u64) -> (Device, Driver<'_>, UnixStream) {
        let (mut device, host) = device(memory);
        let mut driver = driver(&mut device, memory, features);
        driver.control(0, 0, 1);
        driver.control(1, 3, 1);
        driver.control(1, 6, 1);
        settle(&mut device);
        driver.receive(CONTROL_RECEIVE);
        while driver.take(CONTROL_TRANSMIT).is_some() {}
        (device, driver, host)
    }

    fn drain(host: &mut UnixStream) -> Vec<u8> {
        let mut all = Vec::new();
        match host.read_to_end(&mut all) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
            _ => all,
        }
    }

    #[test]
    fn a_chain_of_several_buffers_is_one_message() {
        let memory = memory();
        let (mut device, mut driver, mut host) = open(&memory, FEATURES);
        for (index, text) in [(3, "ab"), (1, ""), (7, "cde")] {
            memory.write_slice(text.as_bytes(), buffer(TRANSMIT, index)).unwrap();
        }
        driver.describe(TRANSMIT, 3, buffer(TRANSMIT, 3), 2, NEXT, 1);
        driver.describe(TRANSMIT, 1, buffer(TRANSMIT, 1), 0, NEXT, 7);
        driver.describe(TRANSMIT, 7, buffer(TRANSMIT, 7), 3, 0, 0);
        driver.offer(TRANSMIT, 3);
        settle(&mut device);
        assert_eq!(drain(&mut host), b"abcde");
    }

    #[test]
    fn an_end_that_is_closed_neither_gets_bytes_nor_holds_the_other_up() {
        let memory = memory();
        let (mut device, mut driver, mut host) = open(&memory, FEATURES);
        // The port of the guest.
        driver.control(1, 6, 0);
        settle(&mut device);
        host.write_all(b"later").unwrap();
        assert_eq!(settle(&mut device), Due::default());
        driver.control(1, 6, 1);
        settle(&mut device);
        assert_eq!(driver.receive(RECEIVE), b"later");
        // The host's end, which is announced once.
        drop(host);
        settle(&mut device);
        settle(&mut device);
        assert_eq!(driver.receive(CONTROL_RECEIVE), [1, 0, 0, 0, 6, 0, 0, 0]);
        driver.send(TRANSMIT, b"nobody reads this");
        settle(&mut device);
        assert_eq!(driver.given_back(TRANSMIT), 1);
    }

    #[test]
    fn messages_without_an_answer_are_heard_in_parts() {
        let memory = memory();
        let (mut device, mut driver, _host) = open(&memory, FEATURES);
        for _ in 0..=super::MOST_HEARD {
            driver.control(1, 99, 1);
        }
        // The vCPUs wait for the device's lock while it works.
        let due = device.work();
        assert!(due.again && usize::from(driver.given_back(CONTROL_TRANSMIT)) == super::MOST_HEARD, "{due:?}");
    }

    #[test]
    fn a_driver_without_room_for_answers_is_not_asked() {
        let memory = memory();
        let (mut device, mut driver, _host) = open(&memory, FEATURES);
        // All room for answers is used by the first SIZE of them.
        for _ in 0..4 {
            for _ in 0..SIZE {
                driver.control(0, 0, 1);
            }
            settle(&mut device);
            while driver.take(CONTROL_TRANSMIT).is_some() {}
        }
        assert_eq!(driver.given_back(CONTROL_RECEIVE), SIZE);
        assert_eq!(device.read(register::STATUS), 15);
        let mut answers = 0;
        while driver.given_back(CONTROL_RECEIVE) > 0 {
            answers += driver.receive(CONTROL_RECEIVE).len() / 8;
            settle(&mut device);
        }
        assert!(answers > usize::from(SIZE));
    }

    /// Address, length, flags and next of a descriptor.
    type Descriptor = (u64, u32, u16, u16);

    /// A broken chain, the rest of the test being the same.
    fn breaks(what: &str, break_it: impl Fn(&mut Driver<'_>, &GuestMemoryMmap)) {
        let memory = memory();
        let (mut device, mut driver, mut host) = open(&memory, FEATURES);
        break_it(&mut driver, &memory);
        assert_eq!(settle(&mut device).interrupt, 2, "{what}: a change of the configuration");
        assert_eq!(device.read(register::STATUS), 0xf | status::NEEDS_RESET, "{what}");
        assert_eq!(settle(&mut device), Due::default(), "{what}: no work before the reset");
        assert_eq!(device.faults(), Faults { broken: 1, error: None }, "{what}");
        assert_eq!(host.read(&mut [0]).ok(), Some(0), "{what}: the host reads the end");
        let mut driver = self::driver(&mut device, &memory, FEATURES);
        for (port, event) in [(0, 0), (1, 3), (1, 6)] {
            driver.control(port, event, 1);
        }
        driver.send(TRANSMIT, b"again");
        settle(&mut device);
        settle(&mut device);
        assert_eq!(driver.given_back(TRANSMIT), 1, "{what}: after a reset");
        let answers = driver.receive(CONTROL_RECEIVE);
        assert!(answers.ends_with(&[1, 0, 0, 0, 6, 0, 0, 0]), "{what}: the host's end is closed: {answers:?}");
    }

    #[test]
    fn a_broken_driver_meets_needs_reset_and_a_reset_helps() {
        let last = vm_memory::GuestMemoryBackend::last_addr(&memory()).0;
        let at = buffer(TRANSMIT, 0).0;
        // The transmit queue's descriptors from 0 on, and the head that is offered.
        let chains: [(&str, &[Descriptor], u16); 7] = [
            ("a buffer across the end of memory", &[(last, 2, 0, 0)], 0),
            ("an address that overflows", &[(u64::MAX, u32::MAX, 0, 0)], 0),
            ("a loop", &[(at, 1, NEXT, 1), (at, 1, NEXT, 0)], 0),
            ("a successor out of range", &[(at, 1, NEXT, 0xffff)], 0),
            ("a head out of range", &[], SIZE),
            ("a buffer to write to where bytes are sent", &[(at, 1, WRITE, 0)], 0),
            ("more bytes than memory has", &[(at, u32::MAX, NEXT, 1), (at, u32::MAX, 0, 0)], 0),
        ];
        for (what, chain, head) in chains {
            breaks(what, |driver, _| {
                for (index, &(address, length, flags, next)) in (0..).zip(chain) {
                    driver.describe(TRANSMIT, index, GuestAddress(address), length, flags, next);
                }
                driver.offer(TRANSMIT, head);
            });
        }
        breaks("more chains than the queue has", |_, memory| {
            memory.write_obj(0x7fff_u16, GuestAddress(available(TRANSMIT) + 2)).unwrap();
        });
        breaks("a control message that is too short", |driver, _| driver.send(CONTROL_TRANSMIT, b"1234567"));
    }

    #[test]
    fn the_same_bytes_may_be_sent_by_many_buffers_of_one_chain() {
        let memory = memory();
        let (mut device, mut driver, mut host) = open(&memory, FEATURES);
        for index in 0..SIZE {
            let flags = if index + 1 < SIZE { NEXT } else { 0 };
            driver.describe(TRANSMIT, index, GuestAddress(0), 4 << 20, flags, index + 1);
        }
        driver.offer(TRANSMIT, 0);
        let mut received = 0;
        while driver.given_back(TRANSMIT) == 0 {
            settle(&mut device);
            received += drain(&mut host).len();
        }
        assert_eq!(received + drain(&mut host).len(), usize::from(SIZE) * (4 << 20));
    }

    #[test]
    fn what_was_half_moved_is_not_for_the_next_driver() {
        let memory = memory();
        let (mut device, mut driver, mut host) = open(&memory, FEATURES);
        // One chain has 1000 bytes, and 127 of 1 KiB are left for the others, which are read 64 KiB at a time.
        for length in [1000, 140_000] {
            host.write_all(&vec![1; length]).unwrap();
            settle(&mut device);
        }
        assert_eq!(driver.receive(RECEIVE).len(), 1000 + (127 << 10));
        // The device holds the rest of what it read; the socket has what it did not read.
        let mut driver = self::driver(&mut device, &memory, FEATURES);
        driver.control(1, 6, 1);
        settle(&mut device);
        assert_eq!(driver.receive(RECEIVE).len(), 140_000 - (128 << 10));
        driver.send(TRANSMIT, b"new");
        settle(&mut device);
        assert_eq!(drain(&mut host), b"new");
    }

    #[test]
    fn features_and_queues_are_checked_before_they_are_used() {
        let memory = memory();
        let (mut device, mut host) = device(&memory);
        for (features, accepted) in
            [(FEATURES, true), (1 << 1, false), (FEATURES | 1 << 28, false), (1 << 63 | FEATURES, false)]
        {
            driver(&mut device, &memory, features);
            assert_eq!(device.read(register::STATUS) & status::DRIVER_OK != 0, accepted, "{features:#x}");
        }
        for (offset, value) in [
            (register::QUEUE_NUM, 3),
            (register::QUEUE_NUM, 0x1_0010),
            (register::QUEUE_DESC_LOW, 8),
            (register::QUEUE_DRIVER_HIGH, 1),
            (register::QUEUE_DEVICE_LOW, (4 << 20) - 16),
        ] {
            // All but DRIVER_OK, with one value that is wrong.
            Driver::new(&memory, FEATURES, |at, right| {
                if (at, right) != (register::STATUS, 15) {
                    device.write(at, if at == offset { value } else { right });
                }
            });
            assert_eq!(device.read(register::QUEUE_READY), 0, "{offset:#x} {value:#x}");
            assert_eq!(device.read(register::STATUS), 0xb | status::NEEDS_RESET);
            assert_eq!(settle(&mut device), Due::default(), "no notification before DRIVER_OK");
            assert!(device.is_being_set_up(), "the thread looks for DRIVER_OK");
        }
        assert_eq!((device.faults(), drain(&mut host)), (Faults::default(), Vec::new()));
        device.write(register::STATUS, 15);
        assert_eq!(settle(&mut device).interrupt, 2);
        assert_eq!((settle(&mut device), device.faults().broken), (Due::default(), 1), "once");
        assert_eq!(host.read(&mut [0]).ok(), Some(0));
    }

    proptest! {
        #[test]
        fn random_drivers_never_panic(
            steps in prop::collection::vec((0_u8..6, 0..QUEUES, any::<u64>(), any::<u32>(), any::<u16>()), 0..80),
        ) {
            let memory = memory();
            let (mut device, mut driver, mut host) = open(&memory, FEATURES);
            for (kind, queue, address, length, value) in steps {
                // Half of the values are near what is right.
                let near = value & 1 == 0;
                let address = GuestAddress(if near { address % (5 << 20) } else { address });
                let length = if near { length % 0x1_0000 } else { length };
                match kind {
                    0 => driver.describe(queue, value % SIZE, address, length, (value >> 4) & 7, value >> 12),
                    1 => driver.offer(queue, if near { value % SIZE } else { value }),
                    2 => _ = memory.write_obj(length, address),
                    3 => _ = device.write(u64::from(value & 0x1fc), length),
                    4 => _ = host.write(&[0x5a; 700]),
                    _ => _ = drain(&mut host),
                }
                for _ in 0..4 {
                    device.work();
                }
                if device.read(register::STATUS) & status::NEEDS_RESET != 0 {
                    driver = self::driver(&mut device, &memory, FEATURES);
                }
            }
        }
    }
}
