//! Confidence intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// A confidence interval; in JSON its two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl From<[f64; 2]> for Interval {
    fn from([low, high]: [f64; 2]) -> Self {
        Self { low, high }
    }
}

impl From<Interval> for [f64; 2] {
    fn from(Interval { low, high }: Interval) -> Self {
        [low, high]
    }
}

impl Interval {
    /// Returns the interval of what rises with this one's figure.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self { low: of(self.low), high: of(self.high) }
    }

    /// Returns whether `value` lies outside.
    pub fn excludes(&self, value: f64) -> bool {
        self.low > value || self.high < value
    }

    /// Returns whether it has no width, but for how its ends were calculated: it would look like certainty.
    pub fn is_point(&self) -> bool {
        self.high - self.low <= 1e-9 * self.high.abs()
    }
}

/// Half of a 95 % interval of a normal distribution, in standard deviations.
pub const NORMAL_95: f64 = 1.959_964;
