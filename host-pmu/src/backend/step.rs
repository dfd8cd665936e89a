//! Exact counts without any PMU: the VMM single-steps the vCPU and reports each retired instruction.
//!
//! Knows no KVM and no decoder. Single-stepping shows instructions, branches and taken branches, by ring. Any other event
//! (cycles, caches) counts nothing.
//!
//! One rule covers the edges: an instruction counts on a counter that ran when it began and still runs
//! when it has retired. So a WRMSR that starts, stops or moves a counter is not counted by that counter, and is counted
//! by the others; an RDMSR reads a count without itself. This is what Intel's processors do with a WRMSR to
//! GLOBAL_CTRL on either side of a measured piece of code.

use std::time::Instant;

use super::monitor::Monitor;
use super::{Backend, HostError};
use arch_pmu::spec::{Source, Spec};

/// Edge detect, invert, counter mask, IN_TX, IN_TXCP: a step does not show them.
const UNKNOWN_BITS: u64 = 1 << 18 | 1 << 23 | 0xff << 24 | 3 << 32;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Instructions,
    Branches,
    TakenBranches,
    /// An event that steps do not show.
    Unknown,
}

impl Event {
    fn of(spec: Spec) -> Self {
        match spec.0 {
            Source::Fixed { index: 0, .. } => Self::Instructions,
            Source::Selector(selector) if selector & UNKNOWN_BITS == 0 => match selector & 0xffff {
                0x00c0 => Self::Instructions,
                0x00c4 => Self::Branches,
                // BR_INST_RETIRED.NEAR_TAKEN.
                0x20c4 => Self::TakenBranches,
                _ => Self::Unknown,
            },
            Source::Fixed { .. } | Source::Selector(_) => Self::Unknown,
        }
    }
}

/// An instruction that retired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    /// It can change the control flow: jumps, calls, returns.
    pub branch: bool,
    /// It changed the control flow.
    pub taken: bool,
    /// It ran in ring 3.
    pub ring3: bool,
}

#[derive(Debug)]
struct Slot {
    event: Event,
    user: bool,
    kernel: bool,
    samples: bool,
    running: bool,
    /// Started or moved by the current instruction.
    fresh: bool,
    count: u64,
    /// The count at which it signals.
    signal_at: u64,
}

/// The counts, and whether steps are needed.
#[derive(Debug, Default)]
pub struct StepCounts {
    slots: Vec<Option<Slot>>,
    running: usize,
    under_way: bool,
    steps: u64,
    unsupported: u64,
}

impl StepCounts {
    /// Whether a counter runs; otherwise no steps are needed.
    #[must_use]
    pub const fn wanted(&self) -> bool {
        self.running > 0
    }

    /// Events opened so far that steps do not show; they count nothing.
    #[must_use]
    pub const fn unsupported(&self) -> u64 {
        self.unsupported
    }

    /// Instructions retired so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The guest exited in the middle of an instruction: changes until [`retire`](Self::retire) are its effects.
    pub fn begin(&mut self) {
        self.under_way = true;
    }

    /// The current instruction is not reported, or did not retire.
    pub fn abandon(&mut self) {
        self.under_way = false;
        self.slots.iter_mut().flatten().for_each(|slot| slot.fresh = false);
    }

    /// An instruction retired. Returns whether a counter reached its period with it.
    pub fn retire(&mut self, retired: Retired) -> bool {
        self.steps += 1;
        let mut due = false;
        for slot in self.slots.iter_mut().flatten() {
            let counts = match slot.event {
                Event::Instructions => true,
                Event::Branches => retired.branch,
                Event::TakenBranches => retired.taken,
                Event::Unknown => false,
            };
            let ring = if retired.ring3 { slot.user } else { slot.kernel };
            if slot.running && !slot.fresh && counts && ring {
                slot.count += 1;
                due |= slot.samples && slot.count == slot.signal_at;
            }
        }
        self.abandon();
        due
    }

