//! Cost of an operation, ns: fixed or distributed.

use crate::stream::{Stream, draw_with_rest};

/// Maximum number of quantiles.
pub(super) const MAX_QUANTILES: usize = 1001;

/// A cost in whole nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Fixed(u64),
    /// Equally spaced quantiles, at least two, ascending.
    Quantiles(Box<[u64]>),
}

impl Cost {
    /// Returns a cost that is the same at each operation.
    #[must_use]
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
    #[must_use]
    pub(super) fn scaled(&self, factor: f64, most: f64) -> Self {
        #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
        let scale = |ns: u64| (ns as f64 * factor).min(most).round() as u64;
        match &self.0 {
            Kind::Fixed(ns) => Self::fixed(scale(*ns)),
            Kind::Quantiles(ns) => Self::quantiles(ns.iter().map(|&ns| scale(ns)).collect()),
        }
    }

    /// Draws a random cost; uniform between neighbouring quantiles. One draw, of which the cost is an ascending function: arms that differ
    /// in a cost differ as its distributions do.
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
    #[must_use]
    pub fn smallest(&self) -> u64 {
        match &self.0 {
            Kind::Fixed(ns) => *ns,
            Kind::Quantiles(ns) => ns[0],
        }
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
