//! Medians over guests with their intervals.

use results::stats::median;

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Lower and upper bound.
    pub interval: [f64; 2],
}

impl Estimate {
    /// Estimates the median of `values`, one per guest, with the interval of the sign test: from the order statistics that the median lies
    /// between with 95 %, whatever the distribution. `None` without values; below six values the interval is all of them.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "made positive first")]
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().flatten().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        // The number of values below the median is binomial (n, 1/2); its normal approximation, rounded outwards.
        let outside = (n / 2.0 - 0.98 * n.sqrt() - 0.5).max(0.0) as usize;
        Some(Self { value: median(&sorted)?, interval: [sorted[outside], sorted[sorted.len() - 1 - outside]] })
    }

    /// Returns the figure in another unit: `of` must be increasing.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self { value: of(self.value), interval: self.interval.map(of) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_has_the_order_statistics_of_the_sign_test() {
        let up_to = |n: u32| Estimate::of((1..=n).map(|value| Some(f64::from(value)))).unwrap();
        // Tables of the sign test: 95 % for the median of 10, 20 and 40 values.
        assert_eq!(up_to(10), Estimate { value: 5.5, interval: [2.0, 9.0] });
        assert_eq!(up_to(20), Estimate { value: 10.5, interval: [6.0, 15.0] });
        assert_eq!(up_to(40), Estimate { value: 20.5, interval: [14.0, 27.0] });
        assert_eq!(up_to(3), Estimate { value: 2.0, interval: [1.0, 3.0] });
        assert_eq!(Estimate::of([None, Some(f64::NAN)]), None);
        assert_eq!(up_to(3).map(|x| 2.0 * x), Estimate { value: 4.0, interval: [2.0, 6.0] });
    }
}