    fn slot(&mut self, event: &StepEvent) -> Option<&mut Slot> {
        self.slots.get_mut(event.0)?.as_mut()
    }

    fn set_running(&mut self, event: &StepEvent, running: bool) {
        let fresh = self.under_way;
        let Some(slot) = self.slot(event) else { return };
        if slot.running == running {
            return;
        }
        slot.running = running;
        slot.fresh = running && fresh;
        if running {
            self.running += 1;
        } else {
            self.running -= 1;
        }
    }
}

/// A counter of [`StepBackend`].
#[derive(Debug)]
pub struct StepEvent(usize);

/// The backend `step`.
#[derive(Debug)]
pub struct StepBackend {
    counts: StepCounts,
    monitor: Monitor,
    epoch: Instant,
}

impl StepBackend {
    /// For the calling thread.
    #[must_use]
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
        let slot = Slot {
            event: Event::of(spec),
            user: spec.user(),
            kernel: spec.kernel(),
            samples: spec.samples(),
            running: false,
            fresh: false,
            count: 0,
            signal_at: period,
        };
        self.counts.unsupported += u64::from(slot.event == Event::Unknown);
        let slots = &mut self.counts.slots;
        let at = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[at] = Some(slot);
        let event = StepEvent(at);
        self.counts.set_running(&event, true);
        Ok(event)
    }

    fn release(&mut self, event: StepEvent) {
        self.counts.set_running(&event, false);
        self.counts.slots[event.0] = None;
    }

    fn pause(&mut self, event: &mut StepEvent) -> Result<u64, HostError> {
        self.counts.set_running(event, false);
        self.read(event)
    }

    fn resume(&mut self, event: &mut StepEvent, _spent: bool) -> Result<(), HostError> {
        self.counts.set_running(event, true);
        Ok(())
    }

    fn set_period(&mut self, event: &mut StepEvent, period: u64) -> Result<(), HostError> {
        let under_way = self.counts.under_way;
        if let Some(slot) = self.counts.slot(event) {
            slot.signal_at = slot.count.saturating_add(period);
            slot.fresh |= slot.running && under_way;
        }
        Ok(())
    }

    fn read(&mut self, event: &mut StepEvent) -> Result<u64, HostError> {
        Ok(self.counts.slot(event).map_or(0, |slot| slot.count))
    }

    fn sched_in(&mut self) -> bool {
        self.monitor.sched_in()
    }

    fn slept(&mut self) -> bool {
        self.monitor.slept()
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
    use super::*;

    const OS: u64 = 1 << 17;
    const USR: u64 = 1 << 16;
    const PLAIN: Retired = Retired { branch: false, taken: false, ring3: false };

    fn selector(bits: u64) -> Spec {
        Spec(Source::Selector(bits | 1 << 22))
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
        assert_eq!(counts, [3, 1, 0, 2, 1, 0, 0, 3, 0]);
        assert_eq!((step.stepper().unwrap().steps(), step.stepper().unwrap().unsupported()), (4, 3));
    }

    #[test]
    fn a_period_is_over_at_exactly_its_last_count_and_once() {
        let mut step = StepBackend::new();
        let mut event = step.open(selector(0xc0 | OS), 3).unwrap();
        let due: Vec<_> = (0..5).map(|_| step.stepper().unwrap().retire(PLAIN)).collect();
        assert_eq!(due, [false, false, true, false, false]);
        step.set_period(&mut event, 1).unwrap();
        assert!(step.stepper().unwrap().retire(PLAIN));
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
        step.resume(&mut event, false).unwrap();
        step.release(event);
        assert!(!step.stepper().unwrap().wanted());
        let mut other = step.open(selector(0xc4 | OS), 9).unwrap();
        assert_eq!((step.counts.slots.len(), step.read(&mut other)), (1, Ok(0)));
    }
}
