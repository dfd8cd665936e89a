//! The states of a host event behind a counter.
//!
//! Two things are known of an event: whether its counter is on, and whether the host lets the event count. They differ behind a
//! [gate](super::gate) and in a virtual pause, where counters go on and off without a call for each event.

/// The state of a host event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventState {
    /// The counter is on and the event enabled.
    Running,
    /// The counter is on; the event is disabled until the entry, at which the gate opens or those that leave were stopped.
    Entering,
    /// The counter is off and the event disabled.
    Parked,
    /// The counter is off; the event is enabled behind the shut gate, or goes on in a virtual pause.
    Leaving,
    /// The counter is on; the event is pinned and got no hardware counter. It counts no more until it is enabled again.
    Lost,
    /// The counter is off; the event had no hardware counter when it last was enabled.
    ParkedLost,
}

/// Events of the transition table: what can happen to a host event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// The host enabled it.
    Enabled,
    /// The host disabled it for a counter that is off.
    Disabled,
    /// Its counter went on without a call.
    On,
    /// Its counter went off without a call.
    Off,
    /// The host had no hardware counter for it, which is pinned.
    Failed,
}

impl EventState {
    /// Returns whether the counter is on.
    pub(super) const fn is_on(self) -> bool {
        matches!(self, Self::Running | Self::Entering | Self::Lost)
    }

    /// Returns whether the event signals, now or from the entry on that opens the gate.
    pub(super) const fn may_expire(self) -> bool {
        matches!(self, Self::Running | Self::Entering | Self::Leaving)
    }

    /// Returns whether the event has no hardware counter.
    pub(super) const fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::ParkedLost)
    }

    /// Returns the state after `event`; `None` where the bank never has this event in this state.
    pub(super) const fn next(self, event: Transition) -> Option<Self> {
        use EventState::{Entering, Leaving, Lost, Parked, ParkedLost, Running};
        Some(match (event, self) {
            (Transition::Enabled, Entering | Parked | Lost | ParkedLost) | (Transition::On, Leaving) => Running,
            (Transition::Disabled, Running | Leaving | Parked) | (Transition::Off, Entering) => Parked,
            (Transition::On, Parked) => Entering,
            (Transition::Off, Running) => Leaving,
            (Transition::Failed, Running | Entering | Lost) => Lost,
            // An event in error state is not disabled by IOC_DISABLE.
            (Transition::Disabled, Lost | ParkedLost)
            | (Transition::Off, Lost)
            | (Transition::Failed, Leaving | Parked | ParkedLost) => ParkedLost,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::EventState::{Entering, Leaving, Lost, Parked, ParkedLost, Running};
    use super::*;

    const EVENTS: [Transition; 5] =
        [Transition::Enabled, Transition::Disabled, Transition::On, Transition::Off, Transition::Failed];

    #[test]
    fn only_on_and_off_move_a_counter() {
        for state in [Running, Entering, Parked, Leaving, Lost, ParkedLost] {
            for (event, is_on) in EVENTS.into_iter().zip([true, false, true, false, state.is_on()]) {
                assert!(state.next(event).is_none_or(|next| next.is_on() == is_on), "{state:?} by {event:?}");
            }
        }
    }

    #[test]
    fn a_loss_is_forgotten_by_a_resume_only() {
        for state in [Lost, ParkedLost] {
            for event in EVENTS {
                let kept = state.next(event).is_none_or(EventState::is_lost);
                assert_eq!(kept, event != Transition::Enabled, "{state:?} by {event:?}");
            }
        }
    }
}
