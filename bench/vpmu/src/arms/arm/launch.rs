//! Starting guests on this host's KVM.

use std::sync::Arc;

use guest::abi::{BootPage, FLAG_TURNS};
use host_pmu::trace::Tracing;
use vmm::kvm::{Host, KvmError};
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{self, CounterSource, MachineError};
use vmm::outcome::RunOutcome;
use vmm::sample::Sampling;

use super::runner::{LiveGuest, Opened, TurnOutcome};
use crate::sys;
use crate::terminal::console::internal;
use results::error::Error;

/// Log entries per requested sample: rotations share the log.
const LOG_PER_SAMPLE: u64 = 2;
/// Log entries beyond that, for NMIs that arrive while the guest stops.
const LOG_SPARE: u64 = 4096;

/// Reason why a guest was not run.
#[derive(Debug)]
pub(super) enum Failure {
    /// Host events hold the PMU that its mediated vPMU would take: they may be gone at the next turn.
    PmuTaken(String),
    /// Further runs are pointless.
    Other(Error),
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Kvm(taken @ KvmError::PmuTaken) => Self::PmuTaken(taken.to_string()),
            other => Self::Other(refused(other)),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::PmuTaken(why) => Self::host("cannot run a guest", why, ""),
            Failure::Other(error) => error,
        }
    }
}

/// Runs the payload with `behind` its counters.
pub(super) fn launch(
    host: &Host,
    guest: &PayloadPlan,
    behind: CounterSource,
    samples: u64,
) -> Result<RunOutcome, Failure> {
    Ok(payload::run(host, guest::PMU_PAYLOAD, &plan(guest, behind, samples), sys::interrupted())?)
}

/// Runs the payload with `behind` its counters, sampled or traced.
pub(crate) fn recorded(
    host: &Host,
    guest: &PayloadPlan,
    behind: CounterSource,
    samples: u64,
    sampling: Option<Arc<Sampling>>,
    trace: Option<Arc<Tracing>>,
) -> Result<RunOutcome, Error> {
    let mut plan = plan(guest, behind, samples);
    (plan.machine.sampling, plan.machine.trace) = (sampling, trace);
    payload::run(host, guest::PMU_PAYLOAD, &plan, sys::interrupted()).map_err(refused)
}

/// Plans a run of `samples` samples.
fn plan(guest: &PayloadPlan, behind: CounterSource, samples: u64) -> PayloadPlan {
    PayloadPlan {
        machine: machine::Plan { behind, ..guest.machine.clone() },
        log_entries: log_entries(&guest.boot, samples),
        boot: BootPage { sample_target: samples, ..guest.boot },
        steps: Arc::clone(&guest.steps),
    }
}

/// Returns the capacity of a guest's log for a run of this many samples.
pub(crate) const fn log_entries(boot: &BootPage, samples: u64) -> u64 {
    // A set-up logs each call of its four phases, and the rotations after it.
    let set_up = 4 * boot.event_count + boot.window_ticks;
    samples * (if boot.window_ticks > 0 { set_up } else { LOG_PER_SAMPLE }) + LOG_SPARE
}

/// Builds the error of a guest that has no result.
pub(crate) fn refused(error: MachineError) -> Error {
    match error {
        MachineError::Kvm(error) => Error::host("cannot run a guest", error.to_string(), ""),
        MachineError::Panicked(_) => internal(&error.to_string(), ""),
        other => Error::host("cannot run a guest", other.to_string(), "`vpmu doctor` says what is missing"),
    }
}

/// A guest on this host's KVM that lives over several turns.
#[derive(Debug)]
struct Live(payload::LiveGuest);

/// Starts a guest for turns of at most `samples` samples.
pub(super) fn start(
    host: &Arc<Host>,
    guest: &PayloadPlan,
    behind: CounterSource,
    samples: u64,
) -> Result<Opened, Failure> {
    let mut plan = plan(guest, behind, samples);
    plan.boot.flags |= FLAG_TURNS;
    let live = payload::LiveGuest::start(host, guest::PMU_PAYLOAD, plan, sys::interrupted());
    let (guest, opening) = live?;
    Ok(Opened { guest: Box::new(Live(guest)), opening })
}

impl LiveGuest for Live {
    fn turn(&mut self, samples: u64) -> Result<TurnOutcome, Error> {
        Ok(self.0.turn(samples, sys::interrupted()).map_err(refused)?.into())
    }

    fn close(self: Box<Self>) -> Result<RunOutcome, Error> {
        self.0.finish(sys::interrupted()).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_bug_and_no_fault_of_the_host() {
        let code = |error| refused(error).exit.code();
        assert_eq!(code(MachineError::Panicked("a vCPU's thread")), 70);
        assert_eq!(code(MachineError::Host("no memory".to_owned())), 4);
    }
}
