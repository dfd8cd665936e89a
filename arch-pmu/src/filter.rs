//! Limits the events that a guest may count: the vPMU's counterpart of KVM_SET_PMU_EVENT_FILTER.

use thiserror::Error;

/// Meaning of a list of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Only these count.
    Allow,
    /// All but these count.
    Deny,
}

/// An event by its select and unit mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Event select, 12 bits.
    pub event: u16,
    /// Unit mask.
    pub umask: u8,
}

/// A list of events, and a bitmap of fixed counters. The default allows everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFilter {
    action: Action,
    /// Sorted.
    events: Vec<Event>,
    fixed: u32,
}

/// More events than a filter may list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("an event filter lists {0} events; at most {most} are possible", most = EventFilter::MOST_EVENTS)]
pub struct TooManyEvents(usize);

impl Default for EventFilter {
    fn default() -> Self {
        Self { action: Action::Deny, events: Vec::new(), fixed: 0 }
    }
}

impl EventFilter {
    /// The largest list, as in KVM.
    pub const MOST_EVENTS: usize = 300;

    /// Creates a filter that allows, or denies, `events` and the fixed counters with their bit set in `fixed`.
    pub fn new(action: Action, mut events: Vec<Event>, fixed: u32) -> Result<Self, TooManyEvents> {
        if events.len() > Self::MOST_EVENTS {
            return Err(TooManyEvents(events.len()));
        }
        events.sort_unstable();
        Ok(Self { action, events, fixed })
    }

    /// Returns whether a general-purpose counter may count `event`.
    #[inline]
    pub(crate) fn allows(&self, event: Event) -> bool {
        self.events.binary_search(&event).is_ok() == (self.action == Action::Allow)
    }

    /// Returns whether fixed counter `n` may count: by its bit, whatever event it counts (5eb7fcbdea63).
    #[inline]
    pub(crate) fn allows_fixed(&self, n: usize) -> bool {
        (self.fixed & 1 << n != 0) == (self.action == Action::Allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLES: Event = Event { event: 0x3c, umask: 0 };
    const REFERENCES: Event = Event { event: 0x2e, umask: 0x4f };

    #[test]
    fn a_list_allows_or_denies_by_event_and_umask() {
        let listed = vec![REFERENCES, CYCLES];
        let allow = EventFilter::new(Action::Allow, listed.clone(), 0b10).unwrap();
        let deny = EventFilter::new(Action::Deny, listed, 0b10).unwrap();
        for (event, is_listed) in [(CYCLES, true), (REFERENCES, true), (Event { umask: 1, ..CYCLES }, false)] {
            assert_eq!((allow.allows(event), deny.allows(event)), (is_listed, !is_listed), "{event:?}");
            assert!(EventFilter::default().allows(event));
        }
        for n in 0..3 {
            assert_eq!((allow.allows_fixed(n), deny.allows_fixed(n)), (n == 1, n != 1));
        }
    }

    #[test]
    fn a_list_is_bounded() {
        let error = EventFilter::new(Action::Deny, vec![CYCLES; 301], 0).unwrap_err();
        assert!(error.to_string().contains("301 events; at most 300"));
        assert!(EventFilter::new(Action::Deny, vec![CYCLES; 300], 0).is_ok());
    }
}
