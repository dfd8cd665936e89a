//! The threads that own the events of each CPU, behind one interface.

use crate::outcome::Outcome;
use crate::phase::{Phase, Recorder};

/// Carries out phases on every CPU.
pub(crate) trait Crew {
    /// Makes the calls of a phase on every CPU.
    fn phase(&mut self, phase: Phase) -> Recorder;
    /// Closes and reopens the members of broken weak groups: passes A and B of [`crate::unit::Unit`].
    fn break_up(&mut self) -> Recorder;
    /// Returns the outcome of each event, and the number of open descriptors.
    fn outcomes(&mut self) -> (Vec<Outcome>, usize);
}
