//! A serial port: a 16550A without modem.
//!
//! Source: National Semiconductor PC16550D data sheet, section 8. The transmitter is always empty. Received bytes and an empty
//! transmitter interrupt, if the guest enabled it: [`Serial::interrupts`] is the level of the line. The other registers keep what
//! is written so that drivers find the chip.

use std::collections::VecDeque;
use std::io::{self, Write};

/// First port of COM1.
pub const COM1: u16 = 0x3f8;

/// Line status: a received byte waits.
const LSR_READY: u8 = 0x01;
/// Line status: transmitter holding register and transmitter empty.
const LSR_IDLE: u8 = 0x60;
/// Interrupt identification: none pending.
const IIR_NONE: u8 = 0x01;
/// Interrupt identification: the transmitter is empty.
const IIR_TRANSMIT: u8 = 0x02;
/// Interrupt identification: a received byte waits.
const IIR_RECEIVE: u8 = 0x04;
/// Interrupt identification: FIFOs enabled.
const IIR_FIFO: u8 = 0xc0;
/// Modem status: carrier, data set ready, clear to send.
const MSR_READY: u8 = 0xb0;
/// Line control: divisor latch access.
const LCR_DLAB: u8 = 0x80;
/// Interrupt enable: received byte, empty transmitter.
const IER_RECEIVE: u8 = 0x01;
const IER_TRANSMIT: u8 = 0x02;
/// FIFO control: drop what was received.
const FCR_CLEAR: u8 = 0x02;
/// Modem control: request to send.
const MCR_RTS: u8 = 0x02;
/// Modem control: OUT2, the gate of a PC's interrupt line.
const MCR_OUT2: u8 = 0x08;
/// Received bytes that wait at most.
const RECEIVE_MAX: usize = 64;
/// Modem control: loop-back.
const MCR_LOOP: u8 = 0x10;

/// The chip's registers that keep a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    divisor: [u8; 2],
    interrupt_enable: u8,
    fifo: bool,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    /// The transmitter became empty and the guest has not been notified.
    emptied: bool,
}

/// A port at a base address whose output goes to `W`.
#[derive(Debug)]
pub struct Serial<W> {
    base: u16,
    registers: Registers,
    received: VecDeque<u8>,
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Serial<W> {
    /// Builds a port at eight addresses from `base`.
    pub const fn new(base: u16, out: W) -> Self {
        Self {
            base,
            registers: Registers {
                divisor: [0; 2],
                interrupt_enable: 0,
                fifo: false,
                line_control: 0,
                modem_control: 0,
                scratch: 0,
                emptied: false,
            },
            received: VecDeque::new(),
            out,
            error: None,
        }
    }

    /// Returns whether a port is the device's.
    pub const fn claims(&self, port: u16) -> bool {
        self.base <= port && port - self.base < 8
    }

    /// Reads one access; the chip is 8 bits wide.
    pub fn read(&mut self, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        if !self.claims(port) {
            return;
        }
        let Some(first) = data.first_mut() else {
            return;
        };
        let cause = self.cause();
        let registers = &mut self.registers;
        let latch = registers.line_control & LCR_DLAB != 0;
        *first = match port - self.base {
            0 if latch => registers.divisor[0],
            1 if latch => registers.divisor[1],
            0 => self.received.pop_front().unwrap_or(0),
            1 => registers.interrupt_enable,
            2 => {
                if cause == IIR_TRANSMIT {
                    registers.emptied = false;
                }
                cause | if registers.fifo { IIR_FIFO } else { 0 }
            }
            3 => registers.line_control,
            4 => registers.modem_control,
            5 if self.received.is_empty() => LSR_IDLE,
            5 => LSR_IDLE | LSR_READY,
            6 if registers.modem_control & MCR_LOOP != 0 => looped_back(registers.modem_control),
            6 => MSR_READY,
            _ => registers.scratch,
        };
    }

    /// Writes one access; the chip is 8 bits wide. Output is flushed at the end of each line.
    pub fn write(&mut self, port: u16, data: &[u8]) {
        let (true, Some(&value)) = (self.claims(port), data.first()) else {
            return;
        };
        let latch = self.registers.line_control & LCR_DLAB != 0;
        let registers = &mut self.registers;
        match port - self.base {
            0 if latch => registers.divisor[0] = value,
            1 if latch => registers.divisor[1] = value,
            0 if registers.modem_control & MCR_LOOP == 0 => self.send(value),
            1 => {
                // The transmitter is empty when its interrupt is enabled.
                registers.emptied |= value & !registers.interrupt_enable & IER_TRANSMIT != 0;
                registers.interrupt_enable = value & 0x0f;
            }
            2 => {
                registers.fifo = value & 1 != 0;
                if value & FCR_CLEAR != 0 {
                    self.received.clear();
                }
            }
            3 => registers.line_control = value,
            4 => registers.modem_control = value & 0x1f,
            7 => registers.scratch = value,
            _ => {}
        }
    }

    /// Receives as many of `bytes` as have room, and returns their number. None has as long as the guest does not listen, as its
    /// driver drops at its start what came before, or does not request to be sent to (RTS).
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let Registers { interrupt_enable, modem_control, .. } = self.registers;
        if interrupt_enable & IER_RECEIVE == 0 || modem_control & MCR_RTS == 0 {
            return 0;
        }
        let fits = bytes.len().min(RECEIVE_MAX - self.received.len());
        self.received.extend(&bytes[..fits]);
        fits
    }

