//! Result of a comparison of two sides of a fleet.

use serde::Serialize;

use crate::statistics::Kind;
use results::error::Exit;
use results::stats::interval::Interval;
use results::verdict::Verdict;

/// One figure of one class, over the hosts that both sides have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetRow {
    /// Setting.
    pub setting: String,
    /// Host class.
    pub class: String,
    /// All arms' times together, or one arm's ratio.
    pub kind: Kind,
    /// Arm, or "all arms".
    pub arm: String,
    /// Metric.
    pub metric: String,
    /// Mean over hosts in BASE and NEW: ns, or a ratio.
    pub base: f64,
    /// Level in NEW.
    pub new: f64,
    /// Relative change: the mean of the hosts' log ratios.
    pub change: f64,
    /// Its 95 % interval, by t over hosts; `None` of one host.
    pub interval: Option<Interval>,
    /// Two-sided p value.
    pub p: Option<f64>,
    /// Adjusted for the rows (Holm).
    pub p_adjusted: Option<f64>,
    /// Hosts with runs on both sides.
    pub hosts: usize,
    /// Runs of BASE and NEW on them.
    pub runs: [usize; 2],
    /// Runs were paired by repetition, so that the effect of a repetition on both sides cancels out.
    pub by_repetition: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is open, and what would do; empty where it is not.
    pub why: String,
}

/// Two sides of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetComparison {
    /// The verdict in a sentence.
    pub verdict: String,
    /// The exit code.
    pub exit: u8,
    /// Hosts on both sides.
    pub hosts: usize,
    /// Hosts on one side only, which were left out.
    pub only_base: Vec<String>,
    /// Hosts that only NEW has.
    pub only_new: Vec<String>,
    /// Facts that differ between the sides of a host, with the number of hosts.
    pub unlike: Vec<String>,
    /// Missing figures, and warnings.
    pub notes: Vec<String>,
    /// The rows.
    pub rows: Vec<FleetRow>,
}

impl FleetComparison {
    /// The exit code, as of `compare`: 1 slower, 3 open, 0 neither.
    #[must_use]
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }
}
