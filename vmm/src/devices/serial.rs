//! A serial port: a 16550A without modem.
//!
//! Source: National Semiconductor PC16550D data sheet, section 8. The transmitter is always empty, and interrupts for
//! that if the guest enabled it: [`Serial::interrupts`] is the level of the line. No byte is ever received. The other registers keep what
//! is written so that drivers find the chip.

use super::console::Console;

/// First port of COM1.
pub(super) const COM1: u16 = 0x3f8;

/// Line status: transmitter holding register and transmitter empty.
const LSR_IDLE: u8 = 0x60;
/// Interrupt identification: none pending.
const IIR_NONE: u8 = 0x01;
/// Interrupt identification: the transmitter is empty.
const IIR_TRANSMIT: u8 = 0x02;
/// Interrupt identification: FIFOs enabled.
const IIR_FIFO: u8 = 0xc0;
/// Modem status: carrier, data set ready, clear to send.
const MSR_READY: u8 = 0xb0;
/// Line control: divisor latch access.
const LCR_DLAB: u8 = 0x80;
/// Interrupt enable: empty transmitter.
const IER_TRANSMIT: u8 = 0x02;
/// Modem control: OUT2, the gate of a PC's interrupt line.
const MCR_OUT2: u8 = 0x08;
/// Modem control: loop-back.
const MCR_LOOP: u8 = 0x10;

/// A port whose output goes to a console.
#[derive(Debug)]
pub(super) struct Serial<'a> {
    divisor: [u8; 2],
    interrupt_enable: u8,
    fifo: bool,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    /// The transmitter became empty and the guest has not been notified.
    emptied: bool,
    out: &'a Console,
}

impl<'a> Serial<'a> {
    pub(super) const fn new(out: &'a Console) -> Self {
        Self {
            divisor: [0; 2],
            interrupt_enable: 0,
            fifo: false,
            line_control: 0,
            modem_control: 0,
            scratch: 0,
            emptied: false,
            out,
        }
    }

    /// Reads the register at an offset below 8.
    pub(super) fn read(&mut self, offset: u16) -> u8 {
        let latch = self.line_control & LCR_DLAB != 0;
        match offset {
            0 if latch => self.divisor[0],
            1 if latch => self.divisor[1],
            0 => 0,
            1 => self.interrupt_enable,
            2 => {
                let cause = self.cause();
                self.emptied &= cause != IIR_TRANSMIT;
                cause | if self.fifo { IIR_FIFO } else { 0 }
            }
            3 => self.line_control,
            4 => self.modem_control,
            5 => LSR_IDLE,
            6 if self.modem_control & MCR_LOOP != 0 => looped_back(self.modem_control),
            6 => MSR_READY,
            _ => self.scratch,
        }
    }

    /// Writes the register at an offset below 8.
    pub(super) fn write(&mut self, offset: u16, value: u8) {
        let latch = self.line_control & LCR_DLAB != 0;
        match offset {
            0 if latch => self.divisor[0] = value,
            1 if latch => self.divisor[1] = value,
            0 if self.modem_control & MCR_LOOP == 0 => {
                self.emptied = true;
                self.out.put(value);
            }
            1 => {
                // The transmitter is empty when its interrupt is enabled.
                self.emptied |= value & !self.interrupt_enable & IER_TRANSMIT != 0;
                self.interrupt_enable = value & 0x0f;
            }
            2 => self.fifo = value & 1 != 0,
            3 => self.line_control = value,
            4 => self.modem_control = value & 0x1f,
            7 => self.scratch = value,
            _ => {}
        }
    }

    /// Returns the level of the interrupt line.
    pub(super) fn interrupts(&self) -> bool {
        self.modem_control & MCR_OUT2 != 0 && self.cause() != IIR_NONE
    }

    /// Returns the cause of an interrupt, as its identification register has it.
    fn cause(&self) -> u8 {
        if self.interrupt_enable & IER_TRANSMIT != 0 && self.emptied { IIR_TRANSMIT } else { IIR_NONE }
    }
}

/// Shows the modem outputs at the modem inputs, as loop-back does: RTS at CTS, DTR at DSR, OUT1 at RI, OUT2 at DCD.
const fn looped_back(modem_control: u8) -> u8 {
    (modem_control & 0x0c) << 4 | (modem_control & 0x01) << 5 | (modem_control & 0x02) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_has_its_cause_until_it_is_served() {
        let console = Console::default();
        let mut port = Serial::new(&console);
        port.write(4, 0x0b);
        port.write(1, 2);
        assert!(port.interrupts(), "the transmitter is empty");
        assert_eq!((port.read(2), port.read(2), port.interrupts()), (IIR_TRANSMIT, IIR_NONE, false));
        port.write(0, b'x');
        assert!(port.interrupts(), "again after a byte");
        port.write(4, 0x03);
        assert!(!port.interrupts(), "OUT2 is the gate");
        port.write(4, 0x0b);
        port.write(1, 1);
        assert!(!port.interrupts());
    }

    #[test]
    fn registers_keep_what_the_chip_keeps() {
        let console = Console::default();
        let mut port = Serial::new(&console);
        for (offset, value, back) in [(1, 0xff, 0x0f), (2, 1, 0xc2), (3, 0x1b, 0x1b), (4, 0xff, 0x1f), (7, 0x5a, 0x5a)]
        {
            port.write(offset, value);
            assert_eq!(port.read(offset), back, "register {offset}");
        }
        // Loop-back: all four outputs are on, and a byte goes nowhere.
        assert_eq!(port.read(6), 0xf0);
        port.write(0, b'x');
        port.write(4, 0x0b);
        assert_eq!(port.read(6), 0xb0);
        port.write(2, 0);
        assert_eq!(port.read(2), 1);
        // The divisor hides data and interrupt enable.
        port.write(3, 0x80);
        port.write(0, 12);
        port.write(1, 34);
        assert_eq!((port.read(0), port.read(1)), (12, 34));
        port.write(3, 0);
        assert_eq!((port.read(0), port.read(1)), (0, 0x0f));
        console.close();
        let mut out = Vec::new();
        console.write_to(&mut out);
        assert_eq!(out, b"");
    }
}
