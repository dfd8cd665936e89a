//! A host event, with the bank's knowledge of it.

use arch_pmu::spec::{CounterId, Spec};

/// What the host does with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtHost {
    /// It lets the event count; behind a gate, while that is open.
    Enabled,
    /// It does not.
    Disabled,
    /// The event is pinned and got no hardware counter. It counts no more until it is enabled again.
    Lost,
}

/// A host event.
#[derive(Debug)]
pub(super) struct HeldEvent<E> {
    pub(super) event: E,
    /// The backend's number of it.
    pub(super) id: u64,
    pub(super) spec: Spec,
    /// The counter that it serves, or served last.
    pub(super) counter: CounterId,
    /// Its counter is on. A counter goes on and off without a call for its event behind a gate and in a virtual pause.
    pub(super) on: bool,
    pub(super) at_host: AtHost,
    /// The part of its count that was handed over or subtracted.
    pub(super) taken: u64,
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
    /// Its counts until it was [lost](AtHost::Lost) are not the counter's, which was off, or was written by the guest since.
    pub(super) forfeited: bool,
}

impl<E> HeldEvent<E> {
    /// Returns whether it has no hardware counter.
    pub(super) fn is_lost(&self) -> bool {
        self.at_host == AtHost::Lost
    }

    /// Returns whether its counter is on, and counts by it.
    pub(super) fn counts(&self) -> bool {
        self.on && !self.is_lost()
    }

    /// Returns whether its counter is off, and it goes on behind the shut gate or in a virtual pause.
    pub(super) fn leaves(&self) -> bool {
        !self.on && self.at_host == AtHost::Enabled
    }

    /// Notes that the host disabled it at this count, in a pause.
    pub(super) fn stopped(&mut self, total: u64) {
        (self.at_host, self.fired_off) = (AtHost::Disabled, 0);
        self.gather(total);
    }

    /// Forgets the aim of an event that signalled while its counter was off, maybe a little early, and began its period
    /// anew: the next start sets a period in any case.
    pub(super) const fn forget_aim(&mut self) {
        (self.aim, self.fires) = (0, 0);
    }

    /// Notes that the event was aimed: it got `period`, or `least`, if that is longer.
    pub(super) fn aimed(&mut self, period: u64, least: u64) {
        self.period = period.max(least);
        self.fires = self.aim.saturating_add(self.period - period);
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

    /// Returns the counts since the last hand-over, given that the event now reads `total`; of a counter that was off they are
    /// subtracted.
    pub(super) fn gather(&mut self, total: u64) -> u64 {
        let gathered = total.saturating_sub(self.taken);
        self.taken += gathered;
        gathered
    }
}
