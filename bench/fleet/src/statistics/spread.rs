//! Spreads that a few values far out do not move.

use results::stats::location::biweight;
use results::stats::{median, median_of};

/// Standard deviation of a normal distribution over the median of absolute deviations.
const MAD: f64 = 1.482_602_2;
/// Deviations are cut at so many standard deviations.
const CUT: f64 = 2.5;
/// Mean of squared normal deviations that are cut there.
const KEPT: f64 = 0.977_56;
/// Degrees of freedom of such a spread over those of a standard deviation.
pub(super) const EFFICIENCY: f64 = 0.85;

/// Reach of Tukey's weights in standard deviations: 95 % as sharp as a mean where all values are normal.
const REACH: f64 = 4.685;
/// Most steps from the median.
const STEPS: usize = 4;

/// Computes the mean with Tukey's weights after a few steps; the median where more than half of the values are the
/// same. `None` without values.
pub(super) fn centre(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    let at = median_of(&mut sorted)?;
    if values.len() < 3 {
        return Some(at);
    }
    sorted.iter_mut().zip(values).for_each(|(distance, value)| *distance = (value - at).abs());
    let reach = REACH * MAD * median_of(&mut sorted)?;
    if reach <= 0.0 {
        return Some(at);
    }
    Some(biweight(values, at, reach, STEPS))
}

/// Computes the standard deviation of values around 0, those far out cut; `None` without values.
pub(super) fn around_zero(values: &[f64]) -> Option<f64> {
    let sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    let rough = MAD * median(&sizes)?;
    // More than half of the values are the same.
    if rough <= 0.0 {
        return Some((sizes.iter().map(|size| size * size).sum::<f64>() / sizes.len() as f64).sqrt());
    }
    let bound = CUT * rough;
    let squares: f64 = sizes.iter().map(|size| size.min(bound).powi(2)).sum();
    Some((squares / sizes.len() as f64 / KEPT).sqrt())
}

/// Computes the variance that values have beyond their own known variances: standardized by both, their spread is 1. 0
/// where the known ones suffice.
pub(super) fn beyond(values: &[f64], known: &[f64]) -> f64 {
    let excess = |own: f64| {
        let scaled: Vec<f64> = values
            .iter()
            .zip(known)
            .map(|(value, known)| value / (own + known).max(f64::MIN_POSITIVE).sqrt())
            .collect();
        around_zero(&scaled).unwrap_or(0.0) - 1.0
    };
    if values.is_empty() || excess(0.0) <= 0.0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, values.iter().map(|value| value * value).fold(f64::MIN_POSITIVE, f64::max) * 4.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if excess(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= high * 1e-3 {
            break;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trials::synthetic::Random;

    #[test]
    fn a_spread_is_that_of_most_values() {
        let mut random = Random::new(5);
        let mut values: Vec<f64> = (0..4000).map(|_| 2.0 * random.normal()).collect();
        assert!((around_zero(&values).unwrap() - 2.0).abs() < 0.08);
        values.extend([1000.0; 40]);
        assert!((around_zero(&values).unwrap() - 2.0).abs() < 0.15);
        assert_eq!(around_zero(&[]), None);
        assert_eq!(around_zero(&[0.0, 0.0, 0.0]), Some(0.0));
    }

    #[test]
    fn a_centre_does_not_move_with_what_is_far_out() {
        let near: Vec<f64> = (0..21).map(|n| f64::from(n) / 10.0).collect();
        assert!((centre(&near).unwrap() - 1.0).abs() < 1e-9);
        let far = [&near[..], &[50.0, 90.0]].concat();
        assert!((centre(&far).unwrap() - 1.0).abs() < 0.1, "{:?}", centre(&far));
        assert_eq!((centre(&[]), centre(&[1.0, 3.0]), centre(&[2.0, 2.0, 9.0])), (None, Some(2.0), Some(2.0)));
    }

    #[test]
    fn what_is_known_is_taken_off() {
        let mut random = Random::new(6);
        let known: Vec<f64> = (0..3000).map(|n| if n % 2 == 0 { 1.0 } else { 9.0 }).collect();
        let values: Vec<f64> = known.iter().map(|known| (4.0_f64 + known).sqrt() * random.normal()).collect();
        assert!((beyond(&values, &known) - 4.0).abs() < 0.6, "{}", beyond(&values, &known));
        let less: Vec<f64> = values.iter().map(|value| value / 10.0).collect();
        assert!(beyond(&less, &known).abs() < 1e-12);
    }
}
