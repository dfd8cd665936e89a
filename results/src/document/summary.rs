//! A distribution as it stands in a result: the quantiles people read, and the whole histogram.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::nearest_rank;

/// Quantiles of many values in ns. Values are whole ns: histograms keep three digits of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// Median; of an even number the lower one.
    pub p50: u64,
    /// 90th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<u64>,
    /// 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<u64>,
    /// 99.9th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_9: Option<u64>,
    /// Largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Arithmetic mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The histogram: HdrHistogram V2, base64. Rounds have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
}

/// Longest time in a histogram of latencies, ns.
pub const LONGEST: u64 = 100_000_000_000;

/// Makes a histogram of latencies: 1 ns to [`LONGEST`], three significant digits, fixed size.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds")
}

/// Adds all of `other`, whatever its bounds; values beyond `into`'s are clamped.
pub fn merge(into: &mut Histogram<u64>, other: &Histogram<u64>) {
    if into.add(other).is_err() {
        for step in other.iter_recorded() {
            into.saturating_record_n(step.value_iterated_to(), step.count_at_value());
        }
    }
}

impl Summary {
    /// Summarizes a histogram, with the histogram; `None` if nothing was recorded.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        // V2, uncompressed, covers every count a u64 histogram holds below 2^63.
        let mut bytes = Vec::new();
        let written = V2Serializer::new().serialize(histogram, &mut bytes).is_ok().then(|| STANDARD.encode(bytes));
        let at = |q: f64| Some(histogram.value_at_quantile(q));
        let (min, max) = (Some(histogram.min()), Some(histogram.max()));
        let whole = Self { min, p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max, ..Self::brief(histogram)? };
        Some(Self { histogram: written, ..whole })
    }

    /// Summarizes what a round has of a metric; `None` if nothing was recorded.
    pub fn brief(histogram: &Histogram<u64>) -> Option<Self> {
        let (count, p50, mean) = (histogram.len(), histogram.value_at_quantile(0.5), Some(histogram.mean()));
        (count > 0).then(|| Self { count, p50, mean, ..Self::default() })
    }

    /// Summarizes a few values, ns, by nearest rank; all 0 without values.
    pub fn of_values(values: &[u64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let mean = |p50| (p50, Some(sorted.iter().map(|&ns| ns as f64).sum::<f64>() / sorted.len() as f64));
        let (p50, mean) = nearest_rank(&sorted, 0.5).map(mean).unwrap_or_default();
        Self { count: sorted.len() as u64, p50, mean, ..Self::default() }
    }

    /// Summarizes many values with their histogram; all 0 without values.
    pub fn of_all(values: &[u64]) -> Self {
        let mut histogram = latency_histogram();
        for &value in values {
            histogram.saturating_record(value);
        }
        let (whole, max) = (Self::of(&histogram).unwrap_or_default(), values.iter().max().copied());
        let Self { count, p50, mean, .. } = Self::of_values(values);
        // The histogram rounds up to its buckets' ends.
        let within = |quantile: Option<u64>| Some(quantile?.min(max?));
        let (p90, p99, p99_9) = (within(whole.p90), within(whole.p99), within(whole.p99_9));
        Self { count, min: values.iter().min().copied(), p50, p90, p99, p99_9, max, mean, ..whole }
    }

    /// Returns the histogram within; `None` if there is none.
    ///
    /// # Errors
    /// A sentence saying what is wrong with it.
    pub fn decode(&self) -> Result<Option<Histogram<u64>>, String> {
        let Some(text) = &self.histogram else { return Ok(None) };
        let bytes = STANDARD.decode(text).map_err(|error| format!("histogram is not base64: {error}"))?;
        let found = Deserializer::new().deserialize(&mut &bytes[..]);
        found.map(Some).map_err(|error| format!("not an HdrHistogram V2: {error}"))
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
        assert_eq!((summary.count, summary.min, summary.max), (1000, Some(1), Some(1000)));
        assert_eq!((summary.p50, summary.p90, summary.p99, summary.p99_9), (500, Some(900), Some(990), Some(999)));
        assert!((summary.mean.unwrap() - 500.5).abs() < 0.5);
        let back = summary.decode().unwrap().unwrap();
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
}
