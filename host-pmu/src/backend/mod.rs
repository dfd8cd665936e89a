//! Backends: what can count on behalf of a vPMC.

pub mod attr;
pub mod monitor;
pub mod perf;
pub mod step;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use arch_pmu::spec::Spec;

/// The host operations a strategy decides on, carried out for the thread that calls.
///
/// Counts and periods are in guest units; a backend scales them to its own.
pub trait Backend {
    /// A host event.
    type Event: fmt::Debug;

    /// Creates an event for `spec`, counting from now, that signals after `period`.
    fn open(&mut self, spec: Spec, period: u64) -> Result<Self::Event, HostError>;

    /// Gives an event back.
    fn release(&mut self, event: Self::Event);

    /// Stops an event and returns its count since it was opened.
    fn pause(&mut self, event: &mut Self::Event) -> Result<u64, HostError>;

    /// Lets a paused event count again. `spent`: it [stopped itself](Self::stops_at_overflow) since it was last resumed.
    fn resume(&mut self, event: &mut Self::Event, spent: bool) -> Result<(), HostError>;

    /// The event shall signal after `period` more.
    fn set_period(&mut self, event: &mut Self::Event, period: u64) -> Result<(), HostError>;

    /// The event's count since it was opened.
    fn read(&mut self, event: &mut Self::Event) -> Result<u64, HostError>;

    /// A number that no other of its events has.
    fn id(&self, _event: &Self::Event) -> u64 {
        0
    }

    /// Tells the id and the count, at that moment, of each event that overflowed since this was last asked. `false`: it
    /// cannot tell, or not of all, and every running event must be read.
    fn overflowed(&mut self, _tell: &mut dyn FnMut(u64, u64)) -> bool {
        false
    }

    /// Whether its events stop by themselves at an overflow, of which [`overflowed`](Self::overflowed) then tells.
    fn stops_at_overflow(&self) -> bool {
        false
    }

    /// Whether it opens its events behind a gate, which is shut at first.
    fn has_gate(&self) -> bool {
        false
    }

    /// Opens the gate: every event that is not paused counts.
    fn open_gate(&mut self) -> Result<(), HostError> {
        Ok(())
    }

    /// Shuts the gate: no event counts. Tells the id and count of each.
    fn shut_gate(&mut self, _tell: &mut dyn FnMut(u64, u64)) -> Result<(), HostError> {
        Ok(())
    }

    /// Whether a new sched slice began since this was last asked.
    fn sched_in(&mut self) -> bool;

    /// Whether the thread slept of its own will since this was last asked: in KVM_RUN it does so in a guest's HLT only.
    fn slept(&mut self) -> bool;

    /// A monotonic clock, ns.
    fn now_ns(&self) -> u64;

    /// Whom to tell of retired instructions; `None` if the backend counts by itself.
    fn stepper(&mut self) -> Option<&mut step::StepCounts> {
        None
    }
}

/// Why a host operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// The kernel refused.
    #[error("{call}: {error}{remedy}", error = std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: i32,
        /// What helps, with a leading separator; empty if unknown.
        remedy: &'static str,
    },
    /// A pinned event lost its counter and counts no more (its read is at end of file).
    #[error("a pinned host event lost its hardware counter to another user of the PMU")]
    PinnedLost,
}

/// Which backend, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "String")]
pub enum BackendKey {
    /// Hardware events.
    Hardware,
    /// ns of the vCPU thread, as stand-in for cycles.
    CpuClock,
    /// The same by the task clock.
    TaskClock,
    /// A tracepoint, as stand-in.
    Tracepoint {
        /// The group, a folder below `events/`.
        group: String,
        /// The event's name.
        name: String,
    },
    /// Retired instructions and branches, by single-stepping the vCPU.
    Step,
    /// No host event: a clock counts and a timer signals.
    None,
}

impl BackendKey {
    /// Whether its counts are those the guest asked for.
    #[must_use]
    pub const fn is_stand_in(&self) -> bool {
        !matches!(self, Self::Hardware | Self::Step)
    }
}

impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hardware => write!(f, "hardware"),
            Self::CpuClock => write!(f, "cpu-clock"),
            Self::TaskClock => write!(f, "task-clock"),
            Self::Tracepoint { group, name } => write!(f, "tracepoint:{group}/{name}"),
            Self::Step => write!(f, "step"),
            Self::None => write!(f, "none"),
        }
    }
}

impl From<BackendKey> for String {
    fn from(key: BackendKey) -> Self {
        key.to_string()
    }
}

/// A backend key that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "there is no backend '{0}'; known are auto, hardware, cpu-clock, task-clock, tracepoint:GROUP/NAME, step, none and sim:MODEL"
)]
pub struct UnknownBackend(pub String);

impl FromStr for BackendKey {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        let unknown = || UnknownBackend(text.to_owned());
        Ok(match text {
            "hardware" => Self::Hardware,
            "cpu-clock" => Self::CpuClock,
            "task-clock" => Self::TaskClock,
            "step" => Self::Step,
            "none" => Self::None,
            _ => {
                // A path is built from both parts: neither may climb out of events/.
                let part = |p: &str| {
                    let fits = !p.is_empty()
                        && p.len() <= 128
                        && p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                    fits.then(|| p.to_owned()).ok_or_else(unknown)
                };
                let (group, name) =
                    text.strip_prefix("tracepoint:").and_then(|t| t.split_once(['/', ':'])).ok_or_else(unknown)?;
                Self::Tracepoint { group: part(group)?, name: part(name)? }
            }
        })
    }
}

/// How many guest counts one host count stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    guest: u64,
    host: u64,
}

impl Scale {
    /// One for one.
    pub const ONE: Self = Self { guest: 1, host: 1 };

    /// `guest` counts for each `host` counts; both at least 1.
    #[must_use]
    pub const fn new(guest: u64, host: u64) -> Self {
        Self { guest: if guest == 0 { 1 } else { guest }, host: if host == 0 { 1 } else { host } }
    }

    /// ns of a clock as TSC ticks.
    #[must_use]
    pub const fn ns_to_tsc(tsc_khz: u64) -> Self {
        Self::new(tsc_khz, 1_000_000)
    }

    /// Guest counts of `host` host counts, rounded down.
    #[must_use]
    pub fn to_guest(self, host: u64) -> u64 {
        let guest = u128::from(host) * u128::from(self.guest) / u128::from(self.host);
        u64::try_from(guest).unwrap_or(u64::MAX)
    }

    /// The smallest host count that is at least `guest` guest counts, and at least 1.
    #[must_use]
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

    #[test]
    fn keys_survive_their_text() {
        for text in ["hardware", "cpu-clock", "task-clock", "step", "none", "tracepoint:kvm/kvm_userspace_exit"] {
            assert_eq!(text.parse::<BackendKey>().unwrap().to_string(), text);
        }
        for bad in
            ["", "cpuclock", "tracepoint:", "tracepoint:kvm", "tracepoint:../x", "tracepoint:a/b/c", "tracepoint:a/.."]
        {
            assert!(bad.parse::<BackendKey>().is_err(), "{bad}");
        }
    }

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
