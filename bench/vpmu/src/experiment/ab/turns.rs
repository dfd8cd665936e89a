//! The turns of both sides, by arm and round.

use results::document::Metrics;
use serde::Serialize;

/// An arm, in the order of BASE.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbArm {
    /// Its name; BASE → NEW where the two differ.
    pub name: String,
    /// Its whole rounds, in order of time.
    pub rounds: Vec<AbRound>,
}

/// A round of an arm: a turn of each side, one right after the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbRound {
    /// Number of the round.
    pub round: u64,
    /// Number of the session.
    pub session: u64,
    /// BASE's turn.
    pub base: AbTurn,
    /// NEW's turn.
    pub new: AbTurn,
}

/// A turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AbTurn {
    /// Time of the throughput probe just before it, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<f64>,
    /// Its metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
}
