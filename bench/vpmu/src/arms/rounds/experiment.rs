//! An experiment in steps: guests of a session, turns of a round, whole rounds, the document.
//!
//! [`super::run`] takes the steps one after the other, and decides when there are enough.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::plan::Plan;
use crate::arms::arm::runner::{Arm, ArmRunner, LiveGuest, Opened, Turn, TurnOutcome};
use crate::arms::fold::arm::{ArmFold, Place};
use crate::setting::process;
use host_pmu::stats::ns;
use results::document::{ArmKind, BELOW_KVM, Document, GuestExtra, Parameters, SCHEMA, Status, warnings};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::paired::Looks;
use results::write::now_unix;

/// Number of failed turns in a row after which an arm is dropped: a guest that hangs does so until its time limit, in
/// every round.
const GIVE_UP: u32 = 2;

/// A round, counted within the warm-ups or within the rounds that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its index, from 0.
    pub index: u64,
    /// True if its figures are discarded.
    pub warmup: bool,
}

/// An arm of the experiment.
pub(super) struct Slot<'a> {
    pub(super) arm: &'a Arm,
    fold: ArmFold,
    available: bool,
    /// It needs no more rounds.
    pub(super) left: bool,
    failures: u32,
    pub(super) guest: Option<Box<dyn LiveGuest>>,
    /// Its turn of the current round.
    pending: Option<(Place, TurnOutcome)>,
}

impl Slot<'_> {
    /// Returns whether the arm takes part in the next round: it can run here and was not given up.
    pub(super) fn runs(&self) -> bool {
        self.available && !self.left && self.failures < GIVE_UP
    }

    fn note_giving_up(&mut self) {
        if self.failures == GIVE_UP {
            self.fold.incomplete(&format!("given up after {GIVE_UP} turns in a row that did not end as they should"));
        }
    }
}

/// The arms of a plan, their guests and their figures.
pub struct Experiment<'a> {
    pub(super) plan: &'a Plan,
    runner: &'a mut dyn ArmRunner,
    process_began: Instant,
    /// In the order of the plan; some may not run.
    pub(super) slots: Vec<Slot<'a>>,
    began: Instant,
    began_unix: u64,
    /// End of the last whole round.
    wall: Duration,
    /// Sum of the guests' run times.
    guests: Duration,
    /// Sessions begun.
    sessions: u64,
    /// Time from the process's `main` to the first instruction of its first guest.
    first_instruction: Option<Duration>,
    /// Set by the driver when the user wants it to end.
    pub interrupted: bool,
    /// Rounds that counted in the current session.
    pub(super) kept_in_session: u64,
    pub(super) saved: Instant,
    pub(super) looks: Looks,
    /// Arms that needed no more rounds at the last look.
    pub(super) leaving: BTreeSet<String>,
}

