//! How times grow with events and CPUs.

use serde::{Deserialize, Serialize};

/// Times of several runs, ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Spread {
    /// Runs.
    pub count: u64,
    /// Least.
    pub min: u64,
    /// Median; of an even number the lower one.
    pub p50: u64,
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: u64,
}

impl Spread {
    /// Of these values.
    #[must_use]
    pub fn of(values: &[u64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let mean = sorted.iter().map(|&ns| ns as f64).sum::<f64>() / sorted.len() as f64;
        Self { count: sorted.len() as u64, min, p50: sorted[(sorted.len() - 1) / 2], mean, max }
    }
}

/// One point of a growth curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct ScalePoint {
    /// Strategy.
    pub strategy: String,
    /// Events per CPU.
    pub events: u64,
    /// CPUs.
    pub cpus: u64,
    /// All phases together.
    pub total_ns: Spread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let spread = Spread::of(&[4, 1, 3, 2]);
        assert_eq!((spread.count, spread.min, spread.p50, spread.max), (4, 1, 2, 4));
        assert!((spread.mean - 2.5).abs() < f64::EPSILON);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
