//! An arm, and its turn.

use std::time::Duration;

use results::document;
use results::error::Error;

/// A turn of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Number of its round, from 0; warm-ups have numbers of their own.
    pub index: u64,
    /// Place of the arm in the round, from 0.
    pub position: u64,
    /// Whether its figures are discarded.
    pub warmup: bool,
    /// Number of the session, from 0; `None` where nothing lives on.
    pub session: Option<u64>,
    /// Its start, after that of the experiment.
    pub started: Duration,
}

/// One of the things that an experiment compares.
pub trait Arm {
    /// What a turn measures.
    type Figures;

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

    /// Takes a turn. What it measured counts once the round is over; `None`: the user cut it short.
    ///
    /// # Errors
    /// Conditions that make further turns of any arm pointless.
    fn turn(&mut self, turn: Turn) -> Result<Option<Self::Figures>, Error>;

    /// Returns whether a turn ended as it should. If not, the session ends, so that all arms begin the next one in the same round.
    fn is_whole(_figures: &Self::Figures) -> bool {
        true
    }

    /// Keeps what a turn measured: its round counts.
    fn keep(&mut self, turn: Turn, figures: Self::Figures);

    /// Returns the arm as a document has it.
    fn result(&self) -> document::Arm;

    /// Notes why it has not all the rounds that were wanted.
    fn incomplete(&mut self, why: &str);

    /// Ends what lives over the turns of a session, which has this number.
    ///
    /// # Errors
    /// Conditions that make further turns of any arm pointless.
    fn close(&mut self, _session: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the time that its turns took so far by a clock of their own, as simulated guests have one.
    fn virtual_time(&self) -> Duration {
        Duration::ZERO
    }
}
