//! What the architectural vPMU asks of whatever stands behind its counters.

use crate::backend::step::StepCounts;
use crate::spec::{CounterId, CounterSet, Spec};
use crate::stats::OpStats;
use crate::strategy::{Apply, OnOverflow};

/// A guest access that may keep a counter in use (see [`crate::strategy::Mark`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A WRMSR to the counter, its selector, or its nibble of FIXED_CTR_CTRL.
    Write,
    /// A read of the counter.
    Read,
    /// A write that changed its bit of GLOBAL_CTRL.
    GlobalCtrl,
}

/// What stands behind the vPMCs of one vCPU.
///
/// Counts are in guest units and are handed over once: what [`take`](Self::take) or [`pause`](Self::pause) returned is
/// the vPMU's and is not returned again. Nothing here knows the width of a counter.
pub trait HostCounters {
    /// Whether the vPMU reprograms at the guest's access or once per entry.
    fn apply(&self) -> Apply;

    /// What the vPMU does about a counter that overflowed.
    fn on_overflow(&self) -> OnOverflow {
        OnOverflow::Reprogram
    }

    /// The host signalled: counters that may have overflowed since this was last asked.
    fn overflowed(&mut self) -> CounterSet {
        CounterSet::ALL
    }

    /// Hands over what the counter gathered; it goes on counting.
    fn take(&mut self, counter: CounterId) -> u64;

    /// Stops the counter and hands over what it gathered.
    fn pause(&mut self, counter: CounterId) -> u64;

    /// The counter shall count `spec` and signal after `period` more. It is paused.
    fn start(&mut self, counter: CounterId, spec: Spec, period: u64);

    /// The counter is off: by its own enable, or by GLOBAL_CTRL alone. It is paused.
    fn stop(&mut self, counter: CounterId, own_enable: bool);

    /// The counter runs and its value was moved: it shall signal after `period` more.
    fn set_period(&mut self, counter: CounterId, period: u64);

    /// The guest touched the counter.
    fn touch(&mut self, counter: CounterId, touch: Touch);

    /// The guest is about to be entered; `enabled` are the counters whose own enable is on.
    fn on_entry(&mut self, enabled: CounterSet);

    /// Counters whose start failed and should be tried again.
    fn take_retries(&mut self) -> CounterSet;

    /// Host events held now.
    fn held(&self) -> u64;

    /// Host operations so far; `None` if there are never any.
    fn ops(&self) -> Option<&OpStats> {
        None
    }

    /// Whom to tell of retired instructions; `None` if the host side counts by itself.
    fn stepper(&mut self) -> Option<&mut StepCounts> {
        None
    }
}
