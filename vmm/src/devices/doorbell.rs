//! The payload's ports, by which it reports its progress.

use std::time::Instant;

use guest::abi::{
    DB_BOOTED, DB_DONE, DB_FAILED, DB_PHASE, DB_SYNC, DB_TAIL_TICK, DB_TURN_OVER, PHASES, PORT_CONSOLE, PORT_DOORBELL,
    PORT_WORKLOAD, SYNC_ROUNDS,
};

use super::bus::{Bus, Next};
use crate::outcome::End;

/// Tail ticks looked at; more are not kept.
const TAIL_CAP: usize = 64;

/// The ports of one vCPU.
#[derive(Debug)]
pub struct Doorbell {
    /// When the payload's first instruction had run.
    pub booted: Option<Instant>,
    /// Host TSC at each exchange.
    pub syncs: Vec<u64>,
    /// Host events held at each tail tick.
    pub held_at_tail_tick: Vec<u64>,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self { booted: None, syncs: Vec::with_capacity(SYNC_ROUNDS), held_at_tail_tick: Vec::with_capacity(TAIL_CAP) }
    }
}

impl Doorbell {
    fn ring(&mut self, code: u32, tsc: u64) -> Next {
        match code {
            DB_BOOTED => {
                self.booted.get_or_insert_with(Instant::now);
            }
            DB_SYNC if self.syncs.len() < SYNC_ROUNDS => self.syncs.push(tsc),
            DB_TAIL_TICK => return Next::NoteHeld,
            DB_TURN_OVER => return Next::TurnOver,
            DB_DONE => return Next::End(End::Done),
            // The machine replaces this by what the guest's report says.
            DB_FAILED => return Next::End(End::GuestFault { vector: 0, error: 0, rip: 0, cr2: 0 }),
            _ if (DB_PHASE..DB_PHASE + PHASES as u32).contains(&code) => {
                return Next::Phase((code - DB_PHASE) as usize);
            }
            _ => {}
        }
        Next::Continue
    }
}

impl Bus for Doorbell {
    fn write_port(&mut self, port: u16, data: &[u8], tsc: u64) -> Next {
        match (port, data) {
            (PORT_WORKLOAD | PORT_CONSOLE, _) => {}
            (PORT_DOORBELL, &[a, b, c, d]) => return self.ring(u32::from_le_bytes([a, b, c, d]), tsc),
            _ => return Next::End(End::UnknownExit(format!("OUT to port {port:#x}"))),
        }
        Next::Continue
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
    fn foreign_ports_and_codes_that_are_cut_end_the_run() {
        let mut doorbell = Doorbell::default();
        for port in [PORT_DOORBELL, 0x60] {
            assert!(matches!(doorbell.write_port(port, &[1], 7), Next::End(End::UnknownExit(_))), "{port:#x}");
        }
        for code in [0xffff, DB_PHASE + PHASES as u32] {
            assert_eq!(doorbell.write_port(PORT_DOORBELL, &code.to_le_bytes(), 7), Next::Continue, "{code:#x}");
        }
    }

    #[test]
    fn a_flood_keeps_its_bounds() {
        let mut doorbell = Doorbell::default();
        for _ in 0..5000 {
            doorbell.write_port(PORT_DOORBELL, &DB_SYNC.to_le_bytes(), 0);
            doorbell.note_held(1);
        }
        assert_eq!((doorbell.syncs.len(), doorbell.held_at_tail_tick.len()), (SYNC_ROUNDS, TAIL_CAP));
    }
}
