//! The arms of a plan as the engine takes them: guests that live for a turn or for a session, and their figures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::plan::Plan;
use crate::arms::arm::runner::{Arm, ArmGuests, Runner, TurnOutcome};
use crate::arms::fold::arm::{ArmFold, Checks};
use crate::engine::{self, Turn};
use results::document::{self, ArmKind, BELOW_KVM};
use results::error::Error;
use vmm::outcome::RunOutcome;

/// The remedy for an arm that this host cannot run.
const DOCTOR: &str = "`vpmu doctor` says what is missing";
/// Number of failed turns in a row after which an arm is dropped: a guest that hangs does so until its time limit, in
/// every round.
const GIVE_UP: u32 = 2;
/// Begin of the reason that such an arm has.
pub(super) const GIVEN_UP: &str = "given up";

/// An arm of a plan.
pub(crate) struct GuestArm<'a> {
    plan: &'a Plan,
    arm: &'a Arm,
    pub(crate) fold: ArmFold,
    /// Its guests; none if it cannot run here.
    guests: Option<Box<dyn ArmGuests + 'a>>,
    /// Set when the user wants it to end.
    stop: &'a AtomicBool,
    failures: u32,
    /// Sum of its guests' run times.
    virtual_time: Duration,
    /// Sees each outcome that counts.
    pub(crate) kept: Box<dyn FnMut(&RunOutcome) + 'a>,
}

/// Returns the arms of a plan, and asks for each whether it can run.
///
/// # Errors
/// Exit 4 if no arm can run on this host.
pub(crate) fn arms<'a>(plan: &'a Plan, runner: &Runner, stop: &'a AtomicBool) -> Result<Vec<GuestArm<'a>>, Error> {
    let is_trace = plan.replayed.is_some() || !plan.guest.steps.is_empty();
    let checks = Checks {
        overflows: !is_trace,
        // The period of an event that only counts is its counter's width, which rotations begin anew.
        periods: !is_trace && plan.guest.boot.freq_hz == 0 && plan.parameters.samples_events(),
        deliveries: plan.parameters.linux.is_none() && plan.replayed.is_none(),
    };
    let mut reasons = Vec::new();
    let mut arms = Vec::new();
    for arm in &plan.arms {
        let mut fold = ArmFold::new(arm, arm.kind == ArmKind::Strategy && plan.backend.is_stand_in(), checks);
        let guests = match runner(arm) {
            Ok(guests) => Some(guests),
            // Such an arm is there only where it was asked for by name.
            Err(why) if arm.strategy.starts_with(BELOW_KVM) => {
                return Err(Error::host(format!("arm {} cannot run on this host", arm.strategy), why, DOCTOR));
            }
            Err(why) => {
                fold.not_available(&why);
                reasons.push(format!("{}: {why}", arm.strategy));
                None
            }
        };
        let (virtual_time, kept) = (Duration::ZERO, Box::new(|_: &RunOutcome| ()));
        arms.push(GuestArm { plan, arm, fold, guests, stop, failures: 0, virtual_time, kept });
    }
    if arms.iter().any(|arm| arm.guests.is_some()) {
        return Ok(arms);
    }
    Err(Error::host("no arm can run on this host", reasons.join("; "), DOCTOR))
}

impl engine::Arm for GuestArm<'_> {
    type Figures = TurnOutcome;

    fn name(&self) -> &str {
        &self.arm.strategy
    }

    /// It can run here and was not given up.
    fn runs(&self) -> bool {
        self.guests.is_some() && self.failures < GIVE_UP
    }

    fn open(&mut self, session: u64) -> Result<(), Error> {
        let parameters = &self.plan.parameters;
        let samples = parameters.samples.max(parameters.warmup_samples);
        let opening = self.guests.as_mut().map_or(Ok(None), |guests| guests.open(session, samples))?;
        if let Some(opening) = opening {
            self.virtual_time += opening.wall;
            self.fold.open(&opening);
        }
        Ok(())
    }

    fn turn(&mut self, turn: Turn) -> Result<Option<TurnOutcome>, Error> {
        let parameters = &self.plan.parameters;
        let samples = if turn.warmup { parameters.warmup_samples } else { parameters.samples };
        let Some(guests) = &mut self.guests else { return Ok(None) };
        let outcome = guests.turn(turn, samples)?;
        self.virtual_time += outcome.run.wall;
        match (Self::is_whole(&outcome), turn.warmup) {
            // A warm-up that ends well does not reset the count: a guest may hang in its counted rounds only.
            (true, false) => self.failures = 0,
            (true, true) => {}
            (false, _) if self.stop.load(Ordering::Relaxed) => return Ok(None),
            (false, false) => self.failures += 1,
            (false, true) => {
                self.failures += 1;
                self.fold.warm_up_failed(&outcome.run);
            }
        }
        Ok(Some(outcome))
    }

    fn is_whole(outcome: &TurnOutcome) -> bool {
        outcome.run.end.is_complete()
    }

    fn result(&self) -> document::Arm {
        let mut result = self.fold.result();
        if self.failures == GIVE_UP {
            let why = format!("{GIVEN_UP} after {GIVE_UP} turns in a row that did not end as they should");
            result.incomplete.push(why);
        }
        result
    }

    fn incomplete(&mut self, why: &str) {
        if self.guests.is_some() {
            self.fold.incomplete(why);
        }
    }

    fn keep(&mut self, turn: Turn, outcome: TurnOutcome) {
        (self.kept)(&outcome.run);
        self.fold.add(turn, &outcome);
    }

    fn close(&mut self, session: u64) -> Result<(), Error> {
        if let Some(outcome) = self.guests.as_mut().map_or(Ok(None), |guests| guests.close())? {
            self.virtual_time += outcome.wall;
            self.fold.close(session, &outcome);
        }
        Ok(())
    }

    fn virtual_time(&self) -> Duration {
        self.virtual_time
    }
}
