//! Computes how often an event may signal beside the others of its thread.

/// One expiry in the host's shortest period.
pub(super) const ONE: u64 = 1 << 10;
/// Share of all events together.
pub(super) const MOST: u64 = 2 * ONE;
/// Share of an event at any rate: its signal is late by 32 of the host's shortest periods at most.
pub(super) const LEAST: u64 = ONE / 32;

/// The share of its thread's expiries that is left to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// The host's shortest period; 1: it needs no bound.
    shortest: u64,
    /// The shortest period that the other events leave to it.
    least: u64,
}

impl Room {
    /// Returns the room of an event beside which others do not matter.
    pub(super) const fn unbounded(least: u64) -> Self {
        Self { shortest: 1, least }
    }

    /// Returns a period that has room beside any others.
    pub(super) const fn longest(shortest: u64) -> u64 {
        shortest.saturating_mul(ONE / LEAST)
    }

    /// Returns the room beside events that expire `others` times in 1024 of the shortest period. Half of the rest is reserved for later
    /// events.
    pub(super) fn beside(others: u64, shortest: u64) -> Self {
        let left = (MOST.saturating_sub(others) / 2).clamp(LEAST, ONE);
        Self { shortest, least: shortest.saturating_mul(ONE) / left }
    }

    /// Returns the period of an event that is to signal after `wanted` counts.
    pub(super) fn period(self, wanted: u64) -> u64 {
        wanted.max(self.least)
    }

    /// Returns whether an event may go on with `period`.
    pub(super) const fn has(self, period: u64) -> bool {
        period >= self.least
    }

    /// Expiries of an event with `period` in 1024 of the shortest one.
    pub(super) const fn share(self, period: u64) -> u64 {
        if self.shortest == 1 || period == 0 { 0 } else { self.shortest.saturating_mul(ONE).div_ceil(period) }
    }
}
