//! The result document, `"schema": "vpmu-result/1"`: everything measured, and everything needed to measure it again.
//!
//! One family of types writes documents and reads them. [`Document`] has what every experiment has in common: the envelope, the
//! host, warnings, and [`Arm`]s with metrics over all rounds and by [`Round`]. An [`Experiment`] names the types of its own parts:
//! [`GuestRun`] for guests, [`Any`] for readers that do not care which experiment it was.

pub mod agreement;
mod arm;
mod envelope;
mod experiment;
mod fields;
mod guest;
mod linux;
mod metrics;
mod nested;
mod no_overflows;
mod parameters;
mod phases;
mod scaling;
#[cfg(test)]
mod schema;
mod summary;
mod warning;
pub mod warnings;

pub use arm::{Arm, ArmKind, Round};
pub use envelope::{Document, GUEST_STAT, NMI_LATENCY, Record, SCHEMA, Status, Tool};
pub use experiment::{Any, AnyExtra, Experiment, Part};
pub use fields::Fields;
pub use guest::{
    Answer, DOUBTS, Doubt, EventsHeld, GuestArm, GuestExtra, GuestRound, GuestRun, HostOp, MsrCount, WorkloadCost,
};
pub use linux::{LinuxArm, LinuxParameters};
pub use metrics::{Iter, Metrics};
pub(crate) use nested::{find_nested, find_summaries};
pub(crate) use parameters::USUAL_CPU;
pub use parameters::{EventParameter, Parameters, SetUpParameters, StrategyParameter};
pub use phases::{EventCount, PhaseResult, SET_UP};
pub use scaling::ScalePoint;
pub use summary::{Summary, decode, decode_text, encode, latency_histogram, merge};
pub use warning::Warning;
