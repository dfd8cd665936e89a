//! The host side of the counters, as the architectural PMU sees it.

use crate::spec::{CounterId, CounterSet, Spec};

/// Time at which a counter is reprogrammed: [paused](HostCounters::pause), then [started](HostCounters::start) or
/// [stopped](HostCounters::stop) as the registers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reprogram {
    /// At the guest's access.
    Now,
    /// Before the next guest entry.
    AtEntry,
}

/// State of a running counter after its overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterOverflow {
    /// It is reprogrammed before the next guest entry.
    Reprogram,
    /// It goes on, and its period is set anew, to its next overflow.
    Aim,
    /// It goes on as it is.
    Leave,
}

/// The counters behind an overflow signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signalled {
    /// Counters that may have overflowed.
    pub counters: CounterSet,
    /// Each of them that has not overflowed was signalled early, and its period is set anew. Otherwise that is done only
    /// if none of them overflowed.
    pub certain: bool,
}

impl Signalled {
    /// Any running counter.
    pub const ANY: Self = Self { counters: CounterSet::ALL, certain: false };
}

/// The host side of one vCPU's counters.
///
/// Counts are in guest units and are handed over once: a count returned by [`take`](Self::take) or
/// [`pause`](Self::pause) is not returned again. Nothing here knows the width of a counter.
///
/// The PMU reports changes and overflows; the host side answers when the counter is reprogrammed.
pub trait HostCounters {
    /// Answers when to reprogram a counter after a register write changed what it counts, or whether it counts.
    fn changed(&mut self, counter: CounterId) -> Reprogram;

    /// Answers what to do with a running counter that overflowed. `near`: its value is in the upper half of its range
    /// again, so that its next overflow may come before the guest starts it again.
    fn overflowed(&mut self, counter: CounterId, near: bool) -> AfterOverflow;

    /// Returns the counters behind the host's overflow signals since the last call.
    fn signalled(&mut self) -> Signalled {
        Signalled::ANY
    }

    /// Hands over the counts since the last hand-over; the counter goes on.
    fn take(&mut self, counter: CounterId) -> u64;

    /// Notes that these counters, and no others, are reprogrammed next.
    fn changing(&mut self, _counters: CounterSet) {}

    /// Stops the counter and hands over the counts since the last hand-over.
    fn pause(&mut self, counter: CounterId) -> u64;

    /// Makes a paused counter count `spec` and signal after `period` counts.
    fn start(&mut self, counter: CounterId, spec: Spec, period: u64);

    /// Stops a paused counter, which is off by its own enable, or (`own_enable`) by a global one alone.
    fn stop(&mut self, _counter: CounterId, _own_enable: bool) {}

    /// Sets the period of a running counter whose value was moved: it signals after `period` more counts.
    fn set_period(&mut self, counter: CounterId, period: u64);

    /// Notes a WRMSR to the counter, its selector, or its nibble of FIXED_CTR_CTRL: the counter is in use.
    fn touch(&mut self, _counter: CounterId) {}

    /// Returns the counters for which it keeps nothing: to pause or stop one of them would do nothing.
    fn keeps_nothing_for(&self) -> CounterSet {
        CounterSet::EMPTY
    }

    /// Returns the counters to reprogram before the guest entry that is about to happen, beside those
    /// [`changed`](Self::changed) deferred.
    fn due(&mut self) -> CounterSet {
        CounterSet::EMPTY
    }

    /// Does the host side's work before the guest is entered; `enabled` are the counters with their own enable on.
    /// Called once per entry.
    fn on_entry(&mut self, enabled: CounterSet);
}
