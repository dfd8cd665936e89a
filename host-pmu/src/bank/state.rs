//! The states of a host event behind a counter.
//!
//! Two things are known of an event: whether its counter is on, and whether the host lets the event count. They differ behind a
//! [gate](super::gate), where counters go on and off without a call for each event, and after an overflow of an event that
//! stops itself.

/// The state of a host event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventState {
    /// The counter is on and the event enabled.
    Running,
    /// The counter is on; the event stopped itself at an overflow.
    Spent,
    /// The counter is on; the event is disabled until the entry, at which the gate opens or those that leave were stopped.
    Entering,
    /// The counter is on; the event stopped itself and is disabled until the entry that opens the gate.
    EnteringSpent,
    /// The counter is on; overflow records were lost, and the event may have stopped itself. It is not used again.
    Doubtful,
    /// The counter is off and the event disabled.
    Parked,
    /// The counter is off; the event stopped itself at an overflow and was not resumed since.
    ParkedSpent,
    /// The counter is off; the event is enabled behind the shut gate.
    Leaving,
    /// The counter is off; the event may have stopped itself, as in [`EventState::Doubtful`].
    ParkedDoubtful,
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
    /// Its counter went on behind the shut gate.
    On,
    /// Its counter went off: behind the shut gate, or after the event stopped itself.
    Off,
    /// A record says that it stopped itself at an overflow.
    Stopped,
    /// Records were lost; one of them may have said so.
    RecordsLost,
    /// The host had no hardware counter for it, which is pinned.
    Failed,
}

impl EventState {
    /// Returns whether the counter is on.
    pub(super) const fn is_on(self) -> bool {
        matches!(self, Self::Running | Self::Spent | Self::Entering | Self::EnteringSpent | Self::Doubtful | Self::Lost)
    }

    /// Returns whether the event stopped itself, so that a resume must renew its limit of one overflow.
    pub(super) const fn is_spent(self) -> bool {
        matches!(self, Self::Spent | Self::EnteringSpent | Self::ParkedSpent)
    }

    /// Returns whether the event signals, now or from the entry on that opens the gate.
    pub(super) const fn may_expire(self) -> bool {
        matches!(self, Self::Running | Self::Entering | Self::Doubtful | Self::Leaving | Self::ParkedDoubtful)
    }

    /// Returns whether it is unknown if the event stopped itself.
    pub(super) const fn is_doubtful(self) -> bool {
        matches!(self, Self::Doubtful | Self::ParkedDoubtful)
    }

