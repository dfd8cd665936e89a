//! Quantiles of samples: two conventions, each for its purpose.
//!
//! - [`nearest_rank`] for latencies: the q-quantile is the smallest value that at least a share q of the values does not exceed. It is
//!   a value that occurred, and HdrHistogram's `value_at_quantile` follows the same convention up to its three digits, so
//!   summaries of lists and of histograms agree.
//! - [`median`] for statistics over rounds and runs: the mean of the two middle values of an even number. A test must not
//!   depend on the sign of its values, and the nearest rank prefers the lower middle value.

/// Returns the q-quantile of sorted values by nearest rank, `q` from 0 to 1; `None` without values.
#[must_use]
#[expect(clippy::cast_sign_loss, reason = "neither a share nor a length is negative")]
pub fn nearest_rank<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Returns the median; the mean of the two middle values of an even number. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    median_of(&mut sorted)
}

/// Computes the [`median`] in place; `values` are reordered.
pub fn median_of(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, &mut high, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let low = if even { below.iter().copied().max_by(f64::total_cmp).unwrap_or(high) } else { high };
    Some(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert!(near(median(&[3.0, 1.0, 2.0]).unwrap(), 2.0));
        assert!(near(median(&[4.0, 1.0, 2.0, 3.0]).unwrap(), 2.5));
        assert!(near(median(&[7.0]).unwrap(), 7.0));
        assert_eq!(median(&[]), None);
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
