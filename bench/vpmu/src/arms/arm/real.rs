//! Runs arms on this host's KVM: a guest with the userspace vPMU, or with KVM's own.

use std::sync::Arc;

use guest::abi::{BootPage, FLAG_TURNS};
use results::document::ArmKind;
use results::error::Error;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vmm::kvm::{Host, KvmError};
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{self, MachineError};
use vmm::outcome::{End, RunOutcome};

use super::runner::{Arm, ArmGuests, Runner, TurnOutcome, nothing};
use crate::engine::Turn;
use crate::machine::not_begun;
use crate::setting::backend::open_kvm;
use crate::sys::interrupted;
use crate::terminal::console::catch_interrupts;

/// Log entries per requested sample: rotations share the log.
const LOG_PER_SAMPLE: u64 = 2;
/// Log entries beyond that, for NMIs that arrive while the guest stops.
const LOG_SPARE: u64 = 4096;

/// Returns a runner of such guests on this host's KVM.
///
/// # Errors
/// Exit 4 where this host cannot run guests.
pub fn runner(guest: &PayloadPlan) -> Result<Runner, Error> {
    let (host, guest) = (Arc::new(open_kvm()?), guest.clone());
    raise_limits();
    Ok(Box::new(move |arm| {
        arm.available(&host, guest.machine.cpu)?;
        Ok(Box::new(RealGuests { host: Arc::clone(&host), guest: guest.clone(), arm, live: None }))
    }))
}

/// Builds the error of a guest that has no result.
#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
pub(crate) fn refused(error: MachineError) -> Error {
    not_begun("cannot run a guest", &error)
}

/// The guests of an arm on this host.
struct RealGuests<'a> {
    host: Arc<Host>,
    guest: PayloadPlan,
    arm: &'a Arm,
    live: Option<payload::LiveGuest>,
}

impl RealGuests<'_> {
    fn plan(&self, samples: u64) -> Result<PayloadPlan, Error> {
        let machine = &self.guest.machine;
        let behind = self.arm.source(&machine.behind)?;
        Ok(planned(&self.guest, machine::Plan { behind, ..machine.clone() }, samples))
    }
}

impl ArmGuests for RealGuests<'_> {
    fn open(&mut self, _: u64, samples: u64) -> Result<Option<RunOutcome>, Error> {
        let mut plan = self.plan(samples)?;
        plan.boot.flags |= FLAG_TURNS;
        match payload::LiveGuest::start(&self.host, guest::PMU_PAYLOAD, plan, interrupted()) {
            Ok((guest, opening)) => {
                self.live = Some(guest);
                Ok(opening)
            }
            Err(error) => of_this_arm(error, self.arm).map(|_| None),
        }
    }

    fn turn(&mut self, turn: Turn, samples: u64) -> Result<TurnOutcome, Error> {
        let done = match (&mut self.live, turn.session) {
            (Some(live), _) => live.turn(samples, interrupted()),
            (None, None) => payload::run(&self.host, guest::PMU_PAYLOAD, &self.plan(samples)?, interrupted()),
            // The guest of this session could not be made, because others held the PMU.
            (None, Some(_)) => Err(MachineError::Kvm(KvmError::PmuTaken)),
        };
        let run = done.or_else(|error| of_this_arm(error, self.arm))?;
        self.live = self.live.take().filter(|_| run.end.is_complete());
        Ok(run.into())
    }

    fn close(&mut self) -> Result<Option<RunOutcome>, Error> {
        self.live.take().map(|live| live.finish(interrupted()).map_err(refused)).transpose()
    }
}

/// Turns a PMU that others hold now, which may be free at the next turn, into the end of this arm's turn, not of the other arms'.
fn of_this_arm(error: MachineError, arm: &Arm) -> Result<RunOutcome, Error> {
    match error {
        MachineError::Kvm(taken @ KvmError::PmuTaken) if arm.kind == ArmKind::Kvm => {
            Ok(nothing(End::Host(taken.to_string())))
        }
        error => Err(refused(error)),
    }
}

/// Runs the payload on this machine.
///
/// # Errors
/// Conditions that keep it from starting.
pub(crate) fn alone(guest: &PayloadPlan, machine: machine::Plan, samples: u64) -> Result<RunOutcome, Error> {
    let host = open_kvm()?;
    raise_limits();
    catch_interrupts()?;
    payload::run(&host, guest::PMU_PAYLOAD, &planned(guest, machine, samples), interrupted()).map_err(refused)
}

/// Plans a run of `samples` samples.
fn planned(guest: &PayloadPlan, machine: machine::Plan, samples: u64) -> PayloadPlan {
    PayloadPlan {
        machine,
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

/// Raises the limits of open files and of queued signals, of which a vCPU takes dozens, as far as they go. Where that is too little, the
/// event or timer that does not open says so.
pub fn raise_limits() {
    for limit in [Resource::Nofile, Resource::Sigpending] {
        let Rlimit { maximum, .. } = getrlimit(limit);
        let _ = setrlimit(limit, Rlimit { current: maximum, maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pmu_that_others_hold_ends_the_turn_of_kvms_arm_alone() {
        let arm = |kind| Arm { strategy: "kvm".to_owned(), backend: "kvm".to_owned(), kind, definition: None };
        let done = |kind| of_this_arm(MachineError::Kvm(KvmError::PmuTaken), &arm(kind));
        assert_eq!(done(ArmKind::Kvm).unwrap().end, End::Host(KvmError::PmuTaken.to_string()));
        assert!(done(ArmKind::Floor).is_err());
    }
}
