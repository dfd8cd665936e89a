//! Counts and costs that the host side leaves.

mod ops;
mod phases;

pub use ops::{OpKind, OpStats, Recorder, ns_histogram};
pub use phases::{PhaseTally, Phases};
