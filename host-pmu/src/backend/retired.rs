//! Counts of retired instructions, without a host event behind them.

use arch_pmu::spec::{Selection, Source, Spec, Vendor};

/// An event that single steps can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Instructions,
    Branches,
    TakenBranches,
    /// An event that steps do not show.
    Unknown,
}

impl Event {
    pub(super) fn of(spec: Spec) -> Self {
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

/// A counter.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) event: Event,
    pub(super) spec: Spec,
    pub(super) running: bool,
    /// Started or moved by the current instruction.
    pub(super) fresh: bool,
    pub(super) count: u64,
    /// The count at which it signals.
    pub(super) signal_at: u64,
    pub(super) signalled: bool,
}

/// The backend `step`: its counts, and whether steps are needed.
#[derive(Debug, Default)]
pub struct StepCounts {
    pub(super) slots: Vec<Option<Slot>>,
    running: usize,
    pub(super) under_way: bool,
    steps: u64,
    pub(super) unsupported: u64,
    /// The thread's context switches at the last look.
    pub(super) seen: u64,
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
            let ring = if retired.ring3 { slot.spec.user() } else { slot.spec.kernel() };
            if slot.running && !slot.fresh && counts && ring {
                slot.count += 1;
                if slot.spec.samples() && !slot.signalled && slot.count >= slot.signal_at {
                    slot.signalled = true;
                    due = true;
                }
            }
        }
        self.abandon();
        due
    }

    /// Starts or stops a counter.
    pub(super) fn set_running(&mut self, at: usize, running: bool) {
        let Some(slot) = &mut self.slots[at] else { return };
        if slot.running != running {
            (slot.running, slot.fresh) = (running, running && self.under_way);
            self.running = if running { self.running + 1 } else { self.running - 1 };
        }
    }
}
