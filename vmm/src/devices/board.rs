//! The devices of a third-party image or a Linux guest beside KVM's interrupt controllers and timer: a serial port, ports
//! to reset, and for an image the firmware configuration and a port to end its run, for Linux ACPI's registers, a clock and
//! a virtio console. Any other port or address is absent, as on a PC: reads give all ones, writes go nowhere, and the accesses
//! are counted.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::bus::{Bus, Next};
use super::console::Console;
use super::fw_cfg::{self, FwCfg};
use super::serial::{COM1, Serial};
use super::virtio;
use crate::boot::linux::acpi::{RESET, SLEEP_CONTROL, SLEEP_ENABLE, SLEEP_STATUS, SOFT_OFF};
use crate::boot::linux::layout::{VIRTIO, VIRTIO_SIZE};
use crate::outcome::End;

/// Keyboard controller's command port, and its command that pulls the reset line.
const KEYBOARD: u16 = 0x64;
const PULSE_RESET: u8 = 0xfe;
/// Bit RST_CPU of a PC's reset control, which ACPI names as the reset register.
const RESET_CPU: u8 = 4;
/// Written to for the delay it gives.
const POST_CODE: u16 = 0x80;
/// Index and data of the CMOS clock, whose registers are all 0: no update is under way, for which a kernel without KVM's clock waits
/// for ever before Linux 5.17.
const CMOS_INDEX: u16 = 0x70;
const CMOS_DATA: u16 = 0x71;
/// Ports by which an image ends its run with a status code: the convention of QEMU's `isa-debug-exit`, which kvm-unit-tests
/// expect. The run's exit status is `code << 1 | 1`, so that it is never 0.
const DEBUG_EXIT: u16 = 0xf4;
const DEBUG_EXIT_END: u16 = DEBUG_EXIT + 3;

/// Drives an interrupt line.
pub(crate) type Line = Box<dyn Fn(bool) + Send + Sync>;

struct State<'a> {
    serial: Serial<'a>,
    /// Level of its line, as it was last driven.
    raised: bool,
    /// An image has it, and Linux does not.
    fw_cfg: Option<FwCfg>,
}

/// The devices of one guest.
pub(crate) struct Devices<'a> {
    state: Mutex<State<'a>>,
    line: OnceLock<Line>,
    is_image: bool,
}

impl<'a> Devices<'a> {
    /// Creates the devices, with serial output to `console`: those of an image with `fw_cfg`, else those of Linux.
    pub(crate) fn new(console: &'a Console, fw_cfg: Option<FwCfg>) -> Self {
        let is_image = fw_cfg.is_some();
        let state = State { serial: Serial::new(console), raised: false, fw_cfg };
        Self { state: Mutex::new(state), line: OnceLock::new(), is_image }
    }

    /// Connects the serial port's interrupt, once.
    pub(crate) fn connect(&self, line: Line) {
        // A second line would be that of another VM: a guest has one.
        let _ = self.line.set(line);
    }

