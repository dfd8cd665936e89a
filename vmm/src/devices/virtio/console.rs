//! The device on a VM: its registers for vCPU threads, its thread, its eventfds.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::device::{Device, Faults};
use super::transport::{read_config, register};
use crate::seccomp::{Descriptors, confine_device};

/// Milliseconds between two looks at a device that is being set up.
const SET_UP_INTERVAL: i32 = 5;

/// Tags of the thread's events.
const KICK: u64 = 0;
const SOCKET: u64 = 1;
const STOP: u64 = 2;

#[derive(Debug)]
struct Shared {
    device: Mutex<Device>,
    /// The register InterruptStatus, which is outside of the lock because a driver reads it in its interrupt handler.
    interrupt: AtomicU32,
}

impl Shared {
    fn device(&self) -> MutexGuard<'_, Device> {
        // A panic elsewhere leaves registers and rings that are checked at each use.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A virtio console with one port, named [`PORT_NAME`](super::PORT_NAME), joined to a socket.
#[derive(Debug)]
pub struct Console {
    shared: Arc<Shared>,
    thread: Option<(EventFd, JoinHandle<()>)>,
}

impl Console {
    /// Builds a device for the port's bytes on `stream`. It works once it is attached.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            shared: Arc::new(Shared { device: Mutex::new(Device::new(stream)), interrupt: AtomicU32::new(0) }),
            thread: None,
        }
    }

    /// Connects the device to a VM: its registers are at `base`, its interrupt is the edge-triggered `gsi`. Starts its
    /// thread, under a seccomp filter.
    pub fn attach(&mut self, vm: &VmFd, memory: &GuestMemoryMmap, base: u64, gsi: u32) -> io::Result<()> {
        let (kick, interrupt) = self.start(memory)?;
        // One eventfd serves the notifications of all queues, because the thread looks at each of them.
        vm.register_ioevent(&kick, &IoEventAddress::Mmio(base + register::QUEUE_NOTIFY), NoDatamatch)?;
        Ok(vm.register_irqfd(&interrupt, gsi)?)
    }

    /// Starts the thread; returns the eventfds of its kicks and of its interrupts.
    pub(super) fn start(&mut self, memory: &GuestMemoryMmap) -> io::Result<(EventFd, EventFd)> {
        let eventfd = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC);
        let (stop, kick, interrupt) = (eventfd()?, eventfd()?, eventfd()?);
        let mut device = self.shared.device();
        device.set_memory(memory);
        device.stream.prepare()?;
        let socket = device.stream.descriptor();
        drop(device);

        let worker = Worker {
            shared: Arc::clone(&self.shared),
            epoll: Epoll::new()?,
            kick: kick.try_clone()?,
            interrupt: interrupt.try_clone()?,
            socket,
        };
        // Each turn moves all that can be moved, so of the socket only changes matter.
        let changes = EventSet::IN | EventSet::OUT | EventSet::EDGE_TRIGGERED;
        for (descriptor, events, tag) in
            [(kick.as_raw_fd(), EventSet::IN, KICK), (stop.as_raw_fd(), EventSet::IN, STOP), (socket, changes, SOCKET)]
        {
            worker.epoll.ctl(ControlOperation::Add, descriptor, EpollEvent::new(events, tag))?;
        }
        let thread = std::thread::Builder::new().name("virtio".to_owned()).spawn(move || worker.run())?;
        self.thread = Some((stop, thread));
        Ok((kick, interrupt))
    }

    /// Handles a read by a vCPU, `offset` bytes into the device's window.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let Some(offset) = offset.checked_sub(register::CONFIG) {
            read_config(offset, data);
        } else if let Ok(data) = <&mut [u8; 4]>::try_from(data) {
            let value = match offset {
                register::INTERRUPT_STATUS => self.shared.interrupt.load(Ordering::SeqCst),
                _ => self.shared.device().read(offset),
            };
            *data = value.to_le_bytes();
        }
    }

    /// Handles a write by a vCPU. Registers are 32 bits wide; any other write changes nothing.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let Ok(value) = data.try_into().map(u32::from_le_bytes) else { return };
        if offset == register::INTERRUPT_ACK {
            self.shared.interrupt.fetch_and(!value, Ordering::SeqCst);
        } else {
            let mut device = self.shared.device();
            if device.write(offset, value) {
                self.shared.interrupt.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Ends the thread; what has gone wrong, or the payload of its panic.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn end(mut self) -> std::thread::Result<Faults> {
        self.stop()?;
        Ok(self.shared.device().faults())
    }

    fn stop(&mut self) -> std::thread::Result<()> {
        match self.thread.take() {
            Some((stop, thread)) if stop.write(1).is_ok() => thread.join(),
            _ => Ok(()),
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // Its panic has been printed, and nobody waits for its result.
        let _ = self.stop();
    }
}

/// The device's thread.
struct Worker {
    shared: Arc<Shared>,
    epoll: Epoll,
    kick: EventFd,
    interrupt: EventFd,
    socket: i32,
}

/// Closes the host's end when the thread ends otherwise than by its owner, also by a panic.
struct Ending {
    shared: Arc<Shared>,
    why: Option<String>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(why) = self.why.take() {
            self.shared.device().fail(why);
        }
    }
}

impl Worker {
    fn run(self) {
        let mut ending = Ending { shared: Arc::clone(&self.shared), why: Some("its thread panicked".to_owned()) };
        ending.why = self.serve().err().map(|error| error.to_string());
    }

    /// Works until it is stopped.
    fn serve(&self) -> io::Result<()> {
        let own = Descriptors { socket: self.socket, interrupt: self.interrupt.as_raw_fd() };
        confine_device(own).map_err(io::Error::other)?;
        let mut events = [EpollEvent::default(); 3];
        let mut timeout = 0;
        loop {
            let count = match self.epoll.wait(timeout, &mut events) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            if events[..count].iter().any(|event| event.data() == STOP) {
                return Ok(());
            }
            // The read fails if there was no kick.
            let _ = self.kick.read();
            timeout = self.turn()?;
        }
    }

    /// Works once; returns how long to wait for the next event, in milliseconds.
    fn turn(&self) -> io::Result<i32> {
        let mut device = self.shared.device();
        let due = device.work();
        let set_up = device.is_being_set_up();
        // The lock is still held: a reset between the work and its interrupt would leave a bit of the old driver to the new one.
        self.shared.interrupt.fetch_or(due.interrupt, Ordering::SeqCst);
        drop(device);
        if due.interrupt != 0 {
            self.interrupt.write(1)?;
        }
        Ok(if due.again {
            0
        } else if set_up {
            SET_UP_INTERVAL
        } else {
            -1
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use vm_memory::GuestMemoryMmap;
    use vmm_sys_util::eventfd::EventFd;

    use super::super::device::Faults;
    use super::super::tests::{BUFFER, Driver, SIZE, memory};
    use super::super::transport::register;
    use super::Console;
    use crate::devices::virtio::control::{CONTROL_RECEIVE, CONTROL_TRANSMIT, RECEIVE, TRANSMIT};

    const FEATURES: u64 = 1 << 32 | 1 << 1;

    struct Machine<'a> {
        console: Console,
        kick: EventFd,
        interrupt: EventFd,
        driver: Driver<'a>,
    }

    impl<'a> Machine<'a> {
        fn new(memory: &'a GuestMemoryMmap) -> (Self, UnixStream) {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut console = Console::new(ours);
            let (kick, interrupt) = console.start(memory).unwrap();
            let driver = Driver::new(memory, FEATURES, |offset, value| console.write(offset, &value.to_le_bytes()));
            let mut machine = Self { console, kick, interrupt, driver };
            for (id, event) in [(0, 0), (1, 3), (1, 6)] {
                machine.driver.control(id, event, 1);
            }
            machine.kick();
            machine.until(|driver| driver.given_back(CONTROL_TRANSMIT) == 3 && driver.given_back(CONTROL_RECEIVE) == 3);
            machine.driver.receive(CONTROL_RECEIVE);
            (machine, theirs)
        }

        fn kick(&self) {
            self.kick.write(1).unwrap();
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
        let kick = machine.kick.try_clone().unwrap();
        machine.until(|driver| {
            while driver.take(TRANSMIT).is_some() {
                outstanding -= 1;
            }
            while outstanding < SIZE && sent < BYTES {
                let bytes: Vec<u8> = (sent..sent + BUFFER as usize).map(|at| (at % 253) as u8).collect();
                driver.send(TRANSMIT, &bytes);
                (sent, outstanding) = (sent + bytes.len(), outstanding + 1);
                kick.write(1).unwrap();
            }
            let bytes = driver.receive(RECEIVE);
            if !bytes.is_empty() {
                kick.write(1).unwrap();
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
        machine.kick();
        host.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(host.read(&mut [0; 1]).unwrap(), 0);
        let faults = machine.console.end().unwrap();
        assert!(faults.broken == 0 && faults.error.is_some(), "{faults:?}");
    }

    #[test]
    fn queues_that_were_filled_before_the_device_was_live_are_seen() {
        let memory = memory();
        let (mut machine, mut host) = Machine::new(&memory);
        for _ in 0..3 {
            // The device leaves the rings alone before another driver writes them.
            machine.console.write(register::STATUS, &[0; 4]);
            let mut steps = Vec::new();
            let mut driver = Driver::new(&memory, FEATURES, |offset, value| steps.push((offset, value)));
            driver.send(TRANSMIT, b"early");
            // The kick is before DRIVER_OK, which is the last write.
            let last = steps.pop().unwrap();
            for (offset, value) in steps {
                machine.console.write(offset, &value.to_le_bytes());
            }
            machine.kick();
            machine.console.write(last.0, &last.1.to_le_bytes());
            machine.driver = driver;
            let mut text = [0; 5];
            host.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"early");
        }
    }
}
