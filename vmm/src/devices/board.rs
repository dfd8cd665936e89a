//! The devices of a third-party image beside KVM's interrupt controllers and timer: a serial port, the firmware
//! configuration, a port to end the run, ports to reset. Any other port or address is absent, as on a PC: reads give all
//! ones, writes go nowhere, and the accesses are counted.

use std::io::{BufWriter, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bus::{Bus, Next};
use super::output::Capped;
pub use super::output::{OUTPUT_LIMIT, Output};
use super::pc::{POST_CODE, is_serial, read_serial, resets, write_serial};
use super::serial::{COM1, Serial};
use crate::outcome::End;

/// The devices all vCPUs share.
#[derive(Debug)]
struct Devices<W: Write> {
    serial: Serial<Capped<BufWriter<W>>>,
    fw_cfg: FwCfg,
}

/// The devices of one guest.
#[derive(Debug)]
pub struct Shared<W: Write>(Mutex<Devices<W>>);

impl<W: Write> Shared<W> {
    /// Devices of a guest with `cpus` CPUs and `ram` bytes, whose serial output goes to `out`.
    pub fn new(cpus: u16, ram: u64, out: W) -> Self {
        Self::with_limit(cpus, ram, out, OUTPUT_LIMIT)
    }

    fn with_limit(cpus: u16, ram: u64, out: W, left: u64) -> Self {
        let out = Capped::new(BufWriter::new(out), left);
        Self(Mutex::new(Devices { serial: Serial::new(COM1, out), fw_cfg: FwCfg::new(cpus, ram) }))
    }

    /// Flushes the output.
    pub fn finish(self) -> Output {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner).serial.finish() {
            Ok(out) => Output { error: None, dropped: out.dropped() },
            Err(error) => Output { error: Some(error), dropped: 0 },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Devices<W>> {
        // Registers of a device are whole whatever their holder did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices as one vCPU sees them.
#[derive(Debug)]
pub struct Board<'a, W: Write> {
    shared: &'a Shared<W>,
    absent: u64,
}

impl<'a, W: Write> Board<'a, W> {
    /// Builds a vCPU's view.
    pub const fn new(shared: &'a Shared<W>) -> Self {
        Self { shared, absent: 0 }
    }

    /// Accesses to ports and memory that are not there.
    pub const fn absent(&self) -> u64 {
        self.absent
    }
}

impl<W: Write> Bus for Board<'_, W> {
    fn write_port(&mut self, port: u16, data: &[u8], _tsc: u64) -> Next {
        match (port, data) {
            _ if is_serial(port) => write_serial(&mut self.shared.lock().serial, port, data),
            _ if FwCfg::claims(port) => self.shared.lock().fw_cfg.write(port, data),
            _ if resets(port, data) => return Next::End(End::Reset),
            (POST_CODE, _) => {}
            _ => match DebugExit.write(port, data) {
                Some(status) => return Next::End(End::GuestExit { status }),
                None => self.absent += 1,
            },
        }
        Next::Continue
    }

    fn read_port(&mut self, port: u16, data: &mut [u8]) -> Next {
        data.fill(0xff);
        if is_serial(port) {
            read_serial(&mut self.shared.lock().serial, port, data);
        } else if FwCfg::claims(port) {
            let mut devices = self.shared.lock();
            for byte in data {
                devices.fw_cfg.read(port, std::slice::from_mut(byte));
            }
        } else if DebugExit::claims(port) {
            DebugExit.read(port, data);
        } else {
            self.absent += 1;
        }
        Next::Continue
    }

    fn write_memory(&mut self, _address: u64, _data: &[u8]) -> Next {
        self.absent += 1;
        Next::Continue
    }

    fn read_memory(&mut self, _address: u64, data: &mut [u8]) -> Next {
        data.fill(0xff);
        self.absent += 1;
        Next::Continue
    }
}

// The device by which an image ends its run: an OUT to port 0xF4 with a status code.
//
// The run's exit status is `code << 1 | 1`, so that it is never 0: the convention of QEMU's `isa-debug-exit`
// (`docs/system/i386` and `hw/misc/debugexit.c`), which kvm-unit-tests expects.

/// The device's port.
pub const PORT: u16 = 0xf4;

/// The device; it has no state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugExit;

impl DebugExit {
    /// Returns whether a port is the device's.
    pub const fn claims(port: u16) -> bool {
        PORT <= port && port < PORT + 4
    }

    /// Reads as 0.
    pub fn read(self, port: u16, data: &mut [u8]) {
        data.fill(if Self::claims(port) { 0 } else { 0xff });
    }

    /// Returns the exit status that a write asks for; `None` for another port.
    pub fn write(self, port: u16, data: &[u8]) -> Option<u32> {
        if !Self::claims(port) {
            return None;
        }
        let code = data.iter().take(4).rev().fold(0_u32, |code, &byte| code << 8 | u32::from(byte));
        Some(code << 1 | 1)
    }
}

// QEMU's firmware configuration device, as far as an image asks it for the machine's size.
//
// Source: QEMU `docs/specs/fw_cfg.rst` (selector register, data register, endianness) and
// `include/standard-headers/linux/qemu_fw_cfg.h` (keys). Only the port interface and keys with fixed contents: there
// is no file directory and no DMA. A key that is not there reads as zeros.

/// 16-bit selector, write-only.
pub const SELECTOR: u16 = 0x510;
/// 8-bit data.
pub const DATA: u16 = 0x511;

const SIGNATURE: u16 = 0x00;
const ID: u16 = 0x01;
const RAM_SIZE: u16 = 0x03;
const NB_CPUS: u16 = 0x05;
const MAX_CPUS: u16 = 0x0f;
/// A selector's flag for writing an item, which has had no effect since QEMU 2.4.
const WRITE_CHANNEL: u16 = 0x4000;

/// The device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FwCfg {
    cpus: u16,
    ram: u64,
    selected: u16,
    offset: usize,
}

impl FwCfg {
    /// Builds a device that reports `cpus` CPUs and `ram` bytes of memory.
    pub const fn new(cpus: u16, ram: u64) -> Self {
        Self { cpus, ram, selected: SIGNATURE, offset: 0 }
    }

    /// Returns whether a port is the device's.
    pub const fn claims(port: u16) -> bool {
        matches!(port, SELECTOR | DATA)
    }

    /// Reads one access.
    pub fn read(&mut self, port: u16, data: &mut [u8]) {
        if port != DATA {
            // The selector is write-only.
            data.fill(if port == SELECTOR { 0 } else { 0xff });
            return;
        }
        // The data register is 8 bits wide: a wider access reads one byte, zero-extended.
        data.fill(0);
        if let Some(first) = data.first_mut() {
            *first = self.next();
        }
    }

    /// Writes one access. Items cannot be written.
    pub fn write(&mut self, port: u16, data: &[u8]) {
        if let (SELECTOR, &[low, high, ..]) = (port, data) {
            self.selected = u16::from_le_bytes([low, high]) & !WRITE_CHANNEL;
            self.offset = 0;
        }
    }

    fn next(&mut self) -> u8 {
        let mut item = [0; 8];
        match self.selected {
            SIGNATURE => item[..4].copy_from_slice(b"QEMU"),
            // Bit 0: the interface by ports.
            ID => item[0] = 1,
            RAM_SIZE => item = self.ram.to_le_bytes(),
            NB_CPUS | MAX_CPUS => item[..2].copy_from_slice(&self.cpus.to_le_bytes()),
            _ => {}
        }
        let byte = item.get(self.offset).copied().unwrap_or(0);
        self.offset = self.offset.saturating_add(1);
        byte
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_reach_their_devices() {
        let mut out = Vec::new();
        let shared = Shared::new(3, 1 << 20, &mut out);
        let mut board = Board::new(&shared);
        let mut data = [0; 1];
        assert_eq!(board.read_port(COM1 + 5, &mut data), Next::Continue);
        assert_eq!(data, [0x60], "ready to send");
        board.write_port(COM1, b"string\n", 0);
        board.write_port(0x510, &5_u16.to_le_bytes(), 0);
        let mut cpus = [0; 2];
        board.read_port(0x511, &mut cpus);
        assert_eq!(cpus, [3, 0]);
        assert_eq!(board.write_port(0xf4, &[1, 0, 0, 0], 0), Next::End(End::GuestExit { status: 3 }));
        assert_eq!(board.write_port(0x64, &[0xfe], 0), Next::End(End::Reset));
        assert_eq!(board.write_port(0xcf9, &[6], 0), Next::End(End::Reset));
        board.write_port(0x80, &[0], 0);
        assert_eq!(board.absent(), 0);
        let output = shared.finish();
        assert!(output.error.is_none() && output.dropped == 0);
        assert_eq!(out, b"string\n");
    }

    #[test]
    fn what_is_absent_floats_and_is_counted() {
        let shared = Shared::new(1, 1 << 20, io::sink());
        let mut board = Board::new(&shared);
        let mut data = [0; 4];
        board.read_memory(0xfed0_0000, &mut data);
        assert_eq!(data, [0xff; 4]);
        data.fill(0);
        board.read_port(0xcfc, &mut data);
        assert_eq!(data, [0xff; 4]);
        board.write_memory(0xfed0_0000, &data);
        board.write_port(0xcf8, &data, 0);
        board.write_port(0x64, &[0xd1], 0);
        assert_eq!(board.absent(), 5);
    }

    #[test]
    fn a_flood_is_cut() {
        let mut out = Vec::new();
        let shared = Shared::with_limit(1, 0, &mut out, 10);
        for _ in 0..100 {
            Board::new(&shared).write_port(COM1, b"ab\n", 0);
        }
        assert_eq!(shared.finish().dropped, 290);
        assert_eq!(out, b"ab\nab\nab\na");
    }

    proptest! {
        #[test]
        fn random_accesses_never_panic(accesses in prop::collection::vec((any::<u16>(), any::<bool>(), 0_usize..9), 0..64)) {
            let shared = Shared::new(1, 1 << 20, io::sink());
            let mut board = Board::new(&shared);
            for (port, write, size) in accesses {
                // Half of them near the devices.
                let port = if port & 1 == 0 { port } else { [0x3f8, 0x510, 0xf4, 0x64, 0xcf9][usize::from(port) % 5] + port % 9 };
                if write {
                    board.write_port(port, &[port as u8; 8][..size], 0);
                } else {
                    board.read_port(port, &mut [0; 8][..size]);
                }
            }
        }
    }

    fn item(device: &mut FwCfg, key: u16, length: usize) -> Vec<u8> {
        device.write(SELECTOR, &key.to_le_bytes());
        let mut bytes = vec![0xaa; length];
        for byte in &mut bytes {
            device.read(DATA, std::slice::from_mut(byte));
        }
        bytes
    }

    #[test]
    fn items_read_byte_by_byte() {
        let mut device = FwCfg::new(0x0102, 0x1122_3344_5566);
        // Before anything is selected: the signature.
        let mut byte = [0];
        device.read(DATA, &mut byte);
        assert_eq!(&byte, b"Q");
        assert_eq!(item(&mut device, 0, 5), b"QEMU\0");
        assert_eq!(item(&mut device, 1, 4), [1, 0, 0, 0]);
        assert_eq!(item(&mut device, 3, 9), [0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0]);
        assert_eq!(item(&mut device, 5, 3), [2, 1, 0]);
        assert_eq!(item(&mut device, 0x4005, 2), [2, 1]);
        assert_eq!(item(&mut device, 0x0f, 2), [2, 1]);
        assert_eq!(item(&mut device, 0x8000, 8), [0; 8]);
        // Selecting starts anew.
        assert_eq!(item(&mut device, 0, 2), b"QE");
        assert_eq!(item(&mut device, 0, 2), b"QE");
    }
}
