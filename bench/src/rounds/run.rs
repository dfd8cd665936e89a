//! Every arm once per round, in random order, and a document after each round.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::plan::Plan;
use super::schedule::Schedule;
use crate::arm::runner::{Arm, ArmRunner, Turn};
use crate::fold::arm::{ArmFold, Place};
use crate::progress::Progress;
use crate::tool;
use results::document::ArmKind;
use results::document::{Document, GuestExtra, SCHEMA, Status, warnings};
use results::error::Error;
use results::host::{HostFacts, HostFs};

/// Number of failed runs in a row after which an arm is dropped: a guest that hangs does so until its time limit, in
/// every round.
const GIVE_UP: u32 = 2;

/// The surroundings of an experiment.
pub struct Context<'a> {
    /// Start of the process's `main`.
    pub process_began: Instant,
    /// Set when the user wants it to end.
    pub stop: &'a AtomicBool,
    /// Source of the host's facts, read again at each save.
    pub fs: &'a HostFs,
    /// The host before the experiment.
    pub host: HostFacts,
    /// The command line, program name first.
    pub command_line: Vec<String>,
    /// Progress display.
    pub progress: &'a mut dyn Progress,
    /// Called with the document after each finished round.
    pub save: &'a mut dyn FnMut(&Document) -> Result<(), Error>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Outcome of an experiment.
#[derive(Debug)]
pub struct Finished {
    /// The document as last saved.
    pub document: Document,
    /// The arms with their rounds' histograms, for exports; in the document's order.
    pub arms: Vec<ArmFold>,
    /// The error that ended it early, if one did. The rounds before it are in the document.
    pub error: Option<Error>,
}

struct Slot<'a> {
    arm: &'a Arm,
    fold: ArmFold,
    runs: bool,
    failures: u32,
}

/// Runs the plan.
///
/// # Errors
/// If no arm can run here, or if nothing was measured before an error.
pub fn run(plan: &Plan, runner: &mut dyn ArmRunner, mut context: Context<'_>) -> Result<Finished, Error> {
    let mut experiment = Experiment::new(plan, runner)?;
    let available = experiment.slots.iter().filter(|slot| slot.runs).count() as u64;
    context.progress.begin(available.saturating_mul(plan.rounds.saturating_add(plan.warmup)));
    let ended = experiment.all_rounds(plan, runner, &mut context);
    context.progress.end();

    let nothing = experiment.slots.iter().all(|slot| slot.fold.intervals().is_empty());
    let error = ended.err();
    if nothing && let Some(error) = error {
        return Err(error);
    }
    if let Some(error) = &error {
        for slot in experiment.slots.iter_mut().filter(|slot| slot.runs) {
            slot.fold.incomplete(&format!("the experiment ended early: {error}"));
        }
    }
    let document = experiment.document(plan, &mut context, true);
    if !nothing {
        (context.save)(&document)?;
    }
    let arms = experiment.slots.into_iter().map(|slot| slot.fold).collect();
    Ok(Finished { document, arms, error })
}

/// A round, counted within the warm-ups or within the rounds that count.
#[derive(Clone, Copy)]
struct Phase {
    index: u64,
    warmup: bool,
}

struct Experiment<'a> {
    slots: Vec<Slot<'a>>,
    began: Instant,
    began_unix: u64,
    wall: Duration,
    /// Sum of the guests' run times.
    guests: Duration,
    /// From the process's `main` to the first instruction of its first guest.
    first_instruction: Option<Duration>,
    interrupted: bool,
}

impl<'a> Experiment<'a> {
    fn new(plan: &'a Plan, runner: &mut dyn ArmRunner) -> Result<Self, Error> {
        let mut reasons = Vec::new();
        let slots: Vec<Slot<'a>> = plan
            .arms
            .iter()
            .map(|arm| {
                let stand_in = arm.kind == ArmKind::Strategy && plan.backend.is_stand_in();
                let mut fold = ArmFold::new(arm, stand_in);
                let runs = match runner.available(arm) {
                    Ok(()) => true,
                    Err(why) => {
                        fold.not_available(&why);
                        reasons.push(format!("{}: {why}", arm.strategy));
                        false
                    }
                };
                Slot { arm, fold, runs, failures: 0 }
            })
            .collect();
        if !slots.iter().any(|slot| slot.runs) {
            return Err(Error::host(
                "no arm can run on this host",
                reasons.join("; "),
                "`vpmu doctor` says what is missing",
            ));
        }
        // A simulation has no date and no wall clock: its document follows from the model, the seed and the parameters.
        let began_unix = if plan.simulated {
            0
        } else {
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
        };
        Ok(Self {
            slots,
            began: Instant::now(),
            began_unix,
            wall: Duration::ZERO,
            guests: Duration::ZERO,
            first_instruction: None,
            interrupted: false,
        })
    }

