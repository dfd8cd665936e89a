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

/// Returns whether options name a simulated host: by their last `--backend`, which is the one that holds.
fn names_a_model<'a>(words: impl Iterator<Item = &'a String>) -> bool {
    let (mut simulated, mut is_backend) = (false, false);
    for word in words {
        if let Some(backend) = is_backend.then_some(word.as_str()).or_else(|| word.strip_prefix("--backend=")) {
            simulated = backend.starts_with("sim:");
        }
        is_backend = !is_backend && word == "--backend";
    }
    simulated
}

/// Sessions of a run.
const SESSIONS: u32 = 12;

impl AbSpec {
    /// Returns for each side whether it was asked to simulate: a gate must not pass on a simulation that nobody wanted.
    pub fn wants_simulation(&self) -> [bool; 2] {
        [&self.base, &self.new].map(|side| names_a_model(self.common.iter().chain(&side.args)))
    }

    /// Returns the time of a session's rounds; a session ends with the round in which this passes.
    pub fn session(&self) -> Duration {
        (self.duration / SESSIONS).clamp(Duration::from_millis(500), Duration::from_secs(30))
    }
}
