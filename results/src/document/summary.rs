//! A distribution as it stands in a result: the quantiles people read, and the whole histogram.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

/// Nanoseconds of some latency, to three significant digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// Largest.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The histogram: HdrHistogram V2, base64.
    pub histogram: String,
}

/// A histogram of latencies: 1 ns to 100 s, three significant digits, fixed size.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
#[must_use]
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds")
}

/// Adds all of `other`, whatever its bounds; values beyond `into`'s are clamped.
pub fn merge(into: &mut Histogram<u64>, other: &Histogram<u64>) {
    if into.add(other).is_err() {
        for step in other.iter_recorded() {
            into.saturating_record_n(step.value_iterated_to(), step.count_at_value());
        }
    }
}

/// The histogram's V2 encoding, uncompressed.
#[must_use]
pub fn encode(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a Vec cannot fail, and V2 covers every count a u64 histogram holds below 2^63.
    if V2Serializer::new().serialize(histogram, &mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// A sentence saying that it is not a V2 histogram.
pub fn decode(bytes: &[u8]) -> Result<Histogram<u64>, String> {
    Deserializer::new().deserialize(&mut &bytes[..]).map_err(|error| format!("not an HdrHistogram V2: {error}"))
}

/// Reads base64 of what [`encode`] wrote.
///
/// # Errors
/// A sentence saying what is wrong with it.
pub fn decode_text(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|error| format!("histogram is not base64: {error}"))?;
    decode(&bytes)
}

impl Summary {
    /// The summary of a histogram; `None` if nothing was recorded.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            min: histogram.min(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p99_9: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            mean: histogram.mean(),
            histogram: STANDARD.encode(encode(histogram)),
        })
    }

    /// The histogram within.
    ///
    /// # Errors
    /// A sentence saying what is wrong with it.
    pub fn decode(&self) -> Result<Histogram<u64>, String> {
        decode_text(&self.histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_histogram_agree() {
        let mut histogram = latency_histogram();
        for ns in 1..=1000 {
            histogram.record(ns).unwrap();
        }
        let summary = Summary::of(&histogram).unwrap();
        assert_eq!((summary.count, summary.min, summary.max), (1000, 1, 1000));
        assert_eq!((summary.p50, summary.p90, summary.p99, summary.p99_9), (500, 900, 990, 999));
        assert!((summary.mean - 500.5).abs() < 0.5);
        let back = summary.decode().unwrap();
        assert_eq!(back.len(), 1000);
        assert_eq!(back.value_at_quantile(0.9), 900);
        assert_eq!(Summary::of(&latency_histogram()), None);
    }

    #[test]
    fn histograms_of_other_bounds_are_merged_without_loss_of_counts() {
        let mut wide: Histogram<u64> = Histogram::new_with_bounds(1, u64::MAX / 4, 3).unwrap();
        wide.record(u64::MAX / 5).unwrap();
        wide.record(7).unwrap();
        let mut ours = latency_histogram();
        merge(&mut ours, &wide);
        assert_eq!(ours.len(), 2);
        assert_eq!(ours.min(), 7);
        let mut coarse = Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 2).unwrap();
        coarse.record(1000).unwrap();
        merge(&mut ours, &coarse);
        assert_eq!(ours.len(), 3);
    }

    #[test]
    fn a_damaged_histogram_is_refused() {
        let mut histogram = latency_histogram();
        histogram.record(5).unwrap();
        let mut summary = Summary::of(&histogram).unwrap();
        summary.histogram = "AAAA".into();
        assert!(summary.decode().is_err());
        summary.histogram = "***".into();
        assert!(summary.decode().is_err());
    }
}
