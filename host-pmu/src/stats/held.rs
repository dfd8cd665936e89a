//! Host events held, over time.

/// Integral of the number of held events over time, ns × events.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldTime {
    events: u64,
    since: u64,
    event_ns: u64,
}

impl HeldTime {
    /// Starts with no events at `now`.
    #[must_use]
    pub const fn from(now: u64) -> Self {
        Self { events: 0, since: now, event_ns: 0 }
    }

    /// Returns held events × ns up to `now`.
    #[inline]
    #[must_use]
    pub const fn until(&self, now: u64) -> u64 {
        self.event_ns.saturating_add(self.events.saturating_mul(now.saturating_sub(self.since)))
    }

    /// Notes that the number of held events is `events` from `now` on.
    #[inline]
    pub const fn changes(&mut self, now: u64, events: u64) {
        *self = Self { events, since: now, event_ns: self.until(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_events_counts_as_long_as_it_lasts() {
        let mut held = HeldTime::from(100);
        assert_eq!(held.until(150), 0);
        held.changes(200, 2);
        held.changes(210, 1);
        assert_eq!(held.until(210), 20);
        assert_eq!(held.until(310), 120);
        held.changes(310, 0);
        assert_eq!(held.until(9999), 120);
    }
}
