//! The device by which an image ends its run: an OUT to port 0xF4 with a status code.
//!
//! The run's exit status is `code << 1 | 1`, so that it is never 0: the convention of QEMU's `isa-debug-exit`
//! (`docs/system/i386` and `hw/misc/debugexit.c`), which kvm-unit-tests expects.

/// The device's port.
pub const PORT: u16 = 0xf4;

/// The device; it has no state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugExit;

impl DebugExit {
    /// Returns whether a port is the device's.
    #[must_use]
    pub const fn claims(port: u16) -> bool {
        PORT <= port && port < PORT + 4
    }

    /// Reads as 0.
    pub fn read(self, port: u16, data: &mut [u8]) {
        data.fill(if Self::claims(port) { 0 } else { 0xff });
    }

    /// Returns the exit status that a write asks for; `None` for another port.
    #[must_use]
    pub fn write(self, port: u16, data: &[u8]) -> Option<u32> {
        if !Self::claims(port) {
            return None;
        }
        let code = data.iter().take(4).rev().fold(0_u32, |code, &byte| code << 8 | u32::from(byte));
        Some(code << 1 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_shifted() {
        let device = DebugExit;
        assert_eq!(device.write(PORT, &[0, 0, 0, 0]), Some(1));
        assert_eq!(device.write(PORT, &[5]), Some(11));
        assert_eq!(device.write(PORT, &0x1234_5678_u32.to_le_bytes()), Some(0x2468_acf1));
        assert_eq!(device.write(PORT, &[0xff; 4]), Some(u32::MAX));
        assert_eq!(device.write(PORT, &[]), Some(1));
        assert_eq!(device.write(PORT - 1, &[0]), None);
        assert_eq!(device.write(PORT + 4, &[0]), None);
    }

    #[test]
    fn reads_as_zero() {
        let mut data = [0xaa; 4];
        DebugExit.read(PORT, &mut data);
        assert_eq!(data, [0; 4]);
        DebugExit.read(0x80, &mut data);
        assert_eq!(data, [0xff; 4]);
    }
}
