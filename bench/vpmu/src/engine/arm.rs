//! An arm, and its turn.

use std::time::Duration;

use results::error::Error;

/// A turn of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Number of its round, from 0; warm-ups have numbers of their own.
    pub index: u64,
    /// Place of the arm in the round, from 0.
    pub position: u64,
    /// Whether its figures are discarded.
    pub warmup: bool,
    /// Number of the session, from 0; 0 where nothing lives on.
    pub session: u64,
    /// Its start, after that of the experiment.
    pub started: Duration,
}

/// One of the things that an experiment compares.
pub trait Arm {
    /// Its name, which no other arm of the experiment has.
    fn name(&self) -> &str;

    /// Returns whether it takes part in the next round.
    fn runs(&self) -> bool {
        true
    }

    /// Starts what lives over the turns of a session, before the first of them.
    ///
    /// # Errors
    /// Conditions that make further turns of any arm pointless.
    fn open(&mut self, _session: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Takes a turn, and holds what it measured until the round is over. Returns whether it went well; if not, the session ends.
    ///
    /// # Errors
    /// Conditions that make further turns of any arm pointless.
    fn turn(&mut self, turn: Turn) -> Result<bool, Error>;

    /// Keeps what the last turn measured: its round counts.
    fn keep(&mut self);

    /// Forgets what the last turn measured: its round was cut short.
    fn forget(&mut self);

    /// Ends what lives over the turns of a session, which has this number.
    ///
    /// # Errors
    /// Conditions that make further turns of any arm pointless.
    fn close(&mut self, _session: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the time that it took so far by a clock of its own, as simulated guests have one.
    fn took(&self) -> Duration {
        Duration::ZERO
    }
}
