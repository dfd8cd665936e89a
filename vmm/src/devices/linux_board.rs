//! The devices of a Linux guest beside KVM's interrupt controllers: a serial port with interrupt and input, the registers for
//! power-off and reset. Any other port or address is absent, as on a PC: reads give all ones, writes go nowhere, and the
//! accesses are counted.

use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::bus::{Bus, Next};
use super::console::Console;
use super::serial::{COM1, Serial};
use crate::outcome::End;

/// ACPI's registers for sleep, the command for soft off, and its reset register.
pub use crate::boot::linux::acpi::{RESET, SLEEP_CONTROL, SLEEP_ENABLE, SLEEP_STATUS, SOFT_OFF};

/// Keyboard controller's command port, and its command that pulls the reset line.
const KEYBOARD: u16 = 0x64;
const PULSE_RESET: u8 = 0xfe;
/// RST_CPU of a PC's reset control.
const RESET_CPU: u8 = 4;
/// Written to for the delay it gives.
const POST_CODE: u16 = 0x80;

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
    #[must_use]
    pub fn new(console: &'a Console) -> Self {
        let port = Port { serial: Serial::new(COM1, console), raised: false };
        Self { port: Mutex::new(port), line: OnceLock::new() }
    }

    /// Connects the serial port's interrupt, once.
    pub fn connect(&self, line: Line) {
        // A second line would be that of another VM: a guest has one.
        let _ = self.line.set(line);
    }

    /// Input for the serial port: returns how many bytes had room.
    pub fn receive(&self, bytes: &[u8]) -> usize {
        self.with_serial(|serial| serial.receive(bytes))
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
    absent: u64,
}

impl<'b, 'a> LinuxBoard<'b, 'a> {
    /// A vCPU's view.
    #[must_use]
    pub const fn new(shared: &'b Shared<'a>) -> Self {
        Self { shared, absent: 0 }
    }

    /// Accesses to ports and memory that are not there.
    #[must_use]
    pub const fn absent(&self) -> u64 {
        self.absent
    }
}

fn is_serial(port: u16) -> bool {
    (COM1..COM1 + 8).contains(&port)
}

impl Bus for LinuxBoard<'_, '_> {
    fn write_port(&mut self, port: u16, data: &[u8], _tsc: u64) -> Next {
        match (port, data) {
            // The chip is 8 bits wide: each byte of a string instruction is an access.
            _ if is_serial(port) => self.shared.with_serial(|serial| {
                data.iter().for_each(|byte| serial.write(port, std::slice::from_ref(byte)));
            }),
            (SLEEP_CONTROL, &[value]) if value == SLEEP_ENABLE | SOFT_OFF << 2 => return Next::End(End::PowerOff),
            (KEYBOARD, &[PULSE_RESET]) => return Next::End(End::Reset),
            (port, &[value]) if port == RESET.0 && value & RESET_CPU != 0 => return Next::End(End::Reset),
            (SLEEP_CONTROL | SLEEP_STATUS | KEYBOARD | POST_CODE, _) => {}
            _ => self.absent += 1,
        }
        Next::Continue
    }

    fn read_port(&mut self, port: u16, data: &mut [u8]) -> Next {
        match port {
            _ if is_serial(port) => self.shared.with_serial(|serial| {
                data.iter_mut().for_each(|byte| serial.read(port, std::slice::from_mut(byte)));
            }),
            // No wake-up; the keyboard controller takes a command.
            SLEEP_CONTROL | SLEEP_STATUS | KEYBOARD => data.fill(0),
            _ => {
                data.fill(0xff);
                self.absent += 1;
            }
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
