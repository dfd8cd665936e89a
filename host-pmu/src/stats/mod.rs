//! Counts and costs that the host side leaves.

mod held;
mod ops;
mod phases;
mod recorder;
mod side;
mod signals;

pub use held::HeldTime;
pub use ops::{OpKind, OpStats};
pub use phases::{PhaseTally, Phases};
pub use recorder::{Recorder, ns_histogram};
pub use side::HostSide;
pub use signals::SignalTimes;
