//! Cost of an operation, ns: fixed or distributed.

use serde::Deserialize;
use toml::Value;

use crate::stream::{Stream, draw_with_rest};

/// Maximum number of quantiles.
const MAX_QUANTILES: usize = 1001;

/// A cost in whole nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Cost(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Fixed(u64),
    /// Equally spaced quantiles, at least two, ascending.
    Quantiles(Box<[u64]>),
}

impl Default for Cost {
    fn default() -> Self {
        Self::fixed(0)
    }
}

impl Cost {
    /// Returns a cost that is the same at each operation.
    pub const fn fixed(ns: u64) -> Self {
        Self(Kind::Fixed(ns))
    }

    /// Creates a cost of equally spaced quantiles from minimum to maximum, ascending, at least one.
    pub(super) fn quantiles(ns: Vec<u64>) -> Self {
        match ns[..] {
            [only] => Self::fixed(only),
            _ if ns.iter().all(|&n| n == ns[0]) => Self::fixed(ns[0]),
            _ => Self(Kind::Quantiles(ns.into_boxed_slice())),
        }
    }

    /// Returns the cost with every quantile times `factor`, at most `most` ns.
    pub(super) fn scaled(&self, factor: f64, most: f64) -> Self {
        #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
        let scale = |ns: u64| (ns as f64 * factor).min(most).round() as u64;
        match &self.0 {
            Kind::Fixed(ns) => Self::fixed(scale(*ns)),
            Kind::Quantiles(ns) => Self::quantiles(ns.iter().map(|&ns| scale(ns)).collect()),
        }
    }

    /// Returns the mean of many draws, ns.
    pub fn mean(&self) -> f64 {
        match &self.0 {
            Kind::Fixed(ns) => *ns as f64,
            Kind::Quantiles(ns) => {
                let steps = ns.windows(2).map(|ends| f64::midpoint(ends[0] as f64, ends[1] as f64));
                steps.sum::<f64>() / (ns.len() - 1) as f64
            }
        }
    }

    /// Draws a random cost; uniform between neighbouring quantiles. One draw, of which the cost is an ascending
    /// function: arms that differ in a cost differ as its distributions do.
    #[inline]
    pub fn sample(&self, stream: &mut Stream) -> u64 {
        match &self.0 {
            Kind::Fixed(ns) => *ns,
            Kind::Quantiles(ns) => {
                let (at, rest) = draw_with_rest(stream, ns.len() as u64 - 1);
                let (low, high) = (ns[at as usize], ns[at as usize + 1]);
                low + ((u128::from(rest) * u128::from(high - low + 1)) >> 64) as u64
            }
        }
    }

    /// Draws the sum of `n` random costs.
    #[inline]
    pub fn sample_n(&self, n: u64, stream: &mut Stream) -> u64 {
        match &self.0 {
            Kind::Fixed(ns) => ns * n,
            Kind::Quantiles(_) => (0..n).map(|_| self.sample(stream)).sum(),
        }
    }

    /// Returns the minimum.
    pub fn smallest(&self) -> u64 {
        match &self.0 {
            Kind::Fixed(ns) => *ns,
            Kind::Quantiles(ns) => ns[0],
        }
    }
}

/// Maximum of a cost, ns: a quarter of an hour.
pub(super) const MAX_NS: f64 = 1e12;

impl TryFrom<Value> for Cost {
    type Error = String;

    /// Reads ns, or equally spaced quantiles.
    fn try_from(value: Value) -> Result<Self, String> {
        let Value::Array(list) = value else { return ns(&value).map(Self::fixed) };
        if list.is_empty() || list.len() > MAX_QUANTILES {
            return Err(format!("a distribution has 1 to {MAX_QUANTILES} quantiles, not {}", list.len()));
        }
        let knots = list.iter().map(ns).collect::<Result<Vec<_>, _>>()?;
        if knots.is_sorted() { Ok(Self::quantiles(knots)) } else { Err("quantiles must ascend".to_owned()) }
    }
}

/// Returns a number of ns.
fn ns(value: &Value) -> Result<u64, String> {
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    match number {
        #[expect(clippy::cast_sign_loss, reason = "not negative")]
        Some(ns) if (0.0..=MAX_NS).contains(&ns) => Ok(ns.round() as u64),
        _ => Err(format!("{value} is not a number from 0 to {MAX_NS}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::{Purpose, Streams};

    proptest! {
        #[test]
        fn samples_lie_within_and_halves_around_the_median(
            mut knots in proptest::collection::vec(0..1_000_000u64, 3..9), seed: u64,
        ) {
            knots.sort_unstable();
            if knots.len() % 2 == 0 {
                knots.pop();
            }
            let (least, median, most) = (knots[0], knots[knots.len() / 2], knots[knots.len() - 1]);
            let cost = Cost::quantiles(knots);
            prop_assert_eq!(cost.smallest(), least);
            let mut streams = Streams::new(seed, 0, 0);
            let stream = streams.of(Purpose::Exit);
            let mut not_above = 0;
            for _ in 0..400 {
                let ns = cost.sample(stream);
                prop_assert!((least..=most).contains(&ns));
                not_above += u32::from(ns <= median);
            }
            // Binomial(400, 1/2) exceeds 130 except with probability 10^-11.
            prop_assert!(not_above > 130);
        }
    }
}
