//! Rounds of turns, until there are enough.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host_pmu::stats::ns;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use results::document::{Document, Experiment, Parameters, SCHEMA, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::write::now_unix;

use super::arm::{Arm, Turn};
use crate::setting::process;
use crate::terminal::progress::Progress;

/// How many rounds there are, and what ends them before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds that count.
    pub rounds: u64,
    /// Rounds before those, or at the begin of each session, whose figures are discarded.
    pub warmup: u64,
    /// Rounds of a session, in which what an arm opened lives on; `None`: nothing is opened.
    pub session: Option<u64>,
    /// Rounds that are measured however long they take: a verdict needs as many.
    pub least: u64,
    /// The rounds end after the one in which this time passes.
    pub duration: Option<Duration>,
    /// Seed of the order within each round.
    pub seed: u64,
    /// Time is that of the arms' own clocks.
    pub simulated: bool,
}

impl Rounds {
    /// So many rounds, and nothing that lives on.
    pub const fn of(rounds: u64, seed: u64) -> Self {
        Self { rounds, warmup: 0, session: None, least: 0, duration: None, seed, simulated: false }
    }
}

/// State of an experiment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// End of the last whole round, after the start.
    pub wall: Duration,
    /// The user ended it.
    pub interrupted: bool,
    /// The next round begins with a session of its own.
    pub between_sessions: bool,
}

/// Called after each whole round that another may follow; returns whether there are enough.
pub(crate) type After<'a, A> = &'a mut dyn FnMut(&mut [A], &State) -> Result<bool, Error>;

/// Longest time without a save while rounds are finished.
const SAVE: Duration = Duration::from_secs(5);

/// The surroundings of an experiment.
pub(crate) struct Context<'a, D> {
    /// Set when the user wants it to end.
    pub(crate) stop: &'a AtomicBool,
    /// Source of the host's facts, read again at each save.
    pub(crate) fs: &'a HostFs,
    /// The host before the experiment.
    pub(crate) host: HostFacts,
    /// The command line, program name first.
    pub(crate) command_line: &'a [String],
    /// Progress display.
    pub(crate) progress: &'a mut dyn Progress,
    /// Called with the document at the end of each session, and every few seconds if rounds were finished.
    pub(crate) save: &'a mut dyn FnMut(&D) -> Result<(), Error>,
}

/// The facts of an experiment that its document has beside its arms.
pub(crate) struct About<'a, E: Experiment> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its place, if it has several.
    pub(crate) place: Option<&'a str>,
    /// Every parameter.
    pub(crate) parameters: E,
    /// Adds what follows from the rest, and to the last one what it ends with.
    pub(crate) complete: &'a dyn Fn(&mut Document<E>, bool),
}

/// A document, and the error that ended its experiment early, if one did: the whole rounds before it are in the document.
pub type Measured<E = Parameters> = (Document<E>, Option<Error>);

/// Decides whether there are enough rounds, by the document so far where it looks at that.
pub(crate) type Enough<'a, E> = &'a mut dyn FnMut(&State, &mut dyn FnMut() -> Document<E>) -> bool;

