//! What is called a change.

use serde::Serialize;

/// Limits for a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Limits {
    /// Adjusted p values below this are significant.
    pub alpha: f64,
    /// Relative changes of at least this are strong.
    pub threshold: f64,
    /// A slow-down of at least this must be excluded for "no change".
    pub bound: f64,
    /// Shown, but not judged.
    pub report_only: bool,
}

impl Default for Limits {
    /// p < 0.01, 3 %, 5 % excluded.
    fn default() -> Self {
        Self { alpha: 0.01, threshold: 0.03, bound: 0.05, report_only: false }
    }
}

impl Limits {
    /// Returns these limits, changed by what is given: a threshold above the bound moves it along.
    pub fn with(self, alpha: Option<f64>, threshold: Option<f64>) -> Self {
        let threshold = threshold.unwrap_or(self.threshold);
        Self { alpha: alpha.unwrap_or(self.alpha), threshold, bound: self.bound.max(threshold), ..self }
    }
}
