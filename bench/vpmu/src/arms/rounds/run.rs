//! Every arm once per round, in random order, and a document at the end of each session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::experiment::{Experiment, Round, TurnEnd};
use super::plan::Plan;
use super::precision;
use super::schedule::Schedule;
use crate::arms::arm::runner::ArmRunner;
use crate::arms::fold::arm::ArmFold;
use crate::terminal::progress::Progress;
use host_pmu::backend::BackendKey;
use results::answers;
use results::document::{Document, Warning, warnings};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::paired::Looks;
use results::table::layout::{percent, plural};

/// Longest time without a save while rounds are finished.
const SAVE: Duration = Duration::from_secs(5);

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
    /// Called with the document at the end of each session, and at least every few seconds if rounds were finished.
    pub save: &'a mut dyn FnMut(&Document) -> Result<(), Error>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Context<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn document(&mut self, experiment: &Experiment<'_>, last: bool) -> Document {
        experiment.document(&self.command_line, &mut self.host, self.fs, last)
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

/// Runs the plan.
///
/// # Errors
/// If no arm can run here, or if nothing was measured before an error.
pub fn run(plan: &Plan, runner: &mut dyn ArmRunner, mut context: Context<'_>) -> Result<Finished, Error> {
    let mut experiment = Experiment::new(plan, runner, context.process_began)?;
    let turns = (experiment.running() as u64).saturating_mul(plan.expected_rounds(experiment.running()));
    context.progress.expect(&expectation(plan, experiment.running()));
    context.progress.begin(turns);
    let ended = Rounds {
        experiment: &mut experiment,
        plan,
        kept_in_session: 0,
        saved: Instant::now(),
        looks: Looks::default(),
    }
    .all(&mut context);
    context.progress.end();

    let nothing = experiment.is_empty();
    let error = ended.err();
    if nothing && let Some(error) = error {
        return Err(error);
    }
    if let Some(error) = &error {
        experiment.incomplete(&format!("the experiment ended early: {error}"));
    }
    let mut document = context.document(&experiment, true);
    if let Some(why) = plan
        .parameters
        .until_ci
        .and_then(|wanted| precision::missing(&document.arms, answers::metric(&plan.parameters), wanted))
    {
        document.warnings.push(Warning::of_all(warnings::UNSURE, why));
    }
    if !nothing {
        (context.save)(&document)?;
    }
    Ok(Finished { document, arms: experiment.into_folds(), error })
}

/// Tells a user who waits for the result what to expect.
fn expectation(plan: &Plan, arms: usize) -> String {
    let rounds = plan.parameters.rounds;
    let (rounds_text, arms_text) =
        (plural(usize::try_from(rounds).unwrap_or(usize::MAX), "round"), plural(arms, "arm"));
    let what = match (plan.parameters.until_ci, plan.duration()) {
        (Some(share), _) => format!("rounds of {arms_text} until every ratio is known to ± {} %", percent(share)),
        (None, Some(_)) if plan.is_open_ended() => format!("as many rounds of {arms_text} as fit"),
        (None, Some(_)) => format!("up to {rounds_text} of {arms_text}"),
        (None, None) => format!("{rounds_text} of {arms_text}"),
    };
    let pinned = plan.parameters.pin.as_ref().map_or("not pinned".to_owned(), |list| format!("pinned to CPU {list}"));
    if plan.simulated {
        return format!("simulating {what}");
    }
    let seconds = |time: Duration| time.as_secs_f64().max(1.0).round();
    if plan.parameters.linux.is_some() {
        // A boot takes two seconds or twenty.
        let time = match plan.duration() {
            Some(bound) => format!("at most {} s", seconds(bound)),
            None => {
                let guests = plan.guests().saturating_mul(u64::try_from(arms).unwrap_or(u64::MAX));
                format!("about {} s and the boots of {guests} guests", seconds(plan.estimate(arms)))
            }
        };
        return format!("this takes {time}: {what}, {pinned}");
    }
    let seconds = seconds(plan.estimate(arms));
    // The rate of a tracepoint is unknown, so only the time limit bounds the run.
    let unknown = plan.parameters.until_ci.is_some() || matches!(plan.backend, BackendKey::Tracepoint { .. });
    let most = if unknown { "at most" } else { "about" };
    format!("this takes {most} {seconds} s: {what}, {pinned}")
}

/// The rounds of a plan, one after the other.
struct Rounds<'a, 'b> {
    experiment: &'a mut Experiment<'b>,
    plan: &'a Plan,
    /// Rounds that counted in the current session.
    kept_in_session: u64,
    saved: Instant,
    looks: Looks,
}

impl Rounds<'_, '_> {
    fn all(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let plan = self.plan;
        let mut schedule = Schedule::new(plan.seed);
        if !plan.keeps_guests() {
            self.warm_up(context)?;
        }
        for index in 0..plan.parameters.rounds {
            if plan.keeps_guests() {
                self.session(context)?;
            }
            let order = schedule.next_round(self.experiment.arms());
            self.one(&order, context, Round { index, warmup: false })?;
            if self.experiment.interrupted || self.experiment.running() == 0 {
                break;
            }
            if plan.duration().is_some_and(|bound| self.experiment.elapsed() >= bound) {
                break;
            }
            if index + 1 < plan.parameters.rounds {
                self.save(context)?;
            }
            if self.is_sure() {
                break;
            }
        }
        self.experiment.end_session()
    }

    /// Warms the arms up, in the order of the plan.
    fn warm_up(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let all: Vec<usize> = (0..self.experiment.arms()).collect();
        for index in 0..self.plan.parameters.warmup_rounds {
            self.one(&all, context, Round { index, warmup: true })?;
        }
        Ok(())
    }

    /// Runs every arm once.
    fn one(&mut self, order: &[usize], context: &mut Context<'_>, round: Round) -> Result<(), Error> {
        let name = if round.warmup { "warm-up".to_owned() } else { format!("round {}", round.index + 1) };
        let (mut position, mut failed) = (0, false);
        for &arm in order {
            if !self.experiment.runs(arm) {
                continue;
            }
            if self.experiment.interrupted || context.stopped() {
                self.experiment.interrupted = true;
                break;
            }
            context.progress.run(&format!("{name}, {}", self.experiment.name(arm)));
            match self.experiment.turn(arm, round, position, &|| context.stopped())? {
                TurnEnd::Finished => {}
                TurnEnd::Failed => failed = true,
                TurnEnd::Interrupted => self.experiment.interrupted = true,
            }
            context.progress.step();
            position += 1;
        }
        if self.experiment.interrupted {
            self.experiment.drop_round();
        } else {
            self.experiment.keep_round();
            self.kept_in_session += u64::from(!round.warmup);
        }
        if failed && self.plan.keeps_guests() {
            // All arms change guests at the same rounds.
            self.experiment.end_session()?;
        }
        Ok(())
    }

    /// Starts and warms up guests if there are none, or they are a session old.
    fn session(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        if self.is_between_guests() {
            self.experiment.end_session()?;
        }
        // A guest that fails in its warm-up ends the session, and at last its arm.
        while !self.experiment.in_session() && !self.experiment.interrupted && self.experiment.running() > 0 {
            self.kept_in_session = 0;
            self.experiment.begin_session(&|| context.stopped())?;
            self.warm_up(context)?;
        }
        Ok(())
    }

    /// Returns whether the next round begins with fresh guests.
    fn is_between_guests(&self) -> bool {
        !self.plan.keeps_guests() || self.kept_in_session >= self.plan.rounds_per_guest()
    }

    /// Returns whether the intervals are as narrow as wanted; looked at between guests, because guests differ.
    fn is_sure(&mut self) -> bool {
        let Some(wanted) = self.plan.parameters.until_ci.filter(|_| self.is_between_guests()) else { return false };
        let arms = || self.experiment.folds().map(ArmFold::result).collect::<Vec<_>>();
        self.looks.are_enough(|| precision::is_reached(&arms(), answers::metric(&self.plan.parameters), wanted))
    }

    fn save(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        if self.is_between_guests() || self.saved.elapsed() >= SAVE {
            let document = context.document(self.experiment, false);
            (context.save)(&document)?;
            self.saved = Instant::now();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
