//! `ab`: two builds, or two sets of options, take turns.
//!
//! Two runs minutes apart meet different hosts, and what differs between them is mostly that. Here a [`turn`] of BASE is
//! followed, or preceded, by one of NEW. A turn is a whole process, `vpmu nmi-latency` with six rounds, so that the layout
//! of one process is not taken for a difference of builds, and any build with that command can be a side. The two turns of
//! a pair are a ratio for each arm; [`judge`] knows only those.

pub mod judge;
pub mod run;
pub mod show;
pub mod turn;

use std::path::PathBuf;
use std::time::Duration;

use results::verdict::Limits;

/// One of the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// BASE or NEW.
    pub name: &'static str,
    /// The build.
    pub binary: PathBuf,
    /// Options of its own.
    pub args: Vec<String>,
}

/// Parameters of `ab`.
#[derive(Clone, Debug, PartialEq)]
pub struct AbSpec {
    /// The reference, and the side that is judged.
    pub sides: [Side; 2],
    /// Options that both sides get, each in one word, unless the side has its own.
    pub common: Vec<String>,
    /// Bound on the whole run: it ends with the pair in which this time passes.
    pub duration: Duration,
    /// Bound on the pairs.
    pub pairs: Option<u64>,
    /// The run ends once every judged ratio is known to this share.
    pub until_ci: Option<f64>,
    /// Seed of all orders.
    pub seed: u64,
    /// Rules of the verdicts.
    pub rules: Limits,
}
