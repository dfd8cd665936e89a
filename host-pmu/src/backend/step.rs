//! Exact counts without any PMU: the VMM single-steps the vCPU and reports each retired instruction.
//!
//! Knows no KVM and no decoder. Single-stepping shows instructions, branches and taken branches, by ring. Any other event
//! (cycles, caches, the slots of fixed counter 3, what depends on transactions) counts nothing and is reported as unsupported.
//!
//! One rule covers the edges: an instruction counts on a counter that ran when it began and still runs when it has
//! retired. A WRMSR that starts, stops or moves a counter is thus counted by the other counters and not by that one; an
//! RDMSR reads a count without itself. This is what Intel's processors do with a WRMSR to GLOBAL_CTRL on either side of
//! a measured piece of code.

use std::time::Instant;

use arch_pmu::spec::Spec;

use super::monitor::Monitor;
pub use super::retired::{Retired, StepCounts, StepEvent};
use super::{Backend, HostError};

/// The backend `step`.
#[derive(Debug)]
pub struct StepBackend {
    counts: StepCounts,
    monitor: Monitor,
    epoch: Instant,
}

impl StepBackend {
    /// Creates the backend for the calling thread.
    pub fn new() -> Self {
        Self { counts: StepCounts::default(), monitor: Monitor::without_ring(), epoch: Instant::now() }
    }
}

impl Default for StepBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for StepBackend {
    type Event = StepEvent;

    fn open(&mut self, spec: Spec, period: u64) -> Result<StepEvent, HostError> {
        Ok(self.counts.open(spec, period))
    }

    fn release(&mut self, event: StepEvent) {
        self.counts.release(&event);
    }

    fn pause(&mut self, event: &mut StepEvent) -> Result<u64, HostError> {
        self.counts.set_running(event, false);
        self.read(event)
    }

    fn resume(&mut self, event: &mut StepEvent) -> Result<(), HostError> {
        self.counts.set_running(event, true);
        Ok(())
    }

    fn set_period(&mut self, event: &mut StepEvent, period: u64) -> Result<(), HostError> {
        self.counts.set_period(event, period);
        Ok(())
    }

    fn read(&mut self, event: &mut StepEvent) -> Result<u64, HostError> {
        Ok(self.counts.read(event))
    }

    fn sched_in(&mut self) -> bool {
        self.monitor.sched_in()
    }

    fn slices(&mut self) -> Option<(bool, bool)> {
        self.monitor.slices()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn stepper(&mut self) -> Option<&mut StepCounts> {
        Some(&mut self.counts)
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
        let mut step = StepBackend::new();
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
            assert!(!step.stepper().unwrap().retire(retired));
        }
        let counts: Vec<_> = events.iter_mut().map(|event| step.read(event).unwrap()).collect();
        assert_eq!(counts, [3, 1, 0, 2, 1, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!((step.stepper().unwrap().steps(), step.stepper().unwrap().unsupported()), (4, 6));
    }

    #[test]
    fn a_period_is_over_at_exactly_its_last_count_and_once() {
        let mut step = StepBackend::new();
        let mut event = step.open(selector(0xc0 | OS), 3).unwrap();
        let due: Vec<_> = (0..5).map(|_| step.stepper().unwrap().retire(PLAIN)).collect();
        assert_eq!(due, [false, false, true, false, false]);
        step.set_period(&mut event, 1).unwrap();
        assert!(step.stepper().unwrap().retire(PLAIN));
        // A period that is over already signals with the next count.
        step.set_period(&mut event, 0).unwrap();
        assert!(step.stepper().unwrap().retire(PLAIN));
        assert!(!step.stepper().unwrap().retire(PLAIN));
    }

    #[test]
    fn what_starts_or_moves_a_counter_is_not_counted_by_it() {
        let mut step = StepBackend::new();
        let mut running = step.open(selector(0xc0 | OS), 100).unwrap();
        step.stepper().unwrap().begin();
        let mut started = step.open(selector(0xc0 | OS), 100).unwrap();
        step.stepper().unwrap().retire(PLAIN);
        assert_eq!((step.read(&mut running), step.read(&mut started)), (Ok(1), Ok(0)));
        step.stepper().unwrap().retire(PLAIN);
        assert_eq!(step.read(&mut started), Ok(1));
        step.stepper().unwrap().begin();
        step.set_period(&mut running, 2).unwrap();
        step.stepper().unwrap().retire(PLAIN);
        assert_eq!((step.read(&mut running), step.read(&mut started)), (Ok(2), Ok(2)));
        // A write that faults moves nothing afterwards.
        step.stepper().unwrap().begin();
        step.set_period(&mut running, 2).unwrap();
        step.stepper().unwrap().abandon();
        assert!(!step.stepper().unwrap().retire(PLAIN));
        assert!(step.stepper().unwrap().retire(PLAIN));
    }

    #[test]
    fn steps_are_wanted_only_while_something_runs_and_slots_serve_again() {
        let mut step = StepBackend::new();
        assert!(!step.stepper().unwrap().wanted());
        let mut event = step.open(selector(0xc0 | OS), 9).unwrap();
        assert!(step.stepper().unwrap().wanted());
        step.stepper().unwrap().retire(PLAIN);
        assert_eq!(step.pause(&mut event), Ok(1));
        assert!(!step.stepper().unwrap().wanted());
        step.stepper().unwrap().retire(PLAIN);
        assert_eq!(step.read(&mut event), Ok(1), "a paused counter stands still");
        step.resume(&mut event).unwrap();
        step.release(event);
        assert!(!step.stepper().unwrap().wanted());
        let mut other = step.open(selector(0xc4 | OS), 9).unwrap();
        assert_eq!((step.counts.slots(), step.read(&mut other)), (1, Ok(0)));
    }
}
