//! Conversions that saturate: figures from guest memory may be anything.

use std::time::Duration;

/// Converts TSC ticks to ns; saturates.
pub(super) fn ticks_to_ns(ticks: u64, khz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000 / u128::from(khz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns a − b; saturates.
pub(super) fn difference(a: u64, b: u64) -> i64 {
    let wide = i128::from(a) - i128::from(b);
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

/// Converts a duration to ns; saturates.
pub(super) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