/// Runs the rounds to their document.
///
/// # Errors
/// If nothing was measured before an error, exit 3 if that was an interrupt, and those of the last save.
pub(crate) fn measure<A: Arm, E: Experiment>(
    arms: &mut [A],
    rounds: &Rounds,
    about: &About<'_, E>,
    context: Context<'_, Document<E>>,
    enough: Enough<'_, E>,
) -> Result<Measured<E>, Error> {
    let Context { stop, fs, mut host, command_line, progress, save } = context;
    // A simulation has no date and no wall clock: its document follows from the model, the seed and the parameters.
    let started_unix = if rounds.simulated { 0 } else { now_unix() };
    let mut document = |arms: &[A], state: &State, last: bool| {
        host.finish(fs);
        let arms: Vec<_> = arms.iter().map(Arm::result).collect();
        let mut document = Document {
            path: PathBuf::new(),
            schema: SCHEMA.to_owned(),
            experiment: about.name.to_owned(),
            place: about.place.map(str::to_owned),
            tool: process::tool(),
            command_line: command_line.to_vec(),
            started_unix,
            wall_ns: ns(state.wall),
            status: match (last, state.interrupted) {
                (false, _) => Status::Running,
                (true, true) => Status::Interrupted,
                (true, false) if arms.iter().all(|arm| arm.incomplete.is_empty()) => Status::Complete,
                (true, false) => Status::Incomplete,
            },
            seed: rounds.seed,
            parameters: about.parameters.clone(),
            host: host.clone(),
            arms,
            warnings: Vec::new(),
            answer: Vec::new(),
            exit: None,
        };
        (about.complete)(&mut document, last);
        document
    };
    let mut saved = Instant::now();
    let mut after = |arms: &mut [A], state: &State| {
        if rounds.session.is_some() && state.between_sessions || saved.elapsed() >= SAVE {
            save(&document(arms, state, false))?;
            saved = Instant::now();
        }
        Ok(enough(state, &mut || document(arms, state, false)))
    };
    let (state, ended) = run(arms, rounds, stop, progress, &mut after);
    let error = ended.err();
    if (error.is_some() || state.interrupted) && arms.iter().all(|arm| arm.result().rounds.is_empty()) {
        let what = "interrupted before the first round";
        return Err(error.unwrap_or_else(|| Error::new(Exit::Inconclusive, what, "", "nothing is saved")));
    }
    if let Some(error) = &error {
        let why = format!("the experiment ended early: {error}");
        for arm in &mut *arms {
            arm.incomplete(&why);
        }
    }
    let mut document = document(arms, &state, true);
    document.ended_by(error.as_ref());
    save(&document)?;
    Ok((document, error))
}

/// Runs the rounds, until the user sets `stop`. Whole rounds before an error stay with the arms.
pub(crate) fn run<A: Arm>(
    arms: &mut [A],
    rounds: &Rounds,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
    after: After<'_, A>,
) -> (State, Result<(), Error>) {
    let (began, state) = (Instant::now(), State::default());
    let running = arms.iter().filter(|arm| arm.runs()).count() as u64;
    let warmups = rounds.warmup.saturating_mul(rounds.session.map_or(1, |one| rounds.rounds.div_ceil(one.max(1))));
    progress.begin(running.saturating_mul(rounds.rounds.saturating_add(warmups)));
    if let Some(bound) = rounds.duration.filter(|_| !rounds.simulated) {
        progress.within(bound);
    }
    let mut engine = Engine { arms, rounds, stop, progress, after, began, state, sessions: 0, left: 0 };
    let ended = engine.all();
    engine.progress.end();
    (engine.state, ended)
}

struct Engine<'a, 'b, A> {
    arms: &'a mut [A],
    rounds: &'a Rounds,
    stop: &'a AtomicBool,
    progress: &'a mut dyn Progress,
    after: After<'b, A>,
    began: Instant,
    state: State,
    /// Sessions so far, the present one included.
    sessions: u64,
    /// Rounds that the present session has left, if there is one. Where nothing lives on, all rounds are one session.
    left: u64,
}

impl<A: Arm> Engine<'_, '_, A> {
    fn all(&mut self) -> Result<(), Error> {
        let Rounds { rounds, session, least, duration, seed, .. } = *self.rounds;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for index in 0..rounds {
            self.open()?;
            let order = next_round(&mut rng, self.arms.len());
            self.round(&order, index, false)?;
            self.state.between_sessions = session.is_none() || self.left == 0;
            let is_over = index + 1 >= least && duration.is_some_and(|bound| self.state.wall >= bound);
            if self.state.interrupted || is_over || !self.arms.iter().any(Arm::runs) || index + 1 == rounds {
                break;
            }
            if (self.after)(self.arms, &self.state)? {
                break;
            }
        }
        self.close()
    }

