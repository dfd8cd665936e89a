//! The uncertainty of a figure over groups of values: rounds of one guest, or neighbouring rounds.
//!
//! Values of one group share what the group has in common, such as where a guest's memory lies, so groups are left out
//! as a whole, each in turn. The figure's movement gives its standard error (Tukey's jackknife), and Student's t with
//! one degree of freedom less than groups turns that into an interval.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::interval::{CONFIDENCE, Interval};

/// A figure and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of the standard error.
    pub freedom: f64,
}

impl Estimate {
    /// Returns the 95 % interval.
    pub fn interval(&self) -> Interval {
        let width = self.error * self.law().inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
        Interval { low: self.value - width, high: self.value + width }
    }

    /// Returns the two-sided p value of "the figure is 0".
    pub fn p(&self) -> f64 {
        match (self.value / self.error).abs() {
            // 0 without an error.
            t if t.is_nan() => 1.0,
            t if t.is_infinite() => 0.0,
            t => (2.0 * self.law().sf(t)).min(1.0),
        }
    }

    /// Returns the law of the figure over its error: Student's t, or the normal one that it comes close to.
    fn law(&self) -> Box<dyn ContinuousCDF<f64, f64>> {
        match StudentsT::new(0.0, 1.0, self.freedom.max(1.0)) {
            Ok(law) if self.freedom < NORMAL => Box::new(law),
            _ => Box::new(Normal::standard()),
        }
    }

    /// Returns the sum of independent estimates by their weights; its degrees of freedom are Welch and Satterthwaite's.
    fn sum(all: impl IntoIterator<Item = (f64, Self)>) -> Self {
        let (mut value, mut squares, mut terms) = (0.0, 0.0, 0.0);
        for (weight, one) in all {
            let own = (weight * one.error).powi(2);
            value += weight * one.value;
            squares += own;
            terms += own * own / one.freedom;
        }
        // A known error has infinitely many.
        let freedom = if terms > 0.0 { squares * squares / terms } else { f64::INFINITY };
        Self { value, error: squares.sqrt(), freedom }
    }

    /// Returns the mean of independent estimates.
    pub fn mean(all: impl ExactSizeIterator<Item = Self>) -> Self {
        let weight = 1.0 / all.len() as f64;
        Self::sum(all.map(|one| (weight, one)))
    }

    /// Returns the difference from another, independent one.
    pub fn less(&self, other: &Self) -> Self {
        Self::sum([(1.0, *self), (-1.0, *other)])
    }
}

/// Degrees of freedom from which Student's t is taken as normal: its quantiles differ by less than 0.001.
const NORMAL: f64 = 5000.0;

/// Returns an error of 0 whose standard deviation is known.
pub fn known(error: f64) -> Estimate {
    Estimate { value: 0.0, error, freedom: f64::INFINITY }
}

/// Computes `figure` of all groups of `values`, with its uncertainty. `group[i]` is the group of `values[i]`, from 0,
/// all numbers used.
///
/// `None` with fewer than two groups, or if the figure does not exist without one of them.
pub fn over_groups<T: Copy>(values: &[T], group: &[usize], figure: impl Fn(&[T]) -> Option<f64>) -> Option<Estimate> {
    let count = group.iter().max()? + 1;
    let value = figure(values)?;
    let mut kept = Vec::with_capacity(values.len());
    let mut without = |out: usize| {
        kept.clear();
        kept.extend(values.iter().zip(group).filter(|(_, own)| **own != out).map(|(value, _)| *value));
        figure(&kept)
    };
    let without: Vec<f64> = (0..count).map(&mut without).collect::<Option<_>>()?;
    let n = count as f64;
    let mean = without.iter().sum::<f64>() / n;
    let squares: f64 = without.iter().map(|one| (one - mean).powi(2)).sum();
    (count > 1).then(|| Estimate { value, error: ((n - 1.0) / n * squares).sqrt(), freedom: n - 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::mean;

    #[test]
    fn of_a_mean_it_is_the_textbook_interval() {
        // Student's sleep data, second drug less the first: mean 1.58, 95 % interval 0.70 to 2.46, p = 0.002833.
        let values = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let found = over_groups(&values, &(0..10).collect::<Vec<_>>(), mean).unwrap();
        let interval = found.interval();
        assert!((found.value - 1.58).abs() < 1e-9);
        assert!((interval.low - 0.700).abs() < 1e-3 && (interval.high - 2.460).abs() < 1e-3, "{interval:?}");
        assert!((found.p() - 0.002_833).abs() < 1e-6, "{}", found.p());
    }

    #[test]
    fn values_that_a_group_shares_count_once() {
        let values: Vec<f64> = [1.0, 2.0, 3.0, 4.0].iter().flat_map(|&v| [v; 5]).collect();
        let group: Vec<usize> = (0..4).flat_map(|g| [g; 5]).collect();
        let once = over_groups(&[1.0, 2.0, 3.0, 4.0], &[0, 1, 2, 3], mean).unwrap();
        let often = over_groups(&values, &group, mean).unwrap();
        assert!((once.error - often.error).abs() < 1e-12 && (once.freedom - often.freedom).abs() < 1e-12);
        assert_eq!(over_groups(&[1.0, 2.0], &[0, 0], mean), None);
        assert_eq!(over_groups::<f64>(&[], &[], mean), None);
    }

    #[test]
    fn uncertainties_add_up() {
        let one = Estimate { value: 1.0, error: 0.3, freedom: 9.0 };
        let two = Estimate { value: 0.5, error: 0.4, freedom: 9.0 };
        let both = one.less(&two);
        assert!((both.value - 0.5).abs() < 1e-12 && (both.error - 0.5).abs() < 1e-12);
        // Welch's degrees of freedom: 0.25² / (0.09² / 9 + 0.16² / 9).
        assert!((both.freedom - 0.0625 * 9.0 / (0.0081 + 0.0256)).abs() < 1e-9);
        let wide = one.less(&known(0.4));
        assert!((wide.error - 0.5).abs() < 1e-12 && wide.freedom > 60.0);
        let sure = Estimate { value: 0.1, error: 0.0, freedom: 3.0 };
        assert!(sure.p() < 1e-12 && sure.less(&known(0.0)).p() < 1e-12);
        for (freedom, wanted) in [(1.0, 12.7062), (9.0, 2.2622), (120.0, 1.9799), (4000.0, 1.9606)] {
            assert!((Estimate { freedom, ..known(1.0) }.interval().high - wanted).abs() < 1e-3, "{freedom}");
        }
        // Known errors alone: the normal distribution's quantile.
        assert!((sure.less(&known(1.0)).interval().high - 0.1 - 1.959_964).abs() < 1e-4);
    }
}
