//! The payload's ports, by which it reports its progress.

use std::time::Instant;

use guest::abi::{
    DB_BOOTED, DB_DONE, DB_FAILED, DB_PHASE, DB_SYNC, DB_TAIL_TICK, DB_TURN_OVER, PHASES, PORT_CONSOLE, PORT_DOORBELL,
    PORT_WORKLOAD, SYNC_ROUNDS,
};

use super::bus::{Bus, Next};
use crate::outcome::End;

/// Console bytes kept for an error message.
const CONSOLE_CAP: usize = 1024;
/// Tail ticks looked at; more are not kept.
const TAIL_CAP: usize = 64;

/// The loop's next step after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Go on.
    Nothing,
    /// A tail tick: note the host events held.
    TailTick,
    /// A phase of a set-up begins.
    Phase(usize),
    /// The vCPU's turn is over.
    TurnOver,
    /// The vCPU is done.
    Done,
    /// The payload met an exception.
    Failed,
    /// No such port.
    Unknown,
}

/// The ports of one vCPU.
#[derive(Debug)]
pub struct Doorbell {
    /// When the payload's first instruction had run.
    pub booted: Option<Instant>,
    /// Host TSC at each exchange.
    pub syncs: Vec<u64>,
    /// Host events held at each tail tick.
    pub held_at_tail_tick: Vec<u64>,
    /// Output of the payload, cut at 1 KiB.
    pub console: Vec<u8>,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self {
            booted: None,
            syncs: Vec::with_capacity(SYNC_ROUNDS),
            held_at_tail_tick: Vec::with_capacity(TAIL_CAP),
            console: Vec::with_capacity(CONSOLE_CAP),
        }
    }
}

impl Doorbell {
    /// Handles a write of `data` to `port`, which the VMM saw at host TSC `tsc`.
    pub fn write(&mut self, port: u16, data: &[u8], tsc: u64) -> Rung {
        match (port, data) {
            (PORT_WORKLOAD, _) => Rung::Nothing,
            (PORT_CONSOLE, &[byte]) => {
                if self.console.len() < CONSOLE_CAP {
                    self.console.push(byte);
                }
                Rung::Nothing
            }
            (PORT_DOORBELL, &[a, b, c, d]) => self.ring(u32::from_le_bytes([a, b, c, d]), tsc),
            _ => Rung::Unknown,
        }
    }

    fn ring(&mut self, code: u32, tsc: u64) -> Rung {
        match code {
            DB_BOOTED => {
                self.booted.get_or_insert_with(Instant::now);
                Rung::Nothing
            }
            DB_SYNC => {
                if self.syncs.len() < SYNC_ROUNDS {
                    self.syncs.push(tsc);
                }
                Rung::Nothing
            }
            DB_TAIL_TICK => Rung::TailTick,
            DB_TURN_OVER => Rung::TurnOver,
            DB_DONE => Rung::Done,
            DB_FAILED => Rung::Failed,
            _ if (DB_PHASE..DB_PHASE + PHASES as u32).contains(&code) => Rung::Phase((code - DB_PHASE) as usize),
            _ => Rung::Nothing,
        }
    }
}

impl Bus for Doorbell {
    fn write_port(&mut self, port: u16, data: &[u8], tsc: u64) -> Next {
        match self.write(port, data, tsc) {
            Rung::Nothing => Next::Continue,
            Rung::TailTick => Next::NoteHeld,
            Rung::Phase(phase) => Next::Phase(phase),
            Rung::TurnOver => Next::TurnOver,
            Rung::Done => Next::End(End::Done),
            // The machine replaces this by what the guest's report says.
            Rung::Failed => Next::End(End::GuestFault { vector: 0, error: 0, rip: 0, cr2: 0 }),
            Rung::Unknown => Next::End(End::UnknownExit(format!("OUT to port {port:#x}"))),
        }
    }

    fn note_held(&mut self, held: u64) {
        if self.held_at_tail_tick.len() < TAIL_CAP {
            self.held_at_tail_tick.push(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ring_and_foreign_ports_do_not() {
        let mut doorbell = Doorbell::default();
        let ring = |doorbell: &mut Doorbell, code: u32| doorbell.write(PORT_DOORBELL, &code.to_le_bytes(), 7);
        assert_eq!(ring(&mut doorbell, DB_BOOTED), Rung::Nothing);
        assert!(doorbell.booted.is_some());
        assert_eq!(ring(&mut doorbell, DB_DONE), Rung::Done);
        assert_eq!(ring(&mut doorbell, 0xffff), Rung::Nothing);
        assert_eq!(ring(&mut doorbell, DB_PHASE), Rung::Phase(0));
        assert_eq!(ring(&mut doorbell, DB_PHASE + PHASES as u32), Rung::Nothing);
        assert_eq!(doorbell.write(PORT_DOORBELL, &[1], 7), Rung::Unknown);
        assert_eq!(doorbell.write(0x60, &[1], 7), Rung::Unknown);
        assert_eq!(doorbell.write_port(PORT_DOORBELL, &DB_DONE.to_le_bytes(), 7), Next::End(End::Done));
        assert_eq!(doorbell.write_port(PORT_DOORBELL, &DB_TAIL_TICK.to_le_bytes(), 7), Next::NoteHeld);
        assert_eq!(doorbell.write_port(PORT_DOORBELL, &DB_TURN_OVER.to_le_bytes(), 7), Next::TurnOver);
    }

    #[test]
    fn a_flood_keeps_its_bounds() {
        let mut doorbell = Doorbell::default();
        for _ in 0..5000 {
            doorbell.write(PORT_CONSOLE, b"x", 0);
            doorbell.write(PORT_DOORBELL, &DB_SYNC.to_le_bytes(), 0);
            doorbell.note_held(1);
        }
        assert_eq!((doorbell.console.len(), doorbell.syncs.len()), (CONSOLE_CAP, SYNC_ROUNDS));
        assert_eq!(doorbell.held_at_tail_tick.len(), TAIL_CAP);
    }
}
