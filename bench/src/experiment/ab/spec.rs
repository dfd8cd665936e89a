//! The specification of `ab`.

use std::path::PathBuf;
use std::time::Duration;

use results::compare::Limits;

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
    pub rules: Limits,
}

/// Whether a side's options name a simulated host.
fn names_a_model(words: &[String]) -> bool {
    words.iter().any(|word| word.strip_prefix("--backend=").unwrap_or(word).starts_with("sim:"))
}

/// Sessions of a run.
const SESSIONS: u32 = 12;

impl AbSpec {
    /// Whether each side was asked to simulate: a gate must not pass on a simulation that nobody wanted.
    #[must_use]
    pub fn wants_simulation(&self) -> [bool; 2] {
        let common = names_a_model(&self.common);
        [&self.base, &self.new].map(|side| common || names_a_model(&side.args))
    }

    /// How long a session's rounds take; a session then ends with the round in which this passes.
    #[must_use]
    pub fn session(&self) -> Duration {
        (self.duration / SESSIONS).clamp(Duration::from_millis(500), Duration::from_secs(30))
    }
}
