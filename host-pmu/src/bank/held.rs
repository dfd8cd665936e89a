//! A host event, with the bank's knowledge of it.

use arch_pmu::spec::{CounterId, Spec};

use super::state::{EventState, Transition};

/// A host event.
#[derive(Debug)]
pub(super) struct HeldEvent<E> {
    pub(super) event: E,
    /// The backend's number of it.
    pub(super) id: u64,
    pub(super) spec: Spec,
    /// The counter that it serves, or served last.
    pub(super) counter: CounterId,
    pub(super) state: EventState,
    /// The part of its count that was handed over.
    taken: u64,
    /// The count at which its counter overflows, by the last period that was set; 0 = unknown.
    pub(super) aim: u64,
    /// Its count at its next signal at the latest, which may come before its counter's overflow; 0 = unknown. Kept up for virtual
    /// pauses alone.
    pub(super) fires: u64,
    /// The last period that was set, which is the host's, if need be longer than the counter's.
    pub(super) period: u64,
    /// Number of its signals while its counter was off by a virtual pause.
    pub(super) fired_off: u32,
    /// Its count in the record of its last overflow, until that is handed over.
    pub(super) recorded: Option<u64>,
    /// Its count when the gate was shut, if there is one.
    pub(super) shut_at: u64,
    /// Slices in which its counter was off and not in use.
    pub(super) idle_slices: u32,
    /// Its place in the order in which events were parked.
    pub(super) parked_as: u64,
    /// Its counts until it was [lost](EventState::Lost) are not the counter's, which was off, or was written by the guest since.
    pub(super) forfeited: bool,
}

impl<E> HeldEvent<E> {
    /// Describes an event that was just opened and counts, to signal after `period`, and not before `least`.
    pub(super) fn opened(event: E, id: u64, spec: Spec, counter: CounterId, period: u64, least: u64) -> Self {
        let mut held = Self {
            event,
            id,
            spec,
            counter,
            state: EventState::Running,
            taken: 0,
            aim: 0,
            fires: 0,
            period: 0,
            fired_off: 0,
            recorded: None,
            shut_at: 0,
            idle_slices: 0,
            parked_as: 0,
            forfeited: false,
        };
        held.set_aim(period, least);
        held
    }

    /// Moves the event to its next state.
    pub(super) fn note(&mut self, event: Transition) {
        let next = self.state.next(event);
        debug_assert!(next.is_some(), "{event:?} in state {:?}", self.state);
        self.state = next.unwrap_or(self.state);
    }

    /// Forgets the aim of an event that signalled while its counter was off, maybe a little early, and began its period
    /// anew: the next start sets a period in any case.
    pub(super) const fn forget_aim(&mut self) {
        (self.aim, self.fires) = (0, 0);
    }

    /// Subtracts its counts up to `total`, because its counter was off.
    pub(super) fn leave_out(&mut self, total: u64) {
        self.taken = self.taken.max(total);
    }

    /// Notes that it signals after `period` more counts, where its counter overflows, or after `least`, if that is later.
    pub(super) fn set_aim(&mut self, period: u64, least: u64) {
        self.aim = self.aim_after(period);
        self.aimed(period, least);
    }

    /// Notes that the event was aimed: it got `period`, or `least`, if that is longer.
    pub(super) fn aimed(&mut self, period: u64, least: u64) {
        self.period = period.max(least);
        self.fires = self.aim.saturating_add(self.period - period);
    }

    /// Notes that it signalled at `count`, and begins its period anew. The host may have been late: the next signal
    /// comes no later than this.
    pub(super) const fn fired(&mut self, count: u64) {
        self.fires = count.saturating_add(self.period);
    }

    /// Returns whether it has signalled if its count is `count`, and begins its period anew as often as it did.
    pub(super) const fn signalled_by(&mut self, count: u64) -> bool {
        if count < self.fires && count < self.aim {
            return false;
        }
        if self.fires > 0 && self.fires <= count && self.period > 0 {
            let passed = (count - self.fires) / self.period + 1;
            self.fires = self.fires.saturating_add(passed.saturating_mul(self.period));
        }
        true
    }

    /// Returns the counts until it signals; `None` if that is unknown, or after its counter's overflow.
    pub(super) fn left(&self) -> Option<u64> {
        (self.taken < self.fires && self.fires <= self.aim).then(|| self.fires - self.taken)
    }

    /// Returns the part of its count that was handed over or subtracted.
    pub(super) const fn handed_over(&self) -> u64 {
        self.taken
    }

    /// Returns the counts by which its signal will be early.
    pub(super) const fn early_by(&self) -> u64 {
        self.aim - self.fires
    }

    /// Returns the counts since the last hand-over, given that the event now reads `total`.
    pub(super) fn gather(&mut self, total: u64) -> u64 {
        let gathered = total.saturating_sub(self.taken);
        self.taken = self.taken.max(total);
        gathered
    }

    /// Returns the count at which the counter overflows after `period` more counts.
    pub(super) const fn aim_after(&self, period: u64) -> u64 {
        self.taken.saturating_add(period)
    }
}
