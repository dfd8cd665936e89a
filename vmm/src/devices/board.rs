//! The devices of a third-party image beside KVM's interrupt controllers and timer: a serial port, the firmware
//! configuration, a port to end the run, ports to reset. Any other port or address is absent, as on a PC: reads give all
//! ones, writes go nowhere, and the accesses are counted.

use std::io::{BufWriter, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bus::{Bus, Next};
use super::debug_exit::DebugExit;
use super::fw_cfg::FwCfg;
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
    #[must_use]
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
}
