//! The devices of a Linux guest beside KVM's interrupt controllers: a serial port with interrupt and input, the
//! registers for power-off and reset, a virtio console. Any other port or address is absent, as on a PC: reads give all
//! ones, writes go nowhere, and the accesses are counted.

use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::bus::{Bus, Next};
use super::console::Console;
use super::pc::{CMOS_DATA, CMOS_INDEX, KEYBOARD, POST_CODE, cmos, is_serial, read_serial, resets, write_serial};
use super::serial::{COM1, Serial};
use super::virtio;
use crate::outcome::End;

/// ACPI's registers for sleep, the command for soft off, and its reset register.
pub use crate::boot::linux::acpi::{RESET, SLEEP_CONTROL, SLEEP_ENABLE, SLEEP_STATUS, SOFT_OFF};
use crate::boot::linux::layout::{VIRTIO, VIRTIO_SIZE};

/// Drives an interrupt line.
pub type Line = Box<dyn Fn(bool) + Send + Sync>;

struct Port<'a> {
    serial: Serial<&'a Console>,
    /// Level of the line, as it was last driven.
    raised: bool,
}

/// The devices of one guest.
pub struct Shared<'a> {
    port: Mutex<Port<'a>>,
    line: OnceLock<Line>,
}

impl fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<'a> Shared<'a> {
    /// Devices with serial output to `console`.
    pub fn new(console: &'a Console) -> Self {
        let port = Port { serial: Serial::new(COM1, console), raised: false };
        Self { port: Mutex::new(port), line: OnceLock::new() }
    }

    /// Connects the serial port's interrupt, once.
    pub fn connect(&self, line: Line) {
        // A second line would be that of another VM: a guest has one.
        let _ = self.line.set(line);
    }

    /// Takes input for the serial port; returns how many bytes had room.
    pub fn receive(&self, bytes: &[u8]) -> usize {
        self.with_serial(|serial| serial.receive(bytes))
    }

    /// Returns whether the guest has not read all input yet.
    pub fn has_input(&self) -> bool {
        self.lock().serial.has_input()
    }

