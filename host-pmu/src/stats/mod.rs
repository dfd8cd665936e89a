//! Counts and costs that the host side leaves.

mod held;
mod ops;
mod phases;
mod side;
mod signals;

pub use held::HeldTime;
pub use ops::{OpKind, OpStats, Recorder, ns_histogram};
pub use phases::{PhaseTally, Phases};
pub use side::HostSide;
pub use signals::SignalTimes;
