//! Rounds of turns, until there are enough.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use results::error::Error;

use super::arm::{Arm, Turn};
use super::schedule::Schedule;
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
    /// The rounds end after the one in which this time passes.
    pub duration: Option<Duration>,
    /// Seed of the order within each round.
    pub seed: u64,
    /// Time is that of the arms' own clocks.
    pub simulated: bool,
}

/// State of an experiment.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// End of the last whole round, after the start.
    pub wall: Duration,
    /// The user ended it.
    pub interrupted: bool,
    /// The next round begins with a session of its own.
    pub between_sessions: bool,
}

/// Called after each whole round that another may follow; returns whether there are enough.
pub(super) type After<'a, A> = &'a mut dyn FnMut(&mut [A], &State) -> Result<bool, Error>;

/// The surroundings of an experiment.
pub struct Watch<'a, A> {
    /// Set when the user wants it to end.
    pub stop: &'a AtomicBool,
    /// Told of each turn.
    pub progress: &'a mut dyn Progress,
    /// Decides whether there are enough rounds.
    pub after: After<'a, A>,
}

impl<A> std::fmt::Debug for Watch<'_, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// Runs the rounds. Whole rounds before an error stay with the arms.
pub fn run<A: Arm>(arms: &mut [A], rounds: &Rounds, watch: Watch<'_, A>) -> (State, Result<(), Error>) {
    let (began, state) = (Instant::now(), State::default());
    let mut engine = Engine { arms, rounds, watch, began, state, sessions: 0, is_open: false, kept: 0 };
    let ended = engine.all();
    (engine.state, ended)
}

struct Engine<'a, 'w, A> {
    arms: &'a mut [A],
    rounds: &'a Rounds,
    watch: Watch<'w, A>,
    began: Instant,
    state: State,
    /// Sessions so far, the present one included.
    sessions: u64,
    is_open: bool,
    /// Rounds that count of the present session.
    kept: u64,
}

impl<A: Arm> Engine<'_, '_, A> {
    fn all(&mut self) -> Result<(), Error> {
        let Rounds { rounds, session, duration, seed, .. } = *self.rounds;
        let mut schedule = Schedule::new(seed);
        if session.is_none() {
            self.warm_up()?;
        }
        for index in 0..rounds {
            if session.is_some() {
                self.session()?;
            }
            let order = schedule.next_round(self.arms.len());
            self.round(&order, index, false)?;
            self.state.between_sessions = self.is_between_sessions();
            let is_over = duration.is_some_and(|bound| self.elapsed() >= bound);
            if self.state.interrupted || is_over || !self.arms.iter().any(Arm::runs) || index + 1 == rounds {
                break;
            }
            if (self.watch.after)(self.arms, &self.state)? {
                break;
            }
        }
        self.close()
    }

    /// Returns the time since the start: by the arms' own clocks, or the host's.
    fn elapsed(&self) -> Duration {
        if self.rounds.simulated { self.arms.iter().map(Arm::took).sum() } else { self.began.elapsed() }
    }

    fn is_interrupted(&mut self) -> bool {
        self.state.interrupted |= self.watch.stop.load(Ordering::Relaxed);
        self.state.interrupted
    }

    /// Warms the arms up, in their own order.
    fn warm_up(&mut self) -> Result<(), Error> {
        let all: Vec<usize> = (0..self.arms.len()).collect();
        (0..self.rounds.warmup).try_for_each(|index| self.round(&all, index, true))
    }

    /// Gives every arm that runs one turn.
    fn round(&mut self, order: &[usize], index: u64, warmup: bool) -> Result<(), Error> {
        let name = if warmup { "warm-up".to_owned() } else { format!("round {}", index + 1) };
        let (mut position, mut well) = (0, true);
        for &at in order {
            if !self.arms[at].runs() {
                continue;
            }
            if self.is_interrupted() {
                break;
            }
            let (session, started) = (self.sessions.saturating_sub(1), self.elapsed());
            let arm = &mut self.arms[at];
            self.watch.progress.run(&format!("{name}, {}", arm.name()));
            let whole = arm.turn(Turn { index, position, warmup, session, started })?;
            self.watch.progress.step();
            // A turn that the user cut short is no fault of its arm.
            if !whole && self.is_interrupted() {
                break;
            }
            (position, well) = (position + 1, well && whole);
        }
        if warmup || self.state.interrupted {
            self.arms.iter_mut().for_each(Arm::forget);
        } else {
            self.arms.iter_mut().for_each(Arm::keep);
            (self.kept, self.state.wall) = (self.kept + 1, self.elapsed());
        }
        // All arms change what lives on at the same rounds.
        if well || self.state.interrupted { Ok(()) } else { self.close() }
    }

    fn is_between_sessions(&self) -> bool {
        !self.is_open || self.rounds.session.is_none_or(|rounds| self.kept >= rounds)
    }