    fn with_serial<T>(&self, access: impl FnOnce(&mut Serial<'a>) -> T) -> T {
        let mut state = self.lock();
        let result = access(&mut state.serial);
        let level = state.serial.interrupts();
        if level != state.raised {
            state.raised = level;
            if let Some(line) = self.line.get() {
                line(level);
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        // Registers of a device are whole whatever their holder did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices as one vCPU sees them.
pub(crate) struct Board<'b, 'a> {
    shared: &'b Devices<'a>,
    channel: Option<&'b virtio::Console>,
    /// Accesses to ports and memory that are not there.
    pub(crate) absent: u64,
}

impl<'b, 'a> Board<'b, 'a> {
    /// Builds a vCPU's view.
    pub(crate) const fn new(shared: &'b Devices<'a>, channel: Option<&'b virtio::Console>) -> Self {
        Self { shared, channel, absent: 0 }
    }

    /// Returns the virtio console with the offset of an access to it.
    fn channel_at(&mut self, address: u64) -> Option<(&'b virtio::Console, u64)> {
        let offset = address.checked_sub(VIRTIO).filter(|&offset| offset < VIRTIO_SIZE);
        let found = self.channel.zip(offset);
        self.absent += u64::from(found.is_none());
        found
    }

    fn with_fw_cfg(&self, access: impl FnOnce(&mut FwCfg)) {
        if let Some(device) = &mut self.shared.lock().fw_cfg {
            access(device);
        }
    }
}

impl Bus for Board<'_, '_> {
    fn write_port(&mut self, port: u16, data: &[u8], _tsc: u64) -> Next {
        match (port, data, self.shared.is_image) {
            _ if is_serial(port) => self.shared.with_serial(|serial| {
                // Each byte of a string instruction is an access: the chip is 8 bits wide.
                for byte in data {
                    serial.write(port - COM1, *byte);
                }
            }),
            (KEYBOARD, &[PULSE_RESET], _) => return Next::End(End::Reset),
            (port, &[value], _) if port == RESET.0 && value & RESET_CPU != 0 => return Next::End(End::Reset),
            (POST_CODE, ..) => {}
            (DEBUG_EXIT..=DEBUG_EXIT_END, _, true) => {
                let code = data.iter().take(4).rev().fold(0_u32, |code, &byte| code << 8 | u32::from(byte));
                return Next::End(End::GuestExit { status: code << 1 | 1 });
            }
            (fw_cfg::SELECTOR | fw_cfg::DATA, _, true) => self.with_fw_cfg(|device| device.write(port, data)),
            (SLEEP_CONTROL, &[value], false) if value == SLEEP_ENABLE | SOFT_OFF << 2 => {
                return Next::End(End::PowerOff);
            }
            (SLEEP_CONTROL | SLEEP_STATUS | KEYBOARD | CMOS_INDEX | CMOS_DATA, _, false) => {}
            _ => self.absent += 1,
        }
        Next::Continue
    }

    fn read_port(&mut self, port: u16, data: &mut [u8]) -> Next {
        match (port, self.shared.is_image) {
            _ if is_serial(port) => self.shared.with_serial(|serial| data.fill_with(|| serial.read(port - COM1))),
            (fw_cfg::SELECTOR | fw_cfg::DATA, true) => {
                self.with_fw_cfg(|device| data.fill_with(|| device.read(port)));
            }
            // The guest never woke up from a sleep, and the keyboard controller is ready for a command.
            (DEBUG_EXIT..=DEBUG_EXIT_END, true) | (SLEEP_CONTROL | SLEEP_STATUS | KEYBOARD | CMOS_DATA, false) => {
                data.fill(0);
            }
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

const fn is_serial(port: u16) -> bool {
    COM1 <= port && port < COM1 + 8
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;

    const ALL_ONES: &[u8] = &[0xff; 4];

    #[test]
    fn ports_reach_the_devices_that_a_guest_has() {
        let (console, end) = (Console::default(), |end| Next::End(end));
        let (image, linux) = (Devices::new(&console, Some(FwCfg::new(3, 1 << 20))), Devices::new(&console, None));
        let (stream, _other) = UnixStream::pair().unwrap();
        let channel = virtio::Console::new(stream);
        let mut boards = [Board::new(&image, None), Board::new(&linux, Some(&channel))];
        let status = |status| end(End::GuestExit { status });
        // Port, bytes, and what each guest's machine does.
        for (port, bytes, of_image, of_linux) in [
            (COM1, &b"string\n"[..], Next::Continue, Next::Continue),
            (0x64, &[0xfe], end(End::Reset), end(End::Reset)),
            (0x64, &[0xd1], Next::Continue, Next::Continue),
            (0xcf9, &[6], end(End::Reset), end(End::Reset)),
            (0xcf9, &[2], Next::Continue, Next::Continue),
            (0xf4, &[1, 0, 0, 0], status(3), Next::Continue),
            (0x600, &[0x34], Next::Continue, end(End::PowerOff)),
            (0x600, &[0x2c], Next::Continue, Next::Continue),
            (0x510, &[5, 0], Next::Continue, Next::Continue),
            (0x70, &[0x8a], Next::Continue, Next::Continue),
            (0x80, &[0], Next::Continue, Next::Continue),
        ] {
            for (board, expected) in boards.iter_mut().zip([of_image, of_linux]) {
                assert_eq!(board.write_port(port, bytes, 0), expected, "OUT to {port:#x}");
            }
        }
        for (port, of_image, of_linux) in [
            (COM1 + 5, &[0x60][..], &[0x60][..]),
            (0x511, &[3, 0], &[0xff; 2]),
            (0xf4, &[0], &[0xff]),
            (0x64, &[0xff], &[0]),
            (0x71, &[0xff], &[0]),
            (0xcfc, ALL_ONES, ALL_ONES),
        ] {
            for (board, expected) in boards.iter_mut().zip([of_image, of_linux]) {
                let mut data = [0xaa; 4];
                assert_eq!(board.read_port(port, &mut data[..expected.len()]), Next::Continue);
                assert_eq!(&data[..expected.len()], expected, "IN from {port:#x}");
            }
        }
        for (address, of_image, of_linux) in
            [(VIRTIO, ALL_ONES, &b"virt"[..]), (VIRTIO + VIRTIO_SIZE, ALL_ONES, ALL_ONES)]
        {
            for (board, expected) in boards.iter_mut().zip([of_image, of_linux]) {
                let mut data = [0; 4];
                board.read_memory(address, &mut data);
                board.write_memory(VIRTIO + VIRTIO_SIZE, &data);
                assert_eq!(data, expected, "{address:#x}");
            }
        }
        assert_eq!(boards.map(|board| board.absent), [12, 9]);
    }

    #[test]
    fn the_serial_port_drives_its_line_once_per_change() {
        let console = Console::default();
        let shared = Devices::new(&console, None);
        let changes = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&changes);
        shared.connect(Box::new(move |level| {
            // Up and down in turn.
            assert_eq!(counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(2), level);
        }));
        let mut board = Board::new(&shared, None);
        board.write_port(COM1 + 4, &[0x0b], 0);
        // Its transmitter is empty until the guest has read why it was interrupted.
        board.write_port(COM1 + 1, &[2], 0);
        board.write_port(COM1, b"ab", 0);
        assert_eq!(changes.load(Ordering::Relaxed), 1);
        board.read_port(COM1 + 2, &mut [0]);
        assert_eq!(changes.load(Ordering::Relaxed), 2);
    }

    proptest! {
        #[test]
        fn random_accesses_never_panic(
            accesses in prop::collection::vec((any::<u16>(), any::<bool>(), any::<bool>(), 0_usize..9), 0..64),
            is_image: bool,
        ) {
            let console = Console::default();
            let shared = Devices::new(&console, is_image.then(|| FwCfg::new(1, 1 << 20)));
            let (stream, _other) = UnixStream::pair().unwrap();
            let channel = virtio::Console::new(stream);
            let mut board = Board::new(&shared, Some(&channel));
            for (port, write, memory, size) in accesses {
                // Half of them near the devices.
                let near = [COM1, 0x510, 0xf4, 0x600, 0x64, 0xcf9][usize::from(port) % 6] + port % 9;
                let port = if port & 1 == 0 { port } else { near };
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