    /// Returns whether the event has no hardware counter.
    pub(super) const fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::ParkedLost)
    }

    /// Returns the state after `event`; `None` where the bank never has this event in this state.
    pub(super) const fn next(self, event: Transition) -> Option<Self> {
        use EventState::{
            Doubtful, Entering, EnteringSpent, Leaving, Lost, Parked, ParkedDoubtful, ParkedLost, ParkedSpent, Running,
            Spent,
        };
        Some(match event {
            Transition::Enabled => match self {
                Spent | Entering | EnteringSpent | Parked | ParkedSpent | Lost | ParkedLost => Running,
                // Doubt ends with the event.
                Doubtful => Doubtful,
                Running | Leaving | ParkedDoubtful => return None,
            },
            Transition::Disabled => match self {
                Running | Leaving | Parked => Parked,
                Doubtful | ParkedDoubtful => ParkedDoubtful,
                // An event in error state is not disabled by IOC_DISABLE.
                Lost | ParkedLost => ParkedLost,
                Spent | Entering | EnteringSpent | ParkedSpent => return None,
            },
            Transition::Off => match self {
                Running => Leaving,
                Entering => Parked,
                Spent | EnteringSpent | ParkedSpent => ParkedSpent,
                Doubtful => ParkedDoubtful,
                Lost => ParkedLost,
                Parked | Leaving | ParkedDoubtful | ParkedLost => return None,
            },
            Transition::On => match self {
                Leaving => Running,
                Parked => Entering,
                ParkedSpent => EnteringSpent,
                Running | Spent | Entering | EnteringSpent | Doubtful | ParkedDoubtful | Lost | ParkedLost => {
                    return None;
                }
            },
            Transition::Stopped => match self {
                Running | Spent => Spent,
                Entering | EnteringSpent => EnteringSpent,
                Leaving | Parked | ParkedSpent => ParkedSpent,
                Doubtful | ParkedDoubtful | Lost | ParkedLost => self,
            },
            Transition::RecordsLost => match self {
                Running | Entering | Doubtful => Doubtful,
                Leaving | Parked | ParkedDoubtful => ParkedDoubtful,
                // An event that is known to be stopped, or in error state, has nothing left to report.
                Spent | EnteringSpent | ParkedSpent | Lost | ParkedLost => self,
            },
            Transition::Failed => match self {
                Running | Entering | Doubtful | Lost => Lost,
                Leaving | Parked | ParkedDoubtful | ParkedLost => ParkedLost,
                // An event that stopped itself is disabled, and a disabled event is not in error state.
                Spent | EnteringSpent | ParkedSpent => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::EventState::{
        Doubtful, Entering, EnteringSpent, Leaving, Lost, Parked, ParkedDoubtful, ParkedLost, ParkedSpent, Running,
        Spent,
    };
    use super::*;

    const EVENTS: [Transition; 7] = [
        Transition::Enabled,
        Transition::Disabled,
        Transition::On,
        Transition::Off,
        Transition::Stopped,
        Transition::RecordsLost,
        Transition::Failed,
    ];

    /// Each state and its successor by each of [`EVENTS`]; `None`: the bank has no such event in that state.
    #[rustfmt::skip]
    const TABLE: [(EventState, [Option<EventState>; 7]); 11] = [
        // Enabled, Disabled, On, Off, Stopped, RecordsLost, Failed
        (Running, [None, Some(Parked), None, Some(Leaving), Some(Spent), Some(Doubtful), Some(Lost)]),
        (Spent, [Some(Running), None, None, Some(ParkedSpent), Some(Spent), Some(Spent), None]),
        (Entering, [Some(Running), None, None, Some(Parked), Some(EnteringSpent), Some(Doubtful), Some(Lost)]),
        (EnteringSpent, [Some(Running), None, None, Some(ParkedSpent), Some(EnteringSpent), Some(EnteringSpent), None]),
        (Doubtful, [Some(Doubtful), Some(ParkedDoubtful), None, Some(ParkedDoubtful), Some(Doubtful), Some(Doubtful), Some(Lost)]),
        (Parked, [Some(Running), Some(Parked), Some(Entering), None, Some(ParkedSpent), Some(ParkedDoubtful), Some(ParkedLost)]),
        (ParkedSpent, [Some(Running), None, Some(EnteringSpent), Some(ParkedSpent), Some(ParkedSpent), Some(ParkedSpent), None]),
        (Leaving, [None, Some(Parked), Some(Running), None, Some(ParkedSpent), Some(ParkedDoubtful), Some(ParkedLost)]),
        (ParkedDoubtful, [None, Some(ParkedDoubtful), None, None, Some(ParkedDoubtful), Some(ParkedDoubtful), Some(ParkedLost)]),
        (Lost, [Some(Running), Some(ParkedLost), None, Some(ParkedLost), Some(Lost), Some(Lost), Some(Lost)]),
        (ParkedLost, [Some(Running), Some(ParkedLost), None, None, Some(ParkedLost), Some(ParkedLost), Some(ParkedLost)]),
    ];

    #[test]
    fn every_state_has_one_successor_by_every_event() {
        for (state, successors) in TABLE {
            for (event, successor) in EVENTS.into_iter().zip(successors) {
                assert_eq!(state.next(event), successor, "{state:?} by {event:?}");
            }
        }
    }

    #[test]
    fn only_on_and_off_move_a_counter() {
        for (state, _) in TABLE {
            for (event, is_on) in [
                (Transition::On, true),
                (Transition::Enabled, true),
                (Transition::Off, false),
                (Transition::Disabled, false),
                (Transition::Stopped, state.is_on()),
                (Transition::RecordsLost, state.is_on()),
                (Transition::Failed, state.is_on()),
            ] {
                assert!(state.next(event).is_none_or(|next| next.is_on() == is_on), "{state:?} by {event:?}");
            }
        }
    }

    #[test]
    fn a_record_comes_in_any_state() {
        for (state, _) in TABLE {
            assert!(
                state.next(Transition::Stopped).is_some() && state.next(Transition::RecordsLost).is_some(),
                "{state:?}"
            );
        }
    }

    #[test]
    fn doubt_and_a_stop_are_forgotten_by_a_resume_only() {
        for (state, _) in TABLE {
            for event in EVENTS {
                let Some(next) = state.next(event) else { continue };
                assert!(!state.is_doubtful() || next.is_doubtful() || next.is_lost(), "{state:?} by {event:?}");
                assert!(!state.is_lost() || next.is_lost() || event == Transition::Enabled, "{state:?} by {event:?}");
                assert!(!state.is_spent() || next.is_spent() || event == Transition::Enabled, "{state:?} by {event:?}");
            }
        }
    }
}