    /// Opens and warms up a session if there is none, or it has had its rounds.
    fn session(&mut self) -> Result<(), Error> {
        if self.is_between_sessions() {
            self.close()?;
        }
        // An arm that fails in its warm-up ends the session, and at last takes no more part.
        while !self.is_open && self.arms.iter().any(Arm::runs) && !self.is_interrupted() {
            (self.is_open, self.kept) = (true, 0);
            for at in 0..self.arms.len() {
                if self.is_interrupted() {
                    break;
                }
                if self.arms[at].runs() {
                    self.arms[at].open(self.sessions)?;
                }
            }
            self.sessions += 1;
            self.warm_up()?;
        }
        Ok(())
    }

    /// Ends the session, if there is one.
    fn close(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        let session = self.sessions.saturating_sub(1);
        self.arms.iter_mut().try_for_each(|arm| arm.close(session))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use results::error::Exit;

    use super::*;
    use crate::terminal::progress::Silent;

    /// An arm that writes down what it is told to do.
    struct Scribe<'a> {
        name: &'static str,
        told: &'a RefCell<Vec<String>>,
        /// Answers by the number of its turns.
        turns: u64,
        answer: fn(u64) -> Result<bool, Error>,
    }

    impl Scribe<'_> {
        fn says(&self, what: &str) {
            self.told.borrow_mut().push(format!("{} {what}", self.name));
        }
    }

    impl Arm for Scribe<'_> {
        fn name(&self) -> &str {
            self.name
        }

        fn open(&mut self, session: u64) -> Result<(), Error> {
            self.says(&format!("opens {session}"));
            Ok(())
        }

        fn turn(&mut self, turn: Turn) -> Result<bool, Error> {
            self.says(&format!("{}{}.{}", if turn.warmup { "w" } else { "r" }, turn.index, turn.session));
            self.turns += 1;
            (self.answer)(self.turns)
        }

        fn keep(&mut self) {
            self.says("keeps");
        }

        fn forget(&mut self) {
            self.says("forgets");
        }

        fn close(&mut self, session: u64) -> Result<(), Error> {
            self.says(&format!("closes {session}"));
            Ok(())
        }

        fn took(&self) -> Duration {
            Duration::from_millis(10 * self.turns)
        }
    }

    fn told(
        rounds: Rounds,
        stop: &AtomicBool,
        answer: fn(u64) -> Result<bool, Error>,
    ) -> (Vec<String>, State, Option<Error>) {
        let told = RefCell::new(Vec::new());
        let mut arms = ["a", "b"].map(|name| Scribe { name, told: &told, turns: 0, answer });
        let watch = Watch { stop, progress: &mut Silent, after: &mut |_, _| Ok(false) };
        let (state, ended) = run(&mut arms, &rounds, watch);
        (told.into_inner(), state, ended.err())
    }

    const ROUNDS: Rounds = Rounds { rounds: 3, warmup: 1, session: Some(2), duration: None, seed: 1, simulated: true };

    #[test]
    fn sessions_open_warm_up_and_close_together() {
        let (told, state, _) = told(ROUNDS, &AtomicBool::new(false), |_| Ok(true));
        let of_a: Vec<&str> = told.iter().filter_map(|line| line.strip_prefix("a ")).collect();
        let first = ["opens 0", "w0.0", "forgets", "r0.0", "keeps", "r1.0", "keeps", "closes 0"];
        assert_eq!(of_a, [&first[..], &["opens 1", "w0.1", "forgets", "r2.1", "keeps", "closes 1"]].concat());
        let place = |line: &str| told.iter().position(|told| told == line);
        assert!(place("b closes 0") < place("a opens 1") && place("a closes 0") < place("b opens 1"));
        assert!(!state.interrupted && state.wall == Duration::from_millis(100));
    }

    #[test]
    fn the_time_of_simulated_arms_is_their_own() {
        let bounded = Rounds { rounds: 9, session: None, duration: Some(Duration::from_millis(61)), ..ROUNDS };
        let (told, ..) = told(bounded, &AtomicBool::new(false), |_| Ok(true));
        assert_eq!(told.iter().filter(|line| line.contains(" r")).count(), 6, "80 ms after the third round");
    }

    #[test]
    fn an_error_at_the_nth_turn_leaves_the_whole_rounds_before_it() {
        let alone = Rounds { warmup: 0, session: None, ..ROUNDS };
        let (told, _, error) =
            told(
                alone,
                &AtomicBool::new(false),
                |turns| if turns == 2 { Err(Error::host("gone", "", "")) } else { Ok(true) },
            );
        assert_eq!(error.map(|error| error.exit), Some(Exit::Host));
        assert_eq!(told.iter().filter(|line| line.ends_with("keeps")).count(), 2, "{told:?}");
    }

    #[test]
    fn a_turn_that_fails_ends_the_session() {
        let (told, ..) = told(Rounds { warmup: 0, ..ROUNDS }, &AtomicBool::new(false), |turns| Ok(turns != 1));
        let closes: Vec<&String> = told.iter().filter(|line| line.starts_with("a closes")).collect();
        assert_eq!(closes, ["a closes 0", "a closes 1"]);
        assert!(told.contains(&"a r1.1".to_owned()));
    }
}
