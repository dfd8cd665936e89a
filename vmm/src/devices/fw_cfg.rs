//! QEMU's firmware configuration device, as far as an image asks it for the machine's size.
//!
//! Source: QEMU `docs/specs/fw_cfg.rst` (selector register, data register, endianness) and
//! `include/standard-headers/linux/qemu_fw_cfg.h` (keys). Only the port interface and keys with fixed contents: there
//! is no file directory and no DMA. A key that is not there reads as zeros.

/// 16-bit selector, write-only.
pub(super) const SELECTOR: u16 = 0x510;
/// 8-bit data.
pub(super) const DATA: u16 = 0x511;

const SIGNATURE: u16 = 0x00;
const ID: u16 = 0x01;
const RAM_SIZE: u16 = 0x03;
const NB_CPUS: u16 = 0x05;
const MAX_CPUS: u16 = 0x0f;
/// A selector's flag for writing an item, which has had no effect since QEMU 2.4.
const WRITE_CHANNEL: u16 = 0x4000;

/// The device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FwCfg {
    cpus: u16,
    ram: u64,
    selected: u16,
    offset: usize,
}

impl FwCfg {
    /// Builds a device that reports `cpus` CPUs and `ram` bytes of memory.
    pub(crate) const fn new(cpus: u16, ram: u64) -> Self {
        Self { cpus, ram, selected: SIGNATURE, offset: 0 }
    }

    /// Reads a byte.
    pub(super) fn read(&mut self, port: u16) -> u8 {
        if port != DATA {
            return 0;
        }
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

    /// Writes one access. Items cannot be written.
    pub(super) fn write(&mut self, port: u16, data: &[u8]) {
        if let (SELECTOR, &[low, high, ..]) = (port, data) {
            self.selected = u16::from_le_bytes([low, high]) & !WRITE_CHANNEL;
            self.offset = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_read_byte_by_byte_and_anew_when_they_are_selected() {
        let mut device = FwCfg::new(0x0102, 0x1122_3344_5566);
        assert_eq!(device.read(DATA), b'Q', "the signature, before anything is selected");
        for (key, bytes) in [
            (0_u16, &b"QEMU\0"[..]),
            (1, &[1, 0, 0, 0]),
            (3, &[0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0]),
            (5, &[2, 1, 0]),
            (0x4005, &[2, 1]),
            (0x0f, &[2, 1]),
            (0x8000, &[0; 8]),
            (0, b"QE"),
            (0, b"QE"),
        ] {
            device.write(SELECTOR, &key.to_le_bytes());
            assert!(bytes.iter().all(|byte| device.read(DATA) == *byte), "{key:#x}");
        }
    }
}
