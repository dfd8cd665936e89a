//! Exact counts without any PMU: the VMM single-steps the vCPU and reports each retired instruction.
//!
//! Knows no KVM and no decoder. Single-stepping shows instructions, branches and taken branches, by ring. Any other event
//! (cycles, caches, the slots of fixed counter 3, what depends on transactions) counts nothing and is reported as unsupported.
//!
//! One rule covers the edges: an instruction counts on a counter that ran when it began and still runs when it has
//! retired. A WRMSR that starts, stops or moves a counter is thus counted by the other counters and not by that one; an
//! RDMSR reads a count without itself. This is what Intel's processors do with a WRMSR to GLOBAL_CTRL on either side of
//! a measured piece of code.

use arch_pmu::spec::Spec;

use super::retired::{Event, Slot};
pub use super::retired::{Retired, StepCounts};
use super::{Backend, HostError};
use crate::sys;

impl Backend for StepCounts {
    type Event = usize;

    fn open(&mut self, spec: Spec, period: u64) -> Result<usize, HostError> {
        let event = Event::of(spec);
        self.unsupported += u64::from(event == Event::Unknown);
        let slot = Slot { event, spec, running: false, fresh: false, count: 0, signal_at: period, signalled: false };
        let at = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[at] = Some(slot);
        self.set_running(at, true);
        Ok(at)
    }

    fn release(&mut self, event: usize) {
        self.set_running(event, false);
        self.slots[event] = None;
    }

    fn pause(&mut self, event: &mut usize) -> Result<u64, HostError> {
        self.set_running(*event, false);
        self.read(event)
    }

    fn resume(&mut self, event: &mut usize) -> Result<(), HostError> {
        self.set_running(*event, true);
        Ok(())
    }

    fn set_period(&mut self, event: &mut usize, period: u64) -> Result<(), HostError> {
        if let Some(slot) = &mut self.slots[*event] {
            (slot.signal_at, slot.signalled) = (slot.count.saturating_add(period), false);
            slot.fresh |= slot.running && self.under_way;
        }
        Ok(())
    }

    fn read(&mut self, event: &mut usize) -> Result<u64, HostError> {
        Ok(self.slots[*event].as_ref().map_or(0, |slot| slot.count))
    }

    fn sched_in(&mut self) -> bool {
        let switches = sys::context_switches();
        std::mem::replace(&mut self.seen, switches) != switches
    }

    fn now_ns(&self) -> u64 {
        sys::monotonic_ns()
    }

    fn stepper(&mut self) -> Option<&mut StepCounts> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;
    use arch_pmu::spec::Source;

    use super::*;

    const OS: u64 = 1 << 17;
    const USR: u64 = 1 << 16;
    const PLAIN: Retired = Retired { branch: false, taken: false, ring3: false };

    fn selector(bits: u64) -> Spec {
        PerfEvtSel::from_bits(bits | 1 << 22).spec()
    }

    #[test]
    fn each_event_counts_its_instructions_in_its_rings() {
        let mut step = StepCounts::default();
        let specs = [
            selector(0xc0 | OS),
            selector(0xc0 | USR),
            selector(0xc0),
            selector(0xc4 | OS),
            selector(0x20c4 | OS),
            selector(0x3c | OS),
            selector(0xc0 | OS | 1 << 24),
            Spec(Source::Fixed { index: 0, control: 1 }),
            Spec(Source::Fixed { index: 1, control: 1 }),
            Spec(Source::Fixed { index: 3, control: 1 }),
            selector(0xc0 | OS | 1 << 32),
            selector(0xc0 | OS | 1 << 33),
        ];
        let mut events: Vec<_> = specs.iter().map(|&spec| step.open(spec, 1 << 48).unwrap()).collect();
        for retired in [
            PLAIN,
            Retired { branch: true, ..PLAIN },
            Retired { branch: true, taken: true, ..PLAIN },
            Retired { ring3: true, ..PLAIN },
        ] {
            assert!(!step.retire(retired));
        }
        let counts: Vec<_> = events.iter_mut().map(|event| step.read(event).unwrap()).collect();
        assert_eq!(counts, [3, 1, 0, 2, 1, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!((step.steps(), step.unsupported()), (4, 6));
    }

    #[test]
    fn a_period_is_over_at_exactly_its_last_count_and_once() {
        let mut step = StepCounts::default();
        let mut event = step.open(selector(0xc0 | OS), 3).unwrap();
        let due: Vec<_> = (0..5).map(|_| step.retire(PLAIN)).collect();
        assert_eq!(due, [false, false, true, false, false]);
        step.set_period(&mut event, 1).unwrap();
        assert!(step.retire(PLAIN));
        // A period that is over already signals with the next count.
        step.set_period(&mut event, 0).unwrap();
        assert!(step.retire(PLAIN));
        assert!(!step.retire(PLAIN));
    }

    #[test]
    fn what_starts_or_moves_a_counter_is_not_counted_by_it() {
        let mut step = StepCounts::default();
        let mut running = step.open(selector(0xc0 | OS), 100).unwrap();
        step.begin();
        let mut started = step.open(selector(0xc0 | OS), 100).unwrap();
        step.retire(PLAIN);
        assert_eq!((step.read(&mut running), step.read(&mut started)), (Ok(1), Ok(0)));
        step.retire(PLAIN);
        assert_eq!(step.read(&mut started), Ok(1));
        step.begin();
        step.set_period(&mut running, 2).unwrap();
        step.retire(PLAIN);
        assert_eq!((step.read(&mut running), step.read(&mut started)), (Ok(2), Ok(2)));
        // A write that faults moves nothing afterwards.
        step.begin();
        step.set_period(&mut running, 2).unwrap();
        step.abandon();
        assert!(!step.retire(PLAIN));
        assert!(step.retire(PLAIN));
    }

    #[test]
    fn steps_are_wanted_only_while_something_runs_and_slots_serve_again() {
        let mut step = StepCounts::default();
        assert!(!step.wanted());
        let mut event = step.open(selector(0xc0 | OS), 9).unwrap();
        assert!(step.wanted());
        step.retire(PLAIN);
        assert_eq!(step.pause(&mut event), Ok(1));
        assert!(!step.wanted());
        step.retire(PLAIN);
        assert_eq!(step.read(&mut event), Ok(1), "a paused counter stands still");
        step.resume(&mut event).unwrap();
        step.release(event);
        assert!(!step.wanted());
        let mut other = step.open(selector(0xc4 | OS), 9).unwrap();
        assert_eq!((step.slots.len(), step.read(&mut other)), (1, Ok(0)));
    }
}
