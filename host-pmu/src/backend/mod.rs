//! Backends: what can count on behalf of a vPMC.

pub mod attr;
mod key;
pub mod monitor;
pub mod perf;
mod scale;
pub mod step;

use std::fmt;

use thiserror::Error;

use arch_pmu::spec::Spec;
pub use key::{BackendKey, UnknownBackend};
pub use scale::Scale;

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

    /// Times an event was throttled so far, as far as that is seen.
    fn throttled(&mut self) -> u64 {
        0
    }

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
