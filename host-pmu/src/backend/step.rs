//! Exact counts without any PMU: the VMM single-steps the vCPU and reports each retired instruction.
//!
//! Knows no KVM and no decoder. Single-stepping shows instructions, branches and taken branches, by ring. Any other event
//! (cycles, caches, the slots of fixed counter 3, what depends on transactions) counts nothing and is reported as unsupported.
//!
//! One rule covers the edges: an instruction counts on a counter that ran when it began and still runs when it has
//! retired. A WRMSR that starts, stops or moves a counter is thus counted by the other counters and not by that one; an
//! RDMSR reads a count without itself. This is what Intel's processors do with a WRMSR to GLOBAL_CTRL on either side of
//! a measured piece of code.

use arch_pmu::spec::{Source, Spec, Vendor};

use super::model::{self, Host, ModelBackend, Op};
use super::{Facts, HostError, Overflow};
use crate::sys;

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

/// A function that says whether an event counts an instruction, apart from its ring.
type Predicate = fn(Retired) -> bool;

/// Returns the event that steps show for `spec`. They do not show edge detect, invert, counter mask, IN_TX and IN_TXCP.
fn shown(spec: Spec) -> Option<Predicate> {
    let selection = match spec.0 {
        Source::Fixed { index, .. } => return if index == 0 { Some(|_| true) } else { None },
        Source::Selector(selection) => selection,
    };
    if selection.edge() || selection.invert() || selection.cmask() != 0 || spec.is_transactional() {
        return None;
    }
    match (selection.vendor(), selection.select(), selection.umask()) {
        (_, 0xc0, 0) => Some(|_| true),
        (Vendor::Intel, 0xc4, 0) | (Vendor::Amd, 0xc2, 0) => Some(|retired| retired.branch),
        // BR_INST_RETIRED.NEAR_TAKEN; ExRetBrnTkn.
        (Vendor::Intel, 0xc4, 0x20) | (Vendor::Amd, 0xc4, 0) => Some(|retired| retired.taken),
        _ => None,
    }
}

/// The count of an event.
#[derive(Debug)]
pub struct Count {
    shown: Option<Predicate>,
    spec: Spec,
    /// Started or moved by the current instruction.
    fresh: bool,
    total: u64,
    /// The count at which it signals; `None` once it did.
    signal_at: Option<u64>,
}

/// A thread whose guest is single-stepped.
#[derive(Debug, Default)]
pub struct Steps {
    under_way: bool,
    /// Instructions retired so far.
    pub retired: u64,
    /// Events opened so far that steps do not show; they count nothing.
    pub unsupported: u64,
    /// The thread's context switches at the last look.
    seen: u64,
}

type Events = model::Events<Count>;

/// The backend `step`: its counts, and whether steps are needed.
pub type StepCounts = ModelBackend<Steps>;

impl StepCounts {
    /// Creates the backend of a thread.
    pub fn of_steps() -> Self {
        Self::new(Steps::default(), Facts::default(), None)
    }

    /// Returns whether a counter runs; otherwise no steps are needed.
    pub fn wanted(&self) -> bool {
        self.events.running > 0
    }

    /// Notes that the guest exited in the middle of an instruction: changes until [`retire`](Self::retire) are its effects.
    pub fn begin(&mut self) {
        self.host.under_way = true;
    }

    /// Drops the current instruction, which is not reported or did not retire.
    pub fn abandon(&mut self) {
        self.host.under_way = false;
        self.events.table.iter_mut().for_each(|event| event.count.fresh = false);
    }

    /// Counts an instruction that retired. Returns whether a counter reached its period with it.
    pub fn retire(&mut self, retired: Retired) -> bool {
        self.host.retired += 1;
        let mut due = false;
        for event in self.events.table.iter_mut().filter(|event| event.running) {
            let count = &mut event.count;
            let ring = if retired.ring3 { count.spec.user() } else { count.spec.kernel() };
            if ring && !count.fresh && count.shown.is_some_and(|counts| counts(retired)) {
                count.total += 1;
                due |= count.spec.samples() && count.signal_at.take_if(|at| count.total >= *at).is_some();
            }
        }
        self.abandon();
        due
    }
}

impl Host for Steps {
    type Count = Count;

    fn pay(&mut self, _: Op, _: &mut Events) -> Result<(), HostError> {
        Ok(())
    }

    fn open(&mut self, spec: Spec, period: u64, _: &mut Events) -> Count {
        let shown = shown(spec);
        self.unsupported += u64::from(shown.is_none());
        Count { shown, spec, fresh: false, total: 0, signal_at: Some(period) }
    }

    fn start(&mut self, count: &mut Count) {
        count.fresh = self.under_way;
    }

    fn set_period(&mut self, at: usize, period: u64, events: &mut Events) -> Result<(), HostError> {
        let count = &mut events.table[at].count;
        count.signal_at = Some(count.total.saturating_add(period));
        // The start of one that is paused decides about it anew.
        count.fresh |= self.under_way;
        Ok(())
    }

    fn count(&mut self, count: &mut Count) -> u64 {
        count.total
    }

    fn overflowed(&mut self, _: &mut dyn FnMut(Overflow)) -> bool {
        false
    }

    fn sched_in(&mut self) -> bool {
        let switches = sys::switches_and_sleeps().0;
        std::mem::replace(&mut self.seen, switches) != switches
    }

    fn now_ns(&self) -> u64 {
        sys::monotonic_ns()
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::super::Backend as _;
    use super::*;

    const OS: u64 = 1 << 17;
    const USR: u64 = 1 << 16;
    const PLAIN: Retired = Retired { branch: false, taken: false, ring3: false };

    fn selector(bits: u64) -> Spec {
        PerfEvtSel::from_bits(bits | 1 << 22).spec()
    }

    #[test]
    fn each_event_counts_its_instructions_in_its_rings() {
        let mut step = StepCounts::of_steps();
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
        assert_eq!((step.host.retired, step.host.unsupported), (4, 6));
    }

    #[test]
    fn a_period_is_over_at_exactly_its_last_count_and_once() {
        let mut step = StepCounts::of_steps();
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
        let mut step = StepCounts::of_steps();
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
    fn steps_are_wanted_only_while_something_runs() {
        let mut step = StepCounts::of_steps();
        assert!(!step.wanted());
        let mut event = step.open(selector(0xc0 | OS), 9).unwrap();
        assert!(step.wanted() && !step.retire(PLAIN));
        assert_eq!(step.pause(&mut event), Ok(1));
        assert!(!step.wanted() && !step.retire(PLAIN));
        assert_eq!(step.read(&mut event), Ok(1), "a paused counter stands still");
    }
}
