//! Request to the statistics of a fleet.

use serde::Serialize;

use results::compare::Rules;

/// Bounds of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetSpec {
    /// An odd host differs from its class by at least this share.
    pub least_host: f64,
    /// A change of the fleet moves a figure by at least this share.
    pub least_change: f64,
    /// Most wrong names among the hosts that are named odd, as a mean share (Benjamini and Hochberg).
    pub false_share: f64,
    /// Adjusted p values below this are significant for a change.
    pub alpha: f64,
    /// Periods (days or repetitions) before and after a change that it is judged by.
    pub window: usize,
    /// Limits of [`compare`](crate::compare).
    #[serde(skip)]
    pub rules: Rules,
}

impl Default for FleetSpec {
    /// Hosts 3 % off with at most 5 % wrong names; changes of 1 % with p < 0.01 over seven periods to either side.
    fn default() -> Self {
        Self {
            least_host: 0.03,
            least_change: 0.01,
            false_share: 0.05,
            alpha: 0.01,
            window: 7,
            rules: Rules::default(),
        }
    }
}
