//! One run of a guest: memory, VM, a thread per vCPU, limits, and the results.
//!
//! `run::run` does everything that is the same for all guests. A kind of guest is one implementation of
//! `guest::Guest`: the memory it needs, how it is loaded, its devices, and the results that only it leaves.
//! [`payload`] runs the project's own payloads; `pc` has what [`image`] (a third-party image) and [`linux`] (a distribution's
//! kernel) share.

mod crew;
pub mod error;
pub(crate) mod guest;
pub mod image;
pub mod linux;
pub mod payload;
mod pc;
pub mod plan;
pub mod run;

pub use error::MachineError;
pub use plan::{CounterSource, Cpu, Plan};
