//! Counts of retired instructions, without a host event behind them.

use arch_pmu::spec::{Selection, Source, Spec, Vendor};

/// An event that single steps can count.
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
            Source::Selector(selection) if Self::shows(selection) => {
                match (selection.vendor(), selection.select(), selection.umask()) {
                    (_, 0xc0, 0) => Self::Instructions,
                    (Vendor::Intel, 0xc4, 0) | (Vendor::Amd, 0xc2, 0) => Self::Branches,
                    // BR_INST_RETIRED.NEAR_TAKEN; ExRetBrnTkn.
                    (Vendor::Intel, 0xc4, 0x20) | (Vendor::Amd, 0xc4, 0) => Self::TakenBranches,
                    _ => Self::Unknown,
                }
            }
            Source::Fixed { .. } | Source::Selector(_) => Self::Unknown,
        }
    }

    /// Returns whether steps show this selection: they do not show edge detect, invert, counter mask, IN_TX and IN_TXCP.
    const fn shows(selection: Selection) -> bool {
        !selection.edge() && !selection.invert() && selection.cmask() == 0 && !selection.in_tx() && !selection.in_txcp()
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
    signalled: bool,
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
    /// Returns whether a counter runs; otherwise no steps are needed.
    pub const fn wanted(&self) -> bool {
        self.running > 0
    }

    /// Returns the number of events opened so far that steps do not show; they count nothing.
    pub const fn unsupported(&self) -> u64 {
        self.unsupported
    }

    /// Instructions retired so far.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Notes that the guest exited in the middle of an instruction: changes until [`retire`](Self::retire) are its effects.
    pub fn begin(&mut self) {
        self.under_way = true;
    }

    /// Drops the current instruction, which is not reported or did not retire.
    pub fn abandon(&mut self) {
        self.under_way = false;
        self.slots.iter_mut().flatten().for_each(|slot| slot.fresh = false);
    }

    /// Counts an instruction that retired. Returns whether a counter reached its period with it.
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
                if slot.samples && !slot.signalled && slot.count >= slot.signal_at {
                    slot.signalled = true;
                    due = true;
                }
            }
        }
        self.abandon();
        due
    }

    /// Opens a counter for `spec` that runs from now on.
    pub(super) fn open(&mut self, spec: Spec, period: u64) -> StepEvent {
        let slot = Slot {
            event: Event::of(spec),
            user: spec.user(),
            kernel: spec.kernel(),
            samples: spec.samples(),
            running: false,
            fresh: false,
            count: 0,
            signal_at: period,
            signalled: false,
        };
        self.unsupported += u64::from(slot.event == Event::Unknown);
        let at = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(slot);
        let event = StepEvent(at);
        self.set_running(&event, true);
        event
    }

    /// Stops a counter and frees its slot.
    pub(super) fn release(&mut self, event: &StepEvent) {
        self.set_running(event, false);
        self.slots[event.0] = None;
    }

    /// Makes a counter signal after `period` more counts.
    pub(super) fn set_period(&mut self, event: &StepEvent, period: u64) {
        let under_way = self.under_way;
        if let Some(slot) = self.slot(event) {
            slot.signal_at = slot.count.saturating_add(period);
            slot.signalled = false;
            slot.fresh |= slot.running && under_way;
        }
    }

    /// Returns the counter's count.
    pub(super) fn read(&mut self, event: &StepEvent) -> u64 {
        self.slot(event).map_or(0, |slot| slot.count)
    }

    /// Slots ever in use at once.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    fn slot(&mut self, event: &StepEvent) -> Option<&mut Slot> {
        self.slots.get_mut(event.0)?.as_mut()
    }

    /// Starts or stops a counter.
    pub(super) fn set_running(&mut self, event: &StepEvent, running: bool) {
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

/// A counter of the backend `step`.
#[derive(Debug)]
pub struct StepEvent(usize);
