//! The specification of `ab`.

use std::path::PathBuf;
use std::time::Duration;

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
    /// What is judged.
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
    pub rules: Rules,
}

/// Rules of the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Rules {
    /// Level of the adjusted p values.
    pub alpha: f64,
    /// Smallest relative change that is called one.
    pub threshold: f64,
    /// "No change" excludes a slow-down of this share, with 95 % confidence (one-sided).
    pub bound: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { alpha: 0.01, threshold: 0.03, bound: 0.05 }
    }
}

/// Sessions of a run.
const SESSIONS: u32 = 12;

impl AbSpec {
    /// How long a session's rounds take; a session then ends with the round in which this passes.
    #[must_use]
    pub fn session(&self) -> Duration {
        (self.duration / SESSIONS).clamp(Duration::from_millis(500), Duration::from_secs(30))
    }
}
