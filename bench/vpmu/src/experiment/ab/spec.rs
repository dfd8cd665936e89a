//! The specification of `ab`.

use std::path::PathBuf;
use std::time::Duration;

use results::verdict::Limits;

/// One of the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The build.
    pub binary: PathBuf,
    /// Options of its own, after the common ones.
    pub args: Vec<String>,
}

/// Parameters of `ab`.
#[derive(Clone, Debug, PartialEq)]
pub struct AbSpec {
    /// The reference.
    pub base: Side,
    /// Side that is judged.
    pub new: Side,
    /// Options that both sides get.
    pub common: Vec<String>,
    /// Bound on the whole run: it ends with the round in which this time passes.
    pub duration: Duration,
    /// Bound on the rounds.
    pub rounds: Option<u64>,
    /// The run ends, at the end of a session, once every judged ratio is known to this share.
    pub until_ci: Option<f64>,
    /// Seed of all orders.
    pub seed: u64,
    /// Rules of the verdicts.
    pub rules: Limits,
}

/// Sessions of a run.
const SESSIONS: u32 = 12;

impl AbSpec {
    /// Returns the time of a session's rounds; a session ends with the round in which this passes.
    pub fn session(&self) -> Duration {
        (self.duration / SESSIONS).clamp(Duration::from_millis(500), Duration::from_secs(30))
    }
}
