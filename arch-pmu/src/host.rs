//! The host side of the counters, as the architectural PMU sees it.

use crate::spec::{CounterId, CounterSet, Spec};

/// A guest access that may keep a counter in use, by the rules of the host side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A WRMSR to the counter, its selector, or its nibble of FIXED_CTR_CTRL.
    Write,
    /// A read of the counter.
    Read,
    /// A write that changed its bit of GLOBAL_CTRL.
    GlobalCtrl,
}

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
    /// The PMU does nothing; the host side asks for more in [`HostCounters::due`], if at all.
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
    fn stop(&mut self, counter: CounterId, own_enable: bool);

    /// Sets the period of a running counter whose value was moved: it signals after `period` more counts.
    fn set_period(&mut self, counter: CounterId, period: u64);

    /// Notes that the guest accessed the counter.
    fn touch(&mut self, counter: CounterId, touch: Touch);

    /// Notes that the guest accessed the counters.
    fn touch_all(&mut self, counters: CounterSet, touch: Touch) {
        counters.into_iter().for_each(|counter| self.touch(counter, touch));
    }

    /// Returns the counters for which it keeps nothing: to pause or stop one of them would do nothing.
    fn keeps_nothing_for(&self) -> CounterSet {
        CounterSet::EMPTY
    }

    /// Returns the counters to reprogram before the guest entry that is about to happen, beside those
    /// [`changed`](Self::changed) deferred. `pmi`: the entry delivers a PMI.
    fn due(&mut self, pmi: bool) -> CounterSet;

    /// Returns more counters to reprogram, because the PMI of this entry starts no handler now (LVTPC is masked, or
    /// holds no NMI). A PMI that LVTPC's mask holds back is one of these: until it is delivered the counters go on.
    fn pmi_not_handled(&mut self) -> CounterSet {
        CounterSet::EMPTY
    }

    /// Does the host side's work before the guest is entered; `enabled` are the counters with their own enable on.
    /// Called once per entry.
    fn on_entry(&mut self, enabled: CounterSet);

    /// Notes that counters of [`pmi_not_handled`](Self::pmi_not_handled) were reprogrammed after
    /// [`on_entry`](Self::on_entry), for the same entry.
    fn entry_changed(&mut self) {}
}
