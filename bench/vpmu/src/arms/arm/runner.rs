//! An arm, one run of it, and the interface of everything that runs arms.

use std::time::Duration;

use host_pmu::strategy::Strategy;
use vmm::outcome::{End, RunOutcome};

use results::document::{ArmKind, LinuxArm};
use results::error::Error;

use crate::engine::Turn;

/// One arm of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Strategy name, "floor" or "kvm".
    pub strategy: String,
    /// Backend key; "none" for the floor, "kvm" for KVM's own vPMU.
    pub backend: String,
    /// Kind of the arm.
    pub kind: ArmKind,
    /// The strategy's TOML text, if it came from a file.
    pub definition: Option<String>,
}

impl Arm {
    /// Returns its strategy, ready for use.
    ///
    /// # Errors
    /// Exit 2 for one that cannot be read.
    pub fn strategy(&self) -> Result<Strategy, Error> {
        Strategy::named(&self.strategy, self.definition.as_deref())
            .map_err(|error| Error::usage(format!("strategy {}", self.strategy), error.to_string(), ""))
    }
}

/// One turn of a guest: of one that is kept alive, or the whole life of another.
#[derive(Clone, Debug)]
pub struct TurnOutcome {
    /// Every figure is of this turn alone.
    pub run: RunOutcome,
    /// Figures that only a Linux guest leaves.
    pub linux: Option<LinuxTurn>,
    /// The host's work by the model where a trace is replayed, ns, of each sample.
    pub host_work: Vec<u64>,
}

impl From<RunOutcome> for TurnOutcome {
    fn from(run: RunOutcome) -> Self {
        Self { run, linux: None, host_work: Vec::new() }
    }
}

/// Figures that a Linux guest leaves beside its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinuxTurn {
    /// Figures of the guest's kernel and programs.
    pub left: LinuxArm,
    /// Times of set-ups by the guest's clock.
    pub set_up_ns: Vec<u64>,
}

/// Returns the outcome of a run without vCPUs.
pub(super) const fn nothing(end: End) -> RunOutcome {
    RunOutcome { end, vcpus: Vec::new(), wall: Duration::ZERO, start: Duration::ZERO }
}

/// A guest that was started to be kept alive and waits for its first turn; and the outcome of its start and its baseline, none if it
/// went wrong: its first turn says how.
pub type Opened = (Box<dyn LiveGuest>, Option<RunOutcome>);

/// A guest that lives over several turns. Between two of them its vCPUs wait, with its counters and its timer off.
pub trait LiveGuest {
    /// Lets the guest take `samples` samples per vCPU, and waits for the end of the turn. A guest that failed, hung or was
    /// interrupted is an outcome whose end says so; such a guest takes no further turns.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn turn(&mut self, samples: u64) -> Result<TurnOutcome, Error>;

    /// Ends the guest. The outcome has the rest after the last turn: the tail's ticks, and host operations since then.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn close(self: Box<Self>) -> Result<RunOutcome, Error>;
}

/// Runs guests.
pub trait ArmRunner {
    /// Checks that an arm can run on this host at all; called once per arm, before anything runs.
    ///
    /// # Errors
    /// The reason, e.g. "KVM has no vPMU of its own here".
    fn available(&mut self, arm: &Arm) -> Result<(), String>;

    /// Runs one guest to its end, for so many samples of each vCPU. Once [`crate::sys::interrupted`] is set, the guest is ended and the outcome so far is
    /// returned with [`vmm::outcome::End::Stopped`].
    ///
    /// # Errors
    /// Conditions that make further runs pointless. A guest that went wrong is an outcome, not an error.
    fn run(&mut self, arm: &Arm, turn: Turn, samples: u64) -> Result<TurnOutcome, Error>;

    /// Starts a guest that is kept alive, up to the end of its baseline. `number` counts the arm's guests from 0: all
    /// arms' guests of one number are alive at the same time, and take turns. No turn has more than `samples`.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn open(&mut self, arm: &Arm, number: u64, samples: u64) -> Result<Opened, Error>;
}
