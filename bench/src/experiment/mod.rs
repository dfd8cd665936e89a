//! Experiments: what is run, in which order, and what becomes of it.

#[cfg(test)]
pub(crate) mod mock;
pub mod nmi_latency;
pub mod plan;
pub mod progress;
pub(crate) mod schedule;
pub mod stat_guest;

use vmm::outcome::RunOutcome;

use crate::error::Error;
pub use crate::result::arm::ArmKind;

/// One thing to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Strategy name, "floor" or "kvm".
    pub strategy: String,
    /// Backend key; "none" for the floor, "kvm" for KVM's own vPMU.
    pub backend: String,
    /// What it compares.
    pub kind: ArmKind,
    /// The strategy's TOML text, if it came from a file.
    pub definition: Option<String>,
}

/// One run of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Which round, from 0; the warm-up counts on its own.
    pub index: u64,
    /// Which arm of this round it is, from 0.
    pub position: u64,
    /// Whether its figures are thrown away.
    pub warmup: bool,
    /// Samples to take per vCPU.
    pub samples: u64,
}

/// Runs guests.
pub trait ArmRunner {
    /// Whether an arm can run on this host at all; asked once, before anything runs.
    ///
    /// # Errors
    /// Why not, e.g. "KVM has no vPMU of its own here".
    fn available(&mut self, arm: &Arm) -> Result<(), String>;

    /// Runs one guest to its end. When [`crate::sys::interrupted`] gets set, it shall end the guest and return
    /// what there is with [`vmm::outcome::End::Stopped`].
    ///
    /// # Errors
    /// What makes further runs pointless; a guest that went wrong is not an error but an outcome.
    fn run(&mut self, arm: &Arm, round: Round) -> Result<RunOutcome, Error>;
}