    /// Returns the time since the start: by the arms' own clocks, or the host's.
    fn elapsed(&self) -> Duration {
        if self.rounds.simulated { self.arms.iter().map(Arm::virtual_time).sum() } else { self.began.elapsed() }
    }

    fn is_interrupted(&mut self) -> bool {
        self.state.interrupted |= self.stop.load(Ordering::Relaxed);
        self.state.interrupted
    }

    /// Warms the arms up, in their own order.
    fn warm_up(&mut self) -> Result<(), Error> {
        let all: Vec<usize> = (0..self.arms.len()).collect();
        for index in 0..self.rounds.warmup {
            self.round(&all, index, true)?;
            // A turn that was not whole has ended the session: its arms have no guests for another.
            if self.left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Gives every arm that runs one turn.
    fn round(&mut self, order: &[usize], index: u64, warmup: bool) -> Result<(), Error> {
        let name = if warmup { "warm-up".to_owned() } else { format!("round {}", index + 1) };
        let (mut all_whole, mut measured) = (true, Vec::new());
        for &at in order {
            if !self.arms[at].runs() {
                continue;
            }
            if self.is_interrupted() {
                return Ok(());
            }
            let session = self.rounds.session.map(|_| self.sessions.saturating_sub(1));
            let started = self.elapsed();
            let turn = Turn { index, position: measured.len() as u64, warmup, session, started };
            let arm = &mut self.arms[at];
            self.progress.run(&format!("{name}, {}", arm.name()));
            let figures = arm.turn(turn)?;
            self.progress.step();
            let is_whole = figures.as_ref().is_some_and(A::is_whole);
            // A turn that the user cut short is no fault of its arm.
            if !is_whole && self.is_interrupted() {
                return Ok(());
            }
            all_whole &= is_whole;
            measured.extend(figures.map(|figures| (at, turn, figures)));
        }
        if !warmup {
            for (at, turn, figures) in measured {
                self.arms[at].keep(turn, figures);
            }
            self.state.wall = self.elapsed();
            if self.left == 1 {
                return self.close();
            }
            self.left = self.left.saturating_sub(1);
        }
        if all_whole { Ok(()) } else { self.close() }
    }

    /// Opens and warms up a session, if there is none.
    fn open(&mut self) -> Result<(), Error> {
        // An arm that fails in every warm-up is given up at last, which ends this loop.
        while self.left == 0 && self.arms.iter().any(Arm::runs) && !self.is_interrupted() {
            self.left = self.rounds.session.unwrap_or(u64::MAX);
            for at in 0..self.arms.len() {
                if self.rounds.session.is_some() && self.arms[at].runs() && !self.is_interrupted() {
                    self.arms[at].open(self.sessions)?;
                }
            }
            self.sessions += 1;
            self.warm_up()?;
        }
        Ok(())
    }

    /// Ends the session, if there is one in which something lives on.
    fn close(&mut self) -> Result<(), Error> {
        if self.rounds.session.is_none() || std::mem::take(&mut self.left) == 0 {
            return Ok(());
        }
        let session = self.sessions.saturating_sub(1);
        self.arms.iter_mut().try_for_each(|arm| arm.close(session))
    }
}

/// Draws a number below `bound`, every one equally likely. `bound` must not be 0.
fn below(rng: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    // The largest multiple of `bound`: what lies above would favour small results.
    let limit = u64::MAX - u64::MAX % bound;
    loop {
        let drawn = rng.next_u64();
        if drawn < limit {
            return drawn % bound;
        }
    }
}

/// Returns `0..arms` in random order.
fn next_round(rng: &mut Xoshiro256PlusPlus, arms: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..arms).collect();
    let mut order = Vec::with_capacity(arms);
    while !left.is_empty() {
        let drawn = below(rng, left.len() as u64);
        order.push(left.remove(usize::try_from(drawn).unwrap_or(0)));
    }
    order
}
