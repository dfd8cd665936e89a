//! Ports of a PC that every board has: the serial port's, those that reset the machine, and one written to for its delay.

use std::io::Write;

use super::serial::{COM1, Serial};
use crate::boot::linux::acpi::RESET;

/// Keyboard controller's command port, and its command that pulls the reset line.
pub(super) const KEYBOARD: u16 = 0x64;
const PULSE_RESET: u8 = 0xfe;
/// Reset control of a PC's chip set, which ACPI names as the reset register, and its bit RST_CPU.
const RESET_CONTROL: u16 = RESET.0;
const RESET_CPU: u8 = 4;
/// Written to for the delay it gives.
pub(super) const POST_CODE: u16 = 0x80;

/// Index and data of the CMOS clock.
pub(super) const CMOS_INDEX: u16 = 0x70;
pub(super) const CMOS_DATA: u16 = 0x71;

/// Reads a register of a CMOS clock that stands still with a flat battery, at the first of January 2000. A kernel
/// without KVM's clock reads its date there, and before Linux 5.17 waits for ever until no update is under way: absent,
/// all ones, one always would be (seen: 5.10 with `--msr-cost`).
pub(super) const fn cmos(index: u8) -> u8 {
    match index & 0x7f {
        // Day of the week, day, month.
        6 => 7,
        7 | 8 => 1,
        // A: no update, the divider of 32 768 Hz. B: 24 hours, in decimal.
        0xa => 0x26,
        0xb => 2,
        _ => 0,
    }
}

/// Returns whether a write resets the machine.
pub(super) const fn resets(port: u16, data: &[u8]) -> bool {
    match (port, data) {
        (KEYBOARD, &[PULSE_RESET]) => true,
        (RESET_CONTROL, &[value]) => value & RESET_CPU != 0,
        _ => false,
    }
}

pub(super) const fn is_serial(port: u16) -> bool {
    COM1 <= port && port < COM1 + 8
}

/// Writes each byte of a string instruction as an access: the chip is 8 bits wide.
pub(super) fn write_serial<W: Write>(serial: &mut Serial<W>, port: u16, data: &[u8]) {
    for byte in data {
        serial.write(port, std::slice::from_ref(byte));
    }
}

/// Reads a register of the serial port.
pub(super) fn read_serial<W: Write>(serial: &mut Serial<W>, port: u16, data: &mut [u8]) {
    for byte in data {
        serial.read(port, std::slice::from_mut(byte));
    }
}