    fn all_rounds(&mut self, plan: &Plan, runner: &mut dyn ArmRunner, context: &mut Context<'_>) -> Result<(), Error> {
        let mut schedule = Schedule::new(plan.seed);
        // Warm-ups go in the order of the plan.
        let all: Vec<usize> = (0..self.slots.len()).collect();
        for index in 0..plan.warmup {
            self.one_round(&all, plan, runner, context, Phase { index, warmup: true })?;
        }
        for index in 0..plan.rounds {
            let order = schedule.next_round(self.slots.len());
            self.one_round(&order, plan, runner, context, Phase { index, warmup: false })?;
            if self.interrupted || !self.slots.iter().any(|slot| slot.runs && slot.failures < GIVE_UP) {
                break;
            }
            if plan.duration.is_some_and(|bound| self.elapsed(plan) >= bound) {
                break;
            }
            if index + 1 < plan.rounds {
                let document = self.document(plan, context, false);
                (context.save)(&document)?;
            }
        }
        Ok(())
    }

    /// Time since the start: the simulated guests' own, or this host's.
    fn elapsed(&self, plan: &Plan) -> Duration {
        if plan.simulated { self.guests } else { self.began.elapsed() }
    }

    /// Every arm once.
    fn one_round(
        &mut self,
        order: &[usize],
        plan: &Plan,
        runner: &mut dyn ArmRunner,
        context: &mut Context<'_>,
        phase: Phase,
    ) -> Result<(), Error> {
        let mut position = 0;
        for &slot in order {
            let elapsed = self.elapsed(plan);
            let slot = &mut self.slots[slot];
            if !slot.runs || slot.failures >= GIVE_UP {
                continue;
            }
            if self.interrupted || context.stop.load(Ordering::Relaxed) {
                self.interrupted = true;
                return Ok(());
            }
            let Phase { index, warmup } = phase;
            let name = if warmup { "warm-up" } else { "round" };
            context.progress.run(&format!("{name} {}, {}", index + 1, slot.arm.strategy));
            let samples = if warmup { plan.warmup_samples } else { plan.samples };
            let turn = Turn { index, position, warmup, samples };
            let place = Place { turn, started: elapsed };
            let to_this_run = context.process_began.elapsed();
            let outcome = runner.run(slot.arm, turn)?;
            self.guests += outcome.wall;
            if !plan.simulated {
                self.first_instruction.get_or_insert(to_this_run + outcome.start);
            }
            context.progress.step();
            position += 1;
            let complete = outcome.end.is_complete();
            if !complete && context.stop.load(Ordering::Relaxed) {
                // The user's Ctrl-C cut this run short: keep finished ones only.
                self.interrupted = true;
                return Ok(());
            }
            if !warmup {
                slot.fold.add(place, &outcome);
                self.wall = if plan.simulated { self.guests } else { self.began.elapsed() };
            } else if !complete {
                slot.fold.incomplete(&format!("warm-up: {}", outcome.end));
            }
            slot.failures = if complete { 0 } else { slot.failures + 1 };
            if slot.failures == GIVE_UP {
                slot.fold
                    .incomplete(&format!("given up after {GIVE_UP} runs in a row that did not end as they should"));
            }
        }
        Ok(())
    }

    fn document(&self, plan: &Plan, context: &mut Context<'_>, last: bool) -> Document {
        context.host.finish(context.fs);
        let whole = self.slots.iter().all(|slot| slot.fold.is_complete());
        let status = match (last, self.interrupted, whole) {
            (false, _, _) => Status::Running,
            (true, true, _) => Status::Interrupted,
            (true, false, true) => Status::Complete,
            (true, false, false) => Status::Incomplete,
        };
        let mut document = Document {
            path: PathBuf::new(),
            schema: SCHEMA.to_owned(),
            experiment: plan.experiment.to_owned(),
            place: plan.parameters.set_up.is_some().then(|| "guest".to_owned()),
            tool: tool::this(),
            command_line: context.command_line.clone(),
            started_unix: self.began_unix,
            wall_ns: nanos(self.wall),
            status,
            seed: plan.seed,
            parameters: plan.parameters.clone(),
            host: context.host.clone(),
            arms: self.slots.iter().map(|slot| slot.fold.result()).collect(),
            warnings: Vec::new(),
            extra: GuestExtra { first_guest_instruction_ns: self.first_instruction.map(nanos) },
        };
        document.warnings = warnings::collect(&document);
        document
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
