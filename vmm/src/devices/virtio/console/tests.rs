//! The device with its thread, under a driver that kicks and is interrupted as KVM would do it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use super::super::device::Faults;
use super::super::driver::{BUFFER, Driver, SIZE, memory};
use super::super::ports::{CONTROL_RECEIVE, CONTROL_TRANSMIT, MAX_PORTS, QUEUES, RECEIVE, TRANSMIT};
use super::super::transport::register;
use super::Console;

const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 1;

struct Machine<'a> {
    console: Console,
    kicks: [EventFd; QUEUES],
    interrupt: EventFd,
    driver: Driver<'a>,
}

impl<'a> Machine<'a> {
    fn new(memory: &'a GuestMemoryMmap) -> (Self, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut console = Console::new(ours);
        let (kicks, interrupt) = console.start(memory, true).unwrap();
        let driver = Driver::new(memory, FEATURES, |offset, value| console.write(offset, &value.to_le_bytes()));
        let mut machine = Self { console, kicks, interrupt, driver };
        for (id, event) in [(0, 0), (1, 3), (1, 6)] {
            machine.driver.control(id, event, 1);
        }
        machine.kick(CONTROL_TRANSMIT);
        machine.until(|driver| driver.given_back(CONTROL_TRANSMIT) == 3 && driver.given_back(CONTROL_RECEIVE) == 3);
        machine.driver.receive(CONTROL_RECEIVE);
        (machine, theirs)
    }

    fn kick(&self, queue: usize) {
        self.kicks[queue].write(1).unwrap();
    }

    fn register(&self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.console.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Looks for a state after each interrupt, and acknowledges it.
    fn until(&mut self, mut done: impl FnMut(&mut Driver<'a>) -> bool) {
        let begin = Instant::now();
        while !done(&mut self.driver) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the device does not answer");
            if self.interrupt.read().is_ok() {
                let status = self.register(register::INTERRUPT_STATUS);
                self.console.write(register::INTERRUPT_ACK, &status.to_le_bytes());
            } else {
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn megabytes_pass_in_both_directions_at_once() {
    const BYTES: usize = 4 << 20;
    let memory = memory();
    let (mut machine, host) = Machine::new(&memory);
    let echo = std::thread::spawn(move || {
        let (mut host, mut left, mut chunk) = (host, BYTES, vec![0; 10_000]);
        while left > 0 {
            let count = host.read(&mut chunk).unwrap();
            host.write_all(&chunk[..count]).unwrap();
            left -= count;
        }
        host
    });
    let (mut sent, mut received, mut outstanding) = (0_usize, Vec::new(), 0);
    let kicks = machine.kicks.each_ref().map(|kick| kick.try_clone().unwrap());
    machine.until(|driver| {
        while driver.take(TRANSMIT).is_some() {
            outstanding -= 1;
        }
        while outstanding < SIZE && sent < BYTES {
            let bytes: Vec<u8> = (sent..sent + BUFFER as usize).map(|at| (at % 253) as u8).collect();
            driver.send(TRANSMIT, &bytes);
            (sent, outstanding) = (sent + bytes.len(), outstanding + 1);
            kicks[TRANSMIT].write(1).unwrap();
        }
        let bytes = driver.receive(RECEIVE);
        if !bytes.is_empty() {
            kicks[RECEIVE].write(1).unwrap();
        }
        received.extend(bytes);
        received.len() == BYTES
    });
    assert!(received.iter().enumerate().all(|(at, &byte)| byte == (at % 253) as u8));
    drop(echo.join().unwrap());
    assert_eq!(machine.console.end().unwrap(), Faults::default());
}

#[test]
fn dropping_the_device_ends_its_thread_and_closes_the_socket() {
    let memory = memory();
    let (machine, mut host) = Machine::new(&memory);
    drop(machine);
    assert_eq!(host.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_thread_that_ends_by_an_error_closes_the_socket_and_says_why() {
    let memory = memory();
    let (mut machine, mut host) = Machine::new(&memory);
    // The eventfd of the interrupt takes no more.
    while machine.interrupt.write(u64::MAX - 1).is_err() {
        let _ = machine.interrupt.read();
    }
    machine.driver.control(1, 3, 1);
    machine.kick(CONTROL_TRANSMIT);
    host.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(host.read(&mut [0; 1]).unwrap(), 0);
    let faults = machine.console.end().unwrap();
    assert!(faults.broken == 0 && faults.error.is_some(), "{faults:?}");
}

#[test]
fn a_panic_of_the_thread_is_no_fault_of_the_guest() {
    let memory = memory();
    let (mut machine, _host) = Machine::new(&memory);
    machine.console.stop().unwrap();
    let thread = std::thread::spawn(|| panic!("on purpose"));
    machine.console.thread = Some((EventFd::new(0).unwrap(), thread));
    assert!(machine.console.end().is_err());
}

#[test]
fn a_driver_that_breaks_the_rules_is_the_end_of_the_stream() {
    let memory = memory();
    let (mut machine, mut host) = Machine::new(&memory);
    machine.driver.offer(TRANSMIT, SIZE);
    machine.kick(TRANSMIT);
    host.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(host.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(machine.console.end().unwrap(), Faults { broken: 1, error: None });
}

#[test]
fn a_socket_that_the_host_closed_leaves_the_thread_asleep() {
    let memory = memory();
    let (mut machine, host) = Machine::new(&memory);
    drop(host);
    let mut message = Vec::new();
    machine.until(|driver| {
        message.extend(driver.receive(CONTROL_RECEIVE));
        !message.is_empty()
    });
    assert_eq!(message[4], 6, "the port's other end is closed");
}

#[test]
fn queues_that_were_filled_before_the_device_was_live_are_seen() {
    let memory = memory();
    let (mut machine, mut host) = Machine::new(&memory);
    for _ in 0..3 {
        let mut steps = Vec::new();
        let mut driver = Driver::new(&memory, FEATURES, |offset, value| steps.push((offset, value)));
        driver.send(TRANSMIT, b"early");
        // The kick is before DRIVER_OK, which is the last write.
        let last = steps.pop().unwrap();
        for (offset, value) in steps {
            machine.console.write(offset, &value.to_le_bytes());
        }
        machine.kick(TRANSMIT);
        machine.console.write(last.0, &last.1.to_le_bytes());
        machine.driver = driver;
        let mut text = [0; 5];
        host.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"early");
    }
}

#[test]
fn registers_are_32_bits_wide_and_the_configuration_any() {
    let memory = memory();
    let (machine, _host) = Machine::new(&memory);
    let mut byte = [7];
    machine.console.read(0, &mut byte);
    assert_eq!(byte, [0]);
    machine.console.write(register::STATUS, &[0]);
    assert_eq!(machine.register(register::STATUS), 15, "no reset by a byte");
    machine.console.read(0x104, &mut byte);
    assert_eq!(u32::from(byte[0]), MAX_PORTS);
    let mut wide = [7; 8];
    machine.console.read(0x104, &mut wide);
    assert_eq!(wide, [MAX_PORTS as u8, 0, 0, 0, 0, 0, 0, 0]);
    machine.console.read(u64::MAX, &mut wide);
    assert_eq!(wide, [0; 8]);
}
