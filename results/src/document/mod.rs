//! The result document, `"schema": "vpmu-result/4"`: everything measured, and everything needed to measure it again.
//!
//! One family of types writes documents and reads them. [`Document`] has what every experiment has: the envelope, the host, warnings,
//! and [`Arm`]s with metrics over all rounds and by round ([`Rounds`]). Parameters are typed for guests, and [`Any`] for readers that
//! do not care which experiment it was.

mod arm;
mod envelope;
mod guest;
mod linux;
mod parameters;
mod rounds;
mod schema;
mod summary;
pub mod warnings;

pub use arm::{Arm, ArmKind, BELOW_KVM, KVM_ARMS, kvm_arm};
pub use counts::{CountColumns, Counts};
pub(crate) use envelope::arm_names;
pub use envelope::{Any, Document, Experiment, GUEST_STAT, NMI_LATENCY, Record, SCHEMA, Status, Tool, Warning};
pub use guest::{Answer, EventCount, EventsHeld, GuestArm, HostOp, MsrCount, PhaseResult, SET_UP, WorkloadCost};
pub use linux::{LinuxArm, LinuxParameters};
pub use parameters::{EventParameter, Parameters, REPLAY, SetUpParameters, StrategyParameter, other_cpu};
pub use rounds::{Column, Metrics, Round, Rounds};
pub use schema::schema;
pub use summary::{LONGEST, Summary, latency_histogram, merge};
