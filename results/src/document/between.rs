//! The part of a ratio's uncertainty that a run's own rounds do not show: how runs of one host and setting differ.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A standard deviation of a logarithm from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The standard deviation.
    pub deviation: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

/// Differences between runs, by question.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Between {
    /// Earlier runs of the same host, build and setting that it was learnt from.
    pub runs: u64,
    /// Spread of a ratio of two strategies.
    pub strategies: Spread,
    /// Spread of a ratio to the floor.
    pub floor: Spread,
}

/// Degrees of freedom of the default: it is of one host, and others may be several times quieter or wilder.
const FREEDOM: f64 = 3.0;

impl Default for Between {
    /// 26 default runs of the development host on two days, at loads of 0 to 19 (docs/comparing.md).
    fn default() -> Self {
        let spread = |deviation| Spread { deviation, freedom: FREEDOM };
        Self { runs: 0, strategies: spread(0.0025), floor: spread(0.003) }
    }
}

impl Between {
    /// Returns the spread of a ratio, to the floor or of two strategies.
    pub(crate) const fn of(&self, floor: bool) -> Spread {
        if floor { self.floor } else { self.strategies }
    }

    /// # Errors
    /// The figures are such as no run leaves.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sane = |spread: &Spread| (0.0..=1.0).contains(&spread.deviation) && (1.0..=1e6).contains(&spread.freedom);
        let all = [self.strategies, self.floor].iter().all(sane);
        all.then_some(()).ok_or_else(|| "between: a deviation is not from 0 to 1, or has no freedom".to_owned())
    }
}