impl std::fmt::Debug for Experiment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Experiment").field("plan", &self.plan).field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl<'a> Experiment<'a> {
    /// Asks for each arm whether it can run.
    ///
    /// # Errors
    /// Exit 4 if no arm can run on this host.
    pub fn new(plan: &'a Plan, runner: &'a mut dyn ArmRunner, process_began: Instant) -> Result<Self, Error> {
        let mut reasons = Vec::new();
        // The period of an event that only counts is its counter's width, which rotations begin anew.
        let fixed = plan.guest.boot.freq_hz == 0 && plan.parameters.samples_events();
        let slots: Vec<Slot<'a>> = plan
            .arms
            .iter()
            .map(|arm| {
                let stand_in = arm.kind == ArmKind::Strategy && plan.backend.is_stand_in();
                let mut fold = ArmFold::new(arm, stand_in).with_fixed_periods(fixed);
                if plan.parameters.linux.is_some() {
                    fold = fold.without_deliveries();
                }
                if plan.played.is_some() || plan.replayed.is_some() {
                    fold = fold.of_replay(plan.played.clone());
                }
                if plan.replayed.is_some() {
                    fold = fold.without_deliveries();
                }
                let available = match runner.available(arm) {
                    Ok(()) => true,
                    Err(why) => {
                        fold.not_available(&why);
                        reasons.push(format!("{}: {why}", arm.strategy));
                        false
                    }
                };
                Slot { arm, fold, available, left: false, failures: 0, guest: None, pending: None }
            })
            .collect();
        // Such an arm is there only where it was asked for by name.
        let below_kvm = |slot: &&Slot<'_>| !slot.available && slot.arm.strategy.starts_with(BELOW_KVM);
        if let Some(slot) = slots.iter().find(below_kvm) {
            let why = slot.fold.result().not_available.unwrap_or_default();
            return Err(Error::host(format!("arm {} cannot run on this host", slot.arm.strategy), why, ""));
        }
        if !slots.iter().any(|slot| slot.available) {
            return Err(Error::host(
                "no arm can run on this host",
                reasons.join("; "),
                "`vpmu doctor` says what is missing",
            ));
        }
        // A simulation has no date and no wall clock: its document follows from the model, the seed and the parameters.
        let began_unix = if plan.simulated { 0 } else { now_unix() };
        Ok(Self {
            plan,
            runner,
            process_began,
            slots,
            began: Instant::now(),
            began_unix,
            wall: Duration::ZERO,
            guests: Duration::ZERO,
            sessions: 0,
            first_instruction: None,
            interrupted: false,
            kept_in_session: 0,
            saved: Instant::now(),
            looks: Looks::default(),
            leaving: BTreeSet::new(),
        })
    }

    /// Returns the number of arms that take part.
    pub fn running(&self) -> usize {
        self.slots.iter().filter(|slot| slot.runs()).count()
    }

    /// Starts a session: a fresh guest for each arm that takes part. Nothing is to be done where each turn has a guest of its own.
    /// `stopped` says whether the user wants an end.
    ///
    /// # Errors
    /// Errors of the runner.
    pub fn begin_session(&mut self, stopped: &dyn Fn() -> bool) -> Result<(), Error> {
        if !self.plan.keeps_guests() {
            return Ok(());
        }
        for arm in 0..self.slots.len() {
            self.interrupted |= stopped();
            if self.interrupted {
                break;
            }
            self.open(arm)?;
        }
        self.sessions += 1;
        Ok(())
    }

    /// Starts the guest of one arm for the session that begins, if the arm takes part.
    fn open(&mut self, arm: usize) -> Result<(), Error> {
        let slot = &mut self.slots[arm];
        let samples = self.plan.parameters.samples.max(self.plan.parameters.warmup_samples);
        if !slot.runs() {
            return Ok(());
        }
        let began = self.process_began.elapsed();
        let Opened { guest, opening } = self.runner.open(slot.arm, self.sessions, samples)?;
        slot.guest = Some(guest);
        if let Some(opening) = opening {
            self.guests += opening.wall;
            slot.fold.open(&opening);
            self.started(began + opening.start);
        }
        Ok(())
    }

    /// Notes that a guest's first instruction ran so long after the process's start.
    fn started(&mut self, at: Duration) {
        if !self.plan.simulated {
            self.first_instruction.get_or_insert(at);
        }
    }

    /// Ends the session's guests.
    ///
    /// # Errors
    /// Errors of the runner.
    pub fn end_session(&mut self) -> Result<(), Error> {
        for slot in &mut self.slots {
            let Some(guest) = slot.guest.take() else { continue };
            let outcome = guest.close()?;
            self.guests += outcome.wall;
            slot.fold.close(self.sessions.saturating_sub(1), &outcome);
        }
        Ok(())
    }

    /// Runs one arm's turn of `round`; `position` is its place in the round. `stopped` says whether the user wants an end. Returns whether
    /// it is whole.
    ///
    /// # Errors
    /// Errors of the runner.
    pub fn turn(&mut self, arm: usize, round: Round, position: u64, stopped: &dyn Fn() -> bool) -> Result<bool, Error> {
        let (started, began) = (self.elapsed(), self.process_began.elapsed());
        let slot = &mut self.slots[arm];
        let Round { index, warmup } = round;
        let samples = if warmup { self.plan.parameters.warmup_samples } else { self.plan.parameters.samples };
        let turn = Turn { index, position, warmup, samples };
        let alive = self.plan.keeps_guests();
        let guest = alive.then(|| self.sessions.saturating_sub(1));
        let place = Place { turn, started, guest };
        let outcome = if alive {
            let Some(guest) = &mut slot.guest else { return Ok(false) };
            guest.turn(samples)?
        } else {
            let run = self.runner.run(slot.arm, turn)?;
            TurnOutcome { linux: self.runner.linux(), ..run.into() }
        };
        self.guests += outcome.run.wall;
        let start = outcome.run.start;
        let complete = outcome.run.end.is_complete();
        if !complete {
            slot.guest = None;
            if stopped() {
                self.interrupted = true;
                return Ok(false);
            }
        }
        if !warmup {
            slot.pending = Some((place, outcome));
        } else if !complete {
            slot.fold.warm_up_failed(&outcome.run);
        }
        // A guest that hangs in each round may well end its warm-up.
        slot.failures = if complete { slot.failures * u32::from(warmup) } else { slot.failures + 1 };
        if warmup {
            slot.note_giving_up();
        }
        if !alive {
            self.started(began + start);
        }
        Ok(complete)
    }

    /// Keeps the round, which is over: its turns count.
    pub fn keep_round(&mut self) {
        let now = self.elapsed();
        for slot in &mut self.slots {
            let Some((place, outcome)) = slot.pending.take() else { continue };
            slot.fold.add(place, &outcome);
            slot.note_giving_up();
            self.wall = now;
        }
    }

    /// Drops a round that was cut short: no arm keeps its turn, so that all have the same rounds.
    pub fn drop_round(&mut self) {
        for slot in &mut self.slots {
            slot.pending = None;
        }
    }

    /// Returns the time since the start: the simulated guests' own, or this host's.
    pub fn elapsed(&self) -> Duration {
        if self.plan.simulated { self.guests } else { self.began.elapsed() }
    }

    /// Returns the arms' figures so far, in the order of the plan.
    pub fn folds(&self) -> impl Iterator<Item = &ArmFold> {
        self.slots.iter().map(|slot| &slot.fold)
    }

    /// Marks every available arm as incomplete.
    pub fn incomplete(&mut self, why: &str) {
        for slot in self.slots.iter_mut().filter(|slot| slot.available) {
            slot.fold.incomplete(why);
        }
    }

    /// Returns the parameters; without a wanted number of rounds, it is that of the rounds there are.
    fn parameters(&self) -> Parameters {
        let parameters = self.plan.parameters.clone();
        let kept = self.folds().map(|fold| fold.rounds().len() as u64).max().unwrap_or(0);
        Parameters { rounds: if self.plan.is_open_ended() { kept } else { parameters.rounds }, ..parameters }
    }

    /// Returns the document so far; `last`: nothing follows. The host's facts are brought up to date.
    pub fn document(&self, command_line: &[String], host: &mut HostFacts, fs: &HostFs, last: bool) -> Document {
        host.finish(fs);
        let whole = self.folds().all(ArmFold::is_complete);
        let status = match (last, self.interrupted, whole) {
            (false, _, _) => Status::Running,
            (true, true, _) => Status::Interrupted,
            (true, false, true) => Status::Complete,
            (true, false, false) => Status::Incomplete,
        };
        let plan = self.plan;
        let mut document = Document {
            path: PathBuf::new(),
            schema: SCHEMA.to_owned(),
            experiment: plan.experiment.to_owned(),
            place: plan.parameters.set_up.is_some().then(|| "guest".to_owned()),
            tool: process::tool(),
            command_line: command_line.to_vec(),
            started_unix: self.began_unix,
            wall_ns: ns(self.wall),
            status,
            seed: plan.seed,
            parameters: self.parameters(),
            host: host.clone(),
            arms: self.folds().map(ArmFold::result).collect(),
            warnings: Vec::new(),
            extra: GuestExtra { first_guest_instruction_ns: self.first_instruction.map(ns), answers: Vec::new() },
        };
        document.warnings = warnings::collect(&document);
        document
    }
}
