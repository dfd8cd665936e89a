//! An arm, one run of it, and the interface of everything that runs arms.

use vmm::outcome::RunOutcome;

use results::document::ArmKind;
use results::error::Error;

/// One arm of a comparison.
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
pub struct Turn {
    /// Round, from 0; warm-up rounds have their own numbers from 0.
    pub index: u64,
    /// Position of the arm in this round, from 0.
    pub position: u64,
    /// Whether the figures are discarded.
    pub warmup: bool,
    /// Samples to take per vCPU.
    pub samples: u64,
}

/// Runs guests.
pub trait ArmRunner {
    /// Whether an arm can run on this host at all; called once per arm, before anything runs.
    ///
    /// # Errors
    /// The reason, e.g. "KVM has no vPMU of its own here".
    fn available(&mut self, arm: &Arm) -> Result<(), String>;

    /// Runs one guest to its end. Once [`crate::sys::interrupted`] is set, the guest is ended and the outcome so far is
    /// returned with [`vmm::outcome::End::Stopped`].
    ///
    /// # Errors
    /// Conditions that make further runs pointless. A guest that went wrong is an outcome, not an error.
    fn run(&mut self, arm: &Arm, turn: Turn) -> Result<RunOutcome, Error>;
}