    fn with_serial<T>(&self, access: impl FnOnce(&mut Serial<&'a Console>) -> T) -> T {
        let mut port = self.lock();
        let result = access(&mut port.serial);
        let level = port.serial.interrupts();
        if level != port.raised {
            port.raised = level;
            if let Some(line) = self.line.get() {
                line(level);
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Port<'a>> {
        // Registers of a device are whole whatever their holder did.
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices as one vCPU sees them.
#[derive(Debug)]
pub struct LinuxBoard<'b, 'a> {
    shared: &'b Shared<'a>,
    channel: Option<&'b virtio::Console>,
    absent: u64,
    /// The register of the clock that was asked for last.
    cmos: u8,
}

impl<'b, 'a> LinuxBoard<'b, 'a> {
    /// Builds a vCPU's view.
    pub const fn new(shared: &'b Shared<'a>, channel: Option<&'b virtio::Console>) -> Self {
        Self { shared, channel, absent: 0, cmos: 0 }
    }

    /// Returns the virtio console with the offset of an access to it.
    fn channel_at(&mut self, address: u64) -> Option<(&'b virtio::Console, u64)> {
        let offset = address.checked_sub(VIRTIO).filter(|&offset| offset < VIRTIO_SIZE);
        let found = self.channel.zip(offset);
        self.absent += u64::from(found.is_none());
        found
    }

    /// Accesses to ports and memory that are not there.
    pub const fn absent(&self) -> u64 {
        self.absent
    }
}

impl Bus for LinuxBoard<'_, '_> {
    fn write_port(&mut self, port: u16, data: &[u8], _tsc: u64) -> Next {
        match (port, data) {
            _ if is_serial(port) => self.shared.with_serial(|serial| write_serial(serial, port, data)),
            (SLEEP_CONTROL, &[value]) if value == SLEEP_ENABLE | SOFT_OFF << 2 => return Next::End(End::PowerOff),
            _ if resets(port, data) => return Next::End(End::Reset),
            (CMOS_INDEX, &[index]) => self.cmos = index,
            (SLEEP_CONTROL | SLEEP_STATUS | KEYBOARD | POST_CODE | CMOS_DATA, _) => {}
            _ => self.absent += 1,
        }
        Next::Continue
    }

    fn read_port(&mut self, port: u16, data: &mut [u8]) -> Next {
        match port {
            _ if is_serial(port) => self.shared.with_serial(|serial| read_serial(serial, port, data)),
            // No wake-up; the keyboard controller takes a command.
            SLEEP_CONTROL | SLEEP_STATUS | KEYBOARD => data.fill(0),
            CMOS_DATA => data.fill(cmos(self.cmos)),
            _ => {
                data.fill(0xff);
                self.absent += 1;
            }
        }
        Next::Continue
    }

    fn write_memory(&mut self, address: u64, data: &[u8]) -> Next {
        if let Some((channel, offset)) = self.channel_at(address) {
            channel.write(offset, data);
        }
        Next::Continue
    }

    fn read_memory(&mut self, address: u64, data: &mut [u8]) -> Next {
        match self.channel_at(address) {
            Some((channel, offset)) => channel.read(offset, data),
            None => data.fill(0xff),
        }
        Next::Continue
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn registers_end_the_run() {
        let console = Console::default();
        let shared = Shared::new(&console);
        let mut board = LinuxBoard::new(&shared, None);
        assert_eq!(board.write_port(SLEEP_CONTROL, &[0x34], 0), Next::End(End::PowerOff));
        assert_eq!(board.write_port(SLEEP_CONTROL, &[0x2c], 0), Next::Continue, "another sleep state");
        assert_eq!(board.write_port(0xcf9, &[6], 0), Next::End(End::Reset));
        assert_eq!(board.write_port(0xcf9, &[2], 0), Next::Continue);
        assert_eq!(board.write_port(0x64, &[0xfe], 0), Next::End(End::Reset));
        let mut data = [0xaa];
        board.read_port(0x64, &mut data);
        assert_eq!((data, board.absent()), ([0], 1), "the keyboard controller takes a command at once");
    }

    #[test]
    fn the_clock_is_never_within_an_update() {
        let console = Console::default();
        let shared = Shared::new(&console);
        let mut board = LinuxBoard::new(&shared, None);
        let mut register = |index| {
            board.write_port(0x70, &[index], 0);
            let mut data = [0xff];
            board.read_port(0x71, &mut data);
            data[0]
        };
        // A's bit 7 says that one is under way; the NMI mask in bit 7 of the index is no part of it.
        assert_eq!([0xa, 0x8a].map(&mut register).map(|a| a & 0x80), [0, 0]);
        assert_eq!([9, 8, 7, 4, 2, 0].map(&mut register), [0, 1, 1, 0, 0, 0], "a date that is one");
        assert_eq!(board.absent(), 0);
    }

    #[test]
    fn the_serial_port_drives_its_line_once_per_change() {
        let console = Console::default();
        let shared = Shared::new(&console);
        let changes = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&changes);
        shared.connect(Box::new(move |level| {
            // Up and down in turn.
            assert_eq!(counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(2), level);
        }));
        let mut board = LinuxBoard::new(&shared, None);
        board.write_port(COM1 + 4, &[0x0b], 0);
        board.write_port(COM1 + 1, &[1], 0);
        assert_eq!(shared.receive(b"ab"), 2);
        let mut data = [0];
        for byte in *b"ab" {
            assert_eq!(changes.load(Ordering::Relaxed), 1);
            board.read_port(COM1, &mut data);
            assert_eq!(data, [byte]);
        }
        assert_eq!(changes.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn memory_is_the_virtio_console_or_absent() {
        let console = Console::default();
        let (shared, (stream, _other)) = (Shared::new(&console), UnixStream::pair().unwrap());
        let channel = virtio::Console::new(stream);
        for (channel, magic, absent) in [(Some(&channel), *b"virt", 1), (None, [0xff; 4], 2)] {
            let mut board = LinuxBoard::new(&shared, channel);
            let mut data = [0; 4];
            board.read_memory(VIRTIO, &mut data);
            assert_eq!(data, magic);
            board.read_memory(VIRTIO + VIRTIO_SIZE, &mut data);
            assert_eq!((data, board.absent()), ([0xff; 4], absent));
        }
    }

    proptest! {
        #[test]
        fn random_accesses_never_panic(
            accesses in prop::collection::vec((any::<u16>(), any::<bool>(), any::<bool>(), 0_usize..9), 0..64),
        ) {
            let console = Console::default();
            let (shared, (stream, _other)) = (Shared::new(&console), UnixStream::pair().unwrap());
            let channel = virtio::Console::new(stream);
            let mut board = LinuxBoard::new(&shared, Some(&channel));
            for (port, write, memory, size) in accesses {
                // Half of them near the devices.
                let port = if port & 1 == 0 { port } else { [COM1, 0x600, 0x64, 0xcf9][usize::from(port) % 4] + port % 9 };
                let mut data = [port as u8; 8];
                match (memory, write) {
                    (true, true) => board.write_memory(VIRTIO + u64::from(port) % 0x1100, &data[..size]),
                    (true, false) => board.read_memory(VIRTIO + u64::from(port) % 0x1100, &mut data[..size]),
                    (false, true) => board.write_port(port, &data[..size], 0),
                    (false, false) => board.read_port(port, &mut data[..size]),
                };
            }
        }
    }
}
