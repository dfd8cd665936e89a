//! Confidence intervals.

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
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
