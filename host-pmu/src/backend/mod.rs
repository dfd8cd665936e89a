//! Backends, which count on behalf of a vPMC. A new one is a file here, a row in `key.rs` and an arm in [`crate::open`].

pub mod attr;
pub mod encoding;
mod key;
pub mod model;
pub mod monitor;
pub mod perf;
pub mod scheduling;
pub mod step;

use std::fmt;

use thiserror::Error;

use arch_pmu::spec::{Spec, Vendor};
pub(crate) use key::tracepoint;
pub use key::{BackendKey, UnknownBackend};

/// The host operations of strategies, for the calling thread.
///
/// Counts and periods are in guest units; a backend scales them to its own units.
pub trait Backend: 'static {
    /// A host event.
    type Event: fmt::Debug;

    /// Returns what it can do, and what it cannot.
    fn facts(&self) -> &Facts;

    /// Starts the work that serves only open events and may have waited until the guest runs.
    fn attend(&mut self) {}

    /// Creates an event for `spec`, counting from now, that signals after `period`.
    fn open(&mut self, spec: Spec, period: u64) -> Result<Self::Event, HostError>;

    /// Releases an event.
    fn release(&mut self, event: Self::Event);

    /// Stops an event and returns its count since it was opened.
    fn pause(&mut self, event: &mut Self::Event) -> Result<u64, HostError>;

    /// Lets a paused event count again.
    fn resume(&mut self, event: &mut Self::Event) -> Result<(), HostError>;

    /// Makes the event signal after `period` more counts.
    fn set_period(&mut self, event: &mut Self::Event, period: u64) -> Result<(), HostError>;

    /// Returns the event's count since it was opened.
    fn read(&mut self, event: &mut Self::Event) -> Result<u64, HostError>;

    /// Returns the event's number, unique among those of this backend.
    fn id(&self, event: &Self::Event) -> u64;

    /// Reports each event that overflowed since the last call. `false`: there are no records, or some were lost, and every
    /// running event must be read.
    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool;

    /// Returns the event's count since it was opened, where that can be known without a host operation.
    fn peek(&mut self, event: &Self::Event) -> Option<u64>;

    /// Opens the gate: every event that is not paused counts.
    fn open_gate(&mut self) -> Result<(), HostError>;

    /// Shuts the gate: no event counts.
    fn shut_gate(&mut self) -> Result<(), HostError>;

    /// Returns the event's count when the gate was shut; asked once for each event, right after that.
    fn shut_at(&mut self, event: &Self::Event) -> Option<u64>;

    /// Returns whether [`sched_in`](Self::sched_in) may find a new slice; the question does not consume it.
    fn may_have_switched(&self) -> bool;

    /// Leaves the gate, which no event is behind any more: events are single ones from now on.
    fn leave_gate(&mut self);

    /// Returns whether a new sched slice began since the last call.
    fn sched_in(&mut self) -> bool;

    /// Returns whether the thread was switched in, and whether it slept, since a trace last asked; `None` where that is not
    /// known. It takes nothing from [`sched_in`](Self::sched_in).
    fn slices(&mut self) -> Option<(bool, bool)> {
        None
    }

    /// Returns the time of a clock that never goes back, ns: that of [`Overflow::at`].
    fn now_ns(&self) -> u64;

    /// Returns whether an event was pinned and got no counter: it has stopped for good, and no overflow of it will be
    /// reported. Not a host operation.
    fn is_lost(&self, event: &Self::Event) -> bool;

    /// Returns whether the gate's leader, which alone is pinned where there is a gate, got no counter.
    fn is_gate_lost(&self) -> bool;

    /// Returns the number of throttle records that [`overflowed`](Self::overflowed) has met so far; 0 where there are no records.
    fn throttled(&self) -> u64 {
        0
    }
}

/// Abilities of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// It opens its events behind a gate, which is shut at first.
    pub gate: bool,
    /// A counter that goes off may leave its event running, as [`Pause::Virtual`](crate::strategy::Pause) does.
    pub virtual_pauses: bool,
    /// All its events count at one pace, so that the one with the least left signals first.
    pub one_pace: bool,
    /// Records of some event's overflows and throttlings do not reach this process: neither is seen.
    pub blind: bool,
    /// The shortest period that an event gets, whatever it is asked for.
    pub shortest_period: u64,
}

/// A record of an event's overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The event's number.
    pub id: u64,
    /// Its count at the overflow.
    pub count: u64,
    /// Time at which the host handled the overflow, by [`Backend::now_ns`]; `None` if unknown.
    pub at: Option<u64>,
}

/// Reason why a host operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// The kernel refused.
    #[error("{call}: {error}{remedy}", error = std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: i32,
        /// The remedy, with a leading separator; empty if unknown.
        remedy: &'static str,
    },
    /// The host's PMU cannot count it, although the kernel would open an event.
    #[error("this host's PMU does not count {0}")]
    Absent(&'static str),
    /// The event has an encoding of the other vendor, and no counterpart on this host.
    #[error(
        "event {config:#x} has {name}'s encoding and no known counterpart on this host's PMU: give the guest a --cpu of the host's \
         vendor (of AMD's PMUs, those since family 17h are known)",
        name = match vendor { Vendor::Intel => "Intel", Vendor::Amd => "AMD" }
    )]
    Foreign {
        /// The event as its vendor encodes it.
        config: u64,
        /// Vendor of the event.
        vendor: Vendor,
    },
    /// A pinned event lost its counter and counts no more (its read is at end of file).
    #[error("a pinned host event lost its hardware counter to another user of the PMU")]
    PinnedLost,
    /// The events of a gate, which are scheduled as a whole or not at all, do not fit on the host's counters.
    #[error(
        "the events behind the gate do not get hardware counters together; each has been a single event since, so the arm is no longer a \
         gate: give the guest fewer counters, or end other users of the PMU (the NMI watchdog: sysctl kernel.nmi_watchdog=0)"
    )]
    GateTooLarge,
}

/// Guest counts per host count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    guest: u64,
    host: u64,
}

impl Scale {
    /// One for one.
    pub const ONE: Self = Self { guest: 1, host: 1 };

    /// Creates a scale of `guest` counts for each `host` counts; both at least 1.
    pub const fn new(guest: u64, host: u64) -> Self {
        Self { guest: if guest == 0 { 1 } else { guest }, host: if host == 0 { 1 } else { host } }
    }

    /// Returns the guest counts of `host` host counts, rounded down.
    #[inline]
    pub fn to_guest(self, host: u64) -> u64 {
        // Most products fit; a division of 128 bits takes several times as long.
        if let Some(product) = host.checked_mul(self.guest) {
            return product / self.host;
        }
        let guest = u128::from(host) * u128::from(self.guest) / u128::from(self.host);
        u64::try_from(guest).unwrap_or(u64::MAX)
    }

    /// Returns the smallest host count that is at least `guest` guest counts, and at least 1.
    pub fn to_host(self, guest: u64) -> u64 {
        let host = (u128::from(guest) * u128::from(self.host)).div_ceil(u128::from(self.guest));
        // perf refuses a period with the top bit set.
        u64::try_from(host).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// When the host has counted a scaled period, the guest's period has passed: no overflow is signalled early.
        #[test]
        fn a_scaled_period_is_never_short(guest in 1..1u64 << 48, num in 1..10_000_000u64, den in 1..10_000_000u64) {
            let scale = Scale::new(num, den);
            let host = scale.to_host(guest);
            prop_assert!(scale.to_guest(host) >= guest || host == i64::MAX as u64);
            prop_assert!(host == 1 || scale.to_guest(host - 1) < guest);
        }
    }
}
