//! The mean of the middle half of log ratios.
//!
//! Two arms of a round mostly meet the same speed of the CPU, and their log ratio is then normal with some per cent of
//! spread. If they meet different speeds, it is off by the ratio of the speeds, to either side. The mean of the middle half
//! ignores how far such rounds are off, and keeps most of the mean's sharpness.

use super::jackknife::{self, Estimate};
use super::mean;

/// Share of the values that is left out at each end; the value in which it ends counts in part.
const TRIM: f64 = 0.25;
/// Fewer blocks than this have a mean.
const FEW: usize = 20;

/// Returns the mean of the middle half. `None` without values.
pub fn centre(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle_half(&sorted)
}

/// Returns the centre of all values with its uncertainty over groups. `group[i]` is the group of `values[i]`, from 0, all numbers
/// used. `None` with fewer than two groups.
pub fn over_groups(values: &[f64], group: &[usize]) -> Option<Estimate> {
    let mut sorted: Vec<(f64, usize)> = values.iter().copied().zip(group.iter().copied()).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (values, group): (Vec<f64>, Vec<usize>) = sorted.into_iter().unzip();
    jackknife::over_groups(&values, &group, middle_half)
}

/// Estimates what independent blocks have in common, each with one value: pairs of runs, of turns, or hosts. `None` of fewer than
/// two.
///
/// The middle half of few values says little of its own error: their mean with Student's t alarms as often as it says, however the
/// values are spread.
pub fn over_blocks(values: &[f64]) -> Option<Estimate> {
    let each: Vec<usize> = (0..values.len()).collect();
    if values.len() < FEW { jackknife::over_groups(values, &each, mean) } else { over_groups(values, &each) }
}

fn middle_half(sorted: &[f64]) -> Option<f64> {
    let count = sorted.len() as f64;
    let (low, high) = (TRIM * count, (1.0 - TRIM) * count);
    let share = |at: usize| (high.min(at as f64 + 1.0) - low.max(at as f64)).max(0.0);
    let sum: f64 = sorted.iter().enumerate().map(|(at, value)| share(at) * value).sum();
    (count > 0.0).then(|| sum / (high - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_far_out_have_no_weight() {
        assert_eq!(centre(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(centre(&[900.0, 1.0, 2.0, 3.0]), Some(2.5));
        // Of five values the second and the fourth count three quarters.
        assert!((centre(&[0.0, 1.0, 2.0, 4.0, 99.0]).unwrap() - (0.75 + 2.0 + 3.0) / 2.5).abs() < 1e-12);
        assert_eq!((centre(&[]), centre(&[2.0])), (None, Some(2.0)));
    }

    #[test]
    fn a_group_less_is_a_group_less() {
        let values: Vec<f64> = (0..30).map(|n| f64::from(n * n % 17)).collect();
        let group: Vec<usize> = (0..30).map(|n| n / 4).collect();
        let plain = jackknife::over_groups(&values, &group, centre).unwrap();
        let found = over_groups(&values, &group).unwrap();
        assert!((found.value - plain.value).abs() < 1e-12 && (found.error - plain.error).abs() < 1e-12);
        assert_eq!((over_groups(&[1.0, 2.0], &[0, 0]), over_blocks(&[1.0])), (None, None));
        let few = over_blocks(&[1.0, 2.0, 9.0]).unwrap();
        assert!((few.value - 4.0).abs() < 1e-12 && (few.error - (19.0_f64 / 3.0).sqrt()).abs() < 1e-12, "{few:?}");
        assert!((over_blocks(&values).unwrap().value - centre(&values).unwrap()).abs() < 1e-12);
    }
}
