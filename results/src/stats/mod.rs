//! Statistics over rounds and runs: what may be said of two samples, and where a series changes.
//!
//! Ratios are trimmed means of logarithms of paired rounds, with a jackknife over guests or runs and Student's t: latencies of small
//! guests have several modes and long tails, on which the mean of the middle half does not depend. There are two conventions of
//! quantiles: latencies have [`nearest_rank`], a value that occurred, as in HdrHistogram; rounds and runs have [`median`], the mean of
//! the two middle values of an even number, since a test must not depend on the sign of its values.

pub mod change_points;
pub mod interval;
pub mod jackknife;
pub mod limits;
pub mod related;
pub mod trimmed;

/// Applies Holm's adjustment: p values of a family of tests such that "below α" is wrong anywhere with a chance of at most α.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 0.0_f64;
    for (rank, &index) in order.iter().enumerate() {
        least = least.max(p[index] * (p.len() - rank) as f64).min(1.0);
        adjusted[index] = least;
    }
    adjusted
}

/// Returns the q-quantile of sorted values by nearest rank, `q` from 0 to 1; `None` without values.
#[expect(clippy::cast_sign_loss, reason = "neither a share nor a length is negative")]
pub fn nearest_rank<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Returns the arithmetic mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the median; the mean of the two middle values of an even number. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let high = *sorted.get(values.len() / 2)?;
    let low = if values.len().is_multiple_of(2) { sorted[values.len() / 2 - 1] } else { high };
    Some(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_as_in_the_textbook() {
        // Holm 1979's procedure on p = 0.01, 0.04, 0.03, 0.005.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (is, wanted) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((is - wanted).abs() < 1e-9, "{adjusted:?}");
        }
        assert!((holm(&[0.7, 0.9])[1] - 1.0).abs() < 1e-9 && holm(&[]).is_empty());
    }

    #[test]
    fn nearest_rank_gives_values_that_occur_as_histograms_do() {
        let values: Vec<u64> = (1..=10).collect();
        let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        for &value in &values {
            histogram.record(value).unwrap();
        }
        for q in [0.0, 0.1, 0.5, 0.9, 0.91, 0.99, 1.0] {
            assert_eq!(nearest_rank(&values, q), Some(histogram.value_at_quantile(q)), "{q}");
        }
        assert_eq!((nearest_rank(&[5], 0.5), nearest_rank::<u64>(&[], 0.5)), (Some(5), None));
    }
}
