//! The centre of log ratios: Tukey's biweight around the median.
//!
//! Two arms of a round mostly meet the same speed of the CPU, and their log ratio is then normal with some per cent of
//! spread. If they meet different speeds, it is off by the ratio of the speeds, to either side. The median ignores how
//! far such rounds are off and is a third less sharp than the mean of the others; the biweight gives them no weight at
//! all and keeps most of that sharpness.

use super::{median, median_of};

/// Deviations of so many standard deviations and more have no weight: 85 % of the mean's sharpness for normal values.
pub(super) const CUT: f64 = 3.44;
/// The median absolute deviation of normal values, as a share of their standard deviation.
pub(super) const MAD: f64 = 0.6745;
/// Steps of the iteration; it converges within ten or so.
pub(super) const STEPS: usize = 50;

/// Returns the standard deviation that the middle half of the values has; 0 if more than half are equal. `None` without values.
pub fn scale(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let mut distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median_of(&mut distances).map(|mad| mad / MAD)
}

/// Returns the biweight's centre. The median where more than half of the values are equal. `None` without values.
pub fn centre(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let reach = CUT * scale(values)?;
    if reach <= 0.0 {
        return Some(middle);
    }
    Some(biweight(values, middle, reach, STEPS))
}

/// Returns the mean of values with Tukey's weights, which are 0 from a distance of `reach` on; at most `steps` steps
/// from `middle`, their median.
pub fn biweight(values: &[f64], middle: f64, reach: f64, steps: usize) -> f64 {
    let mut at = middle;
    for _ in 0..steps {
        let (mut sum, mut weights) = (0.0, 0.0);
        for value in values {
            let inside = 1.0 - ((value - at) / reach).powi(2);
            if inside > 0.0 {
                sum += inside * inside * value;
                weights += inside * inside;
            }
        }
        // Half of the values lie within a fifth of the reach around the median, so there is always some weight.
        let next = sum / weights;
        let moved = (next - at).abs();
        at = next;
        if moved <= reach * 1e-9 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_far_out_have_no_weight() {
        let near = [1.0, 1.1, 0.9, 1.05, 0.95];
        let alone = centre(&near).unwrap();
        assert!((alone - 1.0).abs() < 1e-9);
        let mut far = near.to_vec();
        far.extend([9.0, 50.0]);
        // The scale grows a little with the two, the centre does not move by more than that.
        assert!((centre(&far).unwrap() - alone).abs() < 0.04, "{:?}", centre(&far));
        assert_eq!(centre(&[]), None);
        assert_eq!(centre(&[2.0]), Some(2.0));
        assert_eq!(centre(&[2.0, 2.0, 2.0, 7.0]), Some(2.0));
    }

    #[test]
    fn the_scale_of_normal_values_is_their_standard_deviation() {
        // The quartiles of a normal distribution are 0.6745 standard deviations away.
        assert!((scale(&[-2.0 * MAD, -MAD, 0.0, MAD, 2.0 * MAD]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(scale(&[3.0, 3.0, 3.0, 4.0]), Some(0.0));
    }
}
