//! Request to a comparison.

use super::rules::Rules;
use crate::paired::Statistic;
use crate::verdict::Limits;

/// Request of a caller beside [`Rules`].
#[derive(Clone, Debug)]
pub struct CompareSpec {
    /// Thresholds.
    pub rules: Rules,
    /// Which quantile of a round.
    pub statistic: Statistic,
    /// Only these arms; empty: all.
    pub arms: Vec<String>,
    /// Only these metrics; empty: all.
    pub metrics: Vec<String>,
    /// Hosts may differ.
    pub unlike_hosts_allowed: bool,
}

impl CompareSpec {
    /// The limits of a metric.
    #[must_use]
    pub fn limits(&self, metric: &str) -> Limits {
        self.rules.limits(metric, self.metrics.iter().any(|asked| asked == metric))
    }
}

impl Default for CompareSpec {
    /// All arms and metrics by their medians, with the default thresholds.
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            statistic: Statistic::default(),
            arms: Vec::new(),
            metrics: Vec::new(),
            unlike_hosts_allowed: false,
        }
    }
}