    /// Returns whether received bytes wait for the guest.
    pub fn has_input(&self) -> bool {
        !self.received.is_empty()
    }

    /// Returns the level of the interrupt line.
    pub fn interrupts(&self) -> bool {
        self.registers.modem_control & MCR_OUT2 != 0 && self.cause() != IIR_NONE
    }

    /// Returns the cause of an interrupt, as its identification register has it.
    fn cause(&self) -> u8 {
        let Registers { interrupt_enable, emptied, .. } = self.registers;
        if interrupt_enable & IER_RECEIVE != 0 && !self.received.is_empty() {
            IIR_RECEIVE
        } else if interrupt_enable & IER_TRANSMIT != 0 && emptied {
            IIR_TRANSMIT
        } else {
            IIR_NONE
        }
    }

    /// Returns the first error of the output; nothing was sent after it.
    pub const fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// The first error of the output.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn send(&mut self, value: u8) {
        self.registers.emptied = true;
        if self.error.is_some() {
            return;
        }
        let sent = self.out.write_all(&[value]);
        let sent = sent.and_then(|()| if value == b'\n' { self.out.flush() } else { Ok(()) });
        self.error = sent.err();
    }
}

/// Shows the modem outputs at the modem inputs, as loop-back does: RTS at CTS, DTR at DSR, OUT1 at RI, OUT2 at DCD.
const fn looped_back(modem_control: u8) -> u8 {
    (modem_control & 0x0c) << 4 | (modem_control & 0x01) << 5 | (modem_control & 0x02) << 3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<W: Write>(port: &mut Serial<W>, offset: u16) -> u8 {
        let mut data = [0];
        port.read(COM1 + offset, &mut data);
        data[0]
    }

    #[test]
    fn an_interrupt_has_its_cause_until_it_is_served() {
        let mut port = Serial::new(COM1, io::sink());
        port.write(COM1 + 4, &[0x0b]);
        port.write(COM1 + 1, &[2]);
        assert!(port.interrupts(), "the transmitter is empty");
        assert_eq!((read(&mut port, 2), read(&mut port, 2), port.interrupts()), (IIR_TRANSMIT, IIR_NONE, false));
        port.write(COM1, b"x");
        assert!(port.interrupts(), "again after a byte");
        assert_eq!(port.receive(b"too early"), 0);
        port.write(COM1 + 1, &[1]);
        assert!(!port.interrupts());
        assert_eq!(port.receive(&[b'a'; RECEIVE_MAX + 1]), RECEIVE_MAX);
        assert_eq!((read(&mut port, 2), read(&mut port, 5), port.interrupts()), (IIR_RECEIVE, 0x61, true));
        port.write(COM1 + 4, &[0x03]);
        assert!(!port.interrupts(), "OUT2 is the gate");
        port.write(COM1 + 4, &[0x01]);
        assert_eq!(port.receive(b"too fast"), 0, "a driver that has enough drops RTS");
        port.write(COM1 + 4, &[0x03]);
        assert_eq!((read(&mut port, 0), port.receive(b"bc"), port.has_input()), (b'a', 1, true));
        port.write(COM1 + 2, &[3]);
        assert_eq!((read(&mut port, 0), read(&mut port, 5), port.has_input()), (0, 0x60, false));
    }

    #[test]
    fn registers_keep_what_the_chip_keeps() {
        let mut port = Serial::new(COM1, Vec::new());
        for (offset, value, back) in [(1, 0xff, 0x0f), (2, 1, 0xc2), (3, 0x1b, 0x1b), (4, 0xff, 0x1f), (7, 0x5a, 0x5a)]
        {
            port.write(COM1 + offset, &[value]);
            assert_eq!(read(&mut port, offset), back, "register {offset}");
        }
        // Loop-back: all four outputs are on, and a byte goes nowhere.
        assert_eq!(read(&mut port, 6), 0xf0);
        port.write(COM1, b"x");
        port.write(COM1 + 4, &[0x0b]);
        assert_eq!(read(&mut port, 6), 0xb0);
        port.write(COM1 + 2, &[0]);
        assert_eq!(read(&mut port, 2), 1);
        // The divisor hides data and interrupt enable.
        port.write(COM1 + 3, &[0x80]);
        port.write(COM1, &[12]);
        port.write(COM1 + 1, &[34]);
        assert_eq!((read(&mut port, 0), read(&mut port, 1)), (12, 34));
        port.write(COM1 + 3, &[0]);
        assert_eq!((read(&mut port, 0), read(&mut port, 1)), (0, 0x0f));
        assert_eq!(port.finish().unwrap(), b"");
    }

    #[derive(Debug)]
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_output_error_is_kept_and_the_guest_goes_on() {
        let mut port = Serial::new(COM1, Full);
        port.write(COM1, b"x");
        port.write(COM1, b"y");
        assert_eq!(read(&mut port, 5), LSR_IDLE);
        assert_eq!(port.error().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert!(port.finish().is_err());
    }

    proptest! {
        #[test]
        fn random_accesses_never_panic(accesses in prop::collection::vec((0_u16..12, any::<u32>(), any::<bool>(), 0_usize..5), 0..64)) {
            let mut port = Serial::new(COM1, io::sink());
            for (offset, value, write, size) in accesses {
                if write {
                    port.write(COM1 - 2 + offset, &value.to_le_bytes()[..size]);
                } else {
                    port.read(COM1 - 2 + offset, &mut [0; 4][..size]);
                }
            }
        }
    }
}
