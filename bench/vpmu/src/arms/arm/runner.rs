//! An arm, one run of it, and the interface of everything that runs arms.

use std::time::Duration;

use host_pmu::strategy::Strategy;
use vmm::outcome::{End, RunOutcome};

use results::document::{ArmKind, LinuxArm};
use results::error::Error;

use crate::engine::Turn;
use crate::setting::strategy::named;

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
        named(&self.strategy, self.definition.as_deref())
    }
}

/// One turn of a guest: of one that is kept alive, or the whole life of another.
#[derive(Clone, Debug)]
pub struct TurnOutcome {
    /// Every figure is of this turn alone.
    pub run: RunOutcome,
    /// Figures of the kernel and programs of a Linux guest.
    pub linux: Option<LinuxArm>,
    /// The host's work by the model where a trace is replayed, ns, of each sample.
    pub host_work: Vec<u64>,
}

impl From<RunOutcome> for TurnOutcome {
    fn from(run: RunOutcome) -> Self {
        Self { run, linux: None, host_work: Vec::new() }
    }
}

/// Returns the outcome of a run without vCPUs.
pub(super) const fn nothing(end: End) -> RunOutcome {
    RunOutcome { end, vcpus: Vec::new(), wall: Duration::ZERO, start: Duration::ZERO }
}

/// The guests of an arm, one after the other. Once [`crate::sys::interrupted`] is set, a guest is ended, and the outcome so far has
/// [`End::Stopped`].
pub trait ArmGuests {
    /// Starts a guest that lives over several turns, up to the end of its baseline, and returns the outcome of that; none if it went
    /// wrong: its first turn says how. `number` counts the arm's guests from 0: all arms' guests of one number are alive at the same
    /// time, and take turns, of `samples` at most. Between two of them its vCPUs wait, with its counters and its timer off.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn open(&mut self, _number: u64, _samples: u64) -> Result<Option<RunOutcome>, Error> {
        Ok(None)
    }

    /// Lets the guest that was started, or without a session a fresh one, take `samples` samples per vCPU, and waits for the end of
    /// that. A guest that failed, hung or was interrupted is an outcome whose end says so; it is gone then.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn turn(&mut self, turn: Turn, samples: u64) -> Result<TurnOutcome, Error>;

    /// Ends the guest that was started, if it still lives. The outcome has the rest after the last turn: the tail's ticks, and host
    /// operations since then.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn close(&mut self) -> Result<Option<RunOutcome>, Error> {
        Ok(None)
    }
}

/// Runs guests.
pub trait ArmRunner {
    /// Returns the guests of an arm; called once per arm, before anything runs.
    ///
    /// # Errors
    /// Why the arm cannot run here at all, e.g. "KVM has no vPMU of its own here".
    fn guests<'a>(&'a self, arm: &'a Arm) -> Result<Box<dyn ArmGuests + 'a>, String>;
}
