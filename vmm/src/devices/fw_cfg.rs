//! QEMU's firmware configuration device, as far as an image asks it for the machine's size.
//!
//! Source: QEMU `docs/specs/fw_cfg.rst` (selector register, data register, endianness) and
//! `include/standard-headers/linux/qemu_fw_cfg.h` (keys). Only the port interface and keys with fixed contents: there
//! is no file directory and no DMA. A key that is not there reads as zeros.

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
    #[must_use]
    pub const fn new(cpus: u16, ram: u64) -> Self {
        Self { cpus, ram, selected: SIGNATURE, offset: 0 }
    }

    /// Returns whether a port is the device's.
    #[must_use]
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
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn odd_accesses_are_harmless() {
        let mut device = FwCfg::new(1, 0);
        let before = device.clone();
        device.write(SELECTOR, &[5]);
        device.write(DATA, &[5, 0]);
        device.write(0x80, &[5, 0]);
        device.read(DATA, &mut []);
        assert_eq!(device, before);
        let mut wide = [0xaa; 4];
        device.read(DATA, &mut wide);
        assert_eq!(&wide, b"Q\0\0\0");
        device.read(0x80, &mut wide);
        assert_eq!(wide, [0xff; 4]);
    }

    proptest! {
        #[test]
        fn random_accesses_never_panic(accesses in prop::collection::vec((any::<u16>(), any::<bool>(), 0_usize..5), 0..64)) {
            let mut device = FwCfg::new(2, 1 << 30);
            for (value, write, size) in accesses {
                let port = SELECTOR + value % 3;
                if write {
                    device.write(port, &[value.to_le_bytes(), [0; 2]].concat()[..size]);
                } else {
                    device.read(port, &mut [0; 4][..size]);
                }
            }
        }
    }
}
