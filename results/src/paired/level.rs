//! Time that an arm takes: one definition for tables, comparisons and the report.

use serde::Serialize;

use super::groups::groups;
use super::ratio::{MIN_ROUNDS, of_parts, work};
use super::rounds::counting;
use crate::document::Arm;
use crate::metric::HOST_WORK;
use crate::stats::interval::Interval;
use crate::stats::jackknife::over_groups;
use crate::stats::{mean, median};

/// A latency of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Median over the rounds that count of the rounds' medians, ns.
    pub ns: f64,
    /// Its 95 % interval, ns; `None` with fewer than [`MIN_ROUNDS`] rounds.
    pub interval: Option<Interval>,
    /// Rounds.
    pub rounds: usize,
}

/// Returns the median over the rounds that count of their medians: *the* p50 of an arm. `None` without such rounds.
///
/// The interval is that of the share of rounds below the median, which groups of rounds show by how they differ
/// (jackknife with Student's t, as in [`ratio`](super::ratio())), and the quantiles at the ends of that share
/// (Woodruff). A median moves in steps: the jackknife of the median itself, and a bootstrap, are too narrow.
///
/// Of a trace's parts it is the mean of all values, of which their ratio is.
pub fn level(arm: &Arm, metric: &str) -> Option<Level> {
    if metric == HOST_WORK.key {
        let found = of_parts(&work(arm).into_values().collect::<Vec<_>>())?;
        return Some(Level { ns: found.ratio, interval: found.interval, rounds: found.rounds });
    }
    let (guests, values): (Vec<_>, Vec<_>) = counting(arm, metric).map(|(round, value)| (round.guest, value)).unzip();
    let ns = median(&values)?;
    Some(Level { ns, interval: median_interval(&values, &guests), rounds: values.len() })
}

/// Returns the heading of a column of [`level`]s.
pub fn heading(metric: &str) -> &'static str {
    if metric == HOST_WORK.key { "mean [95 %]" } else { "p50 [95 %]" }
}

/// Returns the p50 of an arm, ns: that of [`level`] without its interval, which takes longer.
pub fn p50(arm: &Arm, metric: &str) -> Option<f64> {
    median(&counting(arm, metric).map(|(_, value)| value).collect::<Vec<_>>())
}

/// Returns the interval of the median of values of these guests, in order of time; `None` with fewer than [`MIN_ROUNDS`].
pub fn median_interval(values: &[f64], guests: &[u64]) -> Option<Interval> {
    if values.len() < MIN_ROUNDS {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = median(values)?;
    let found = groups(guests);
    // Signs tell on which side of the median a value is; their mean over a group shows how the group differs from the others.
    let side = |value: &f64| f64::from(u8::from(*value > middle)) - f64::from(u8::from(*value < middle));
    let sides: Vec<f64> = values.iter().map(side).collect();
    let mut share = over_groups(&sides, &found.group, mean)?;
    if found.group.last().is_some_and(|last| last + 1 == values.len()) {
        // Each value is a group: the spread of a side is that of a fair coin, and is not estimated.
        share.freedom = f64::INFINITY;
    }
    let reach = (share.interval().high - share.value) / 2.0;
    Some(Interval { low: at(&sorted, 0.5 - reach), high: at(&sorted, 0.5 + reach) })
}

/// Returns the `q`-quantile of sorted values, between two of them where it lies there; `q` may be out of bounds.
#[expect(clippy::cast_sign_loss, reason = "a place in the values")]
fn at(sorted: &[f64], q: f64) -> f64 {
    let place = (q * (sorted.len() + 1) as f64 - 1.0).clamp(0.0, (sorted.len() - 1) as f64);
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_median_of_the_rounds() {
        let mut rounds = crate::fixture::value(9, 5, |_, round| 1000 + round);
        crate::fixture::in_guests(&mut rounds, 1);
        let record = crate::fixture::changed(rounds);
        let found = level(record.arm("reuse").unwrap(), "nmi_handler_ns").unwrap();
        assert!((found.ns - 1004.0).abs() < 1e-9 && found.rounds == 9);
        // The mean of nine signs has a standard error of a third: the quantiles 0.5 ∓ 1.96 / 6, at places 0.73 and 7.27.
        let interval = found.interval.unwrap();
        assert!((interval.low - 1000.73).abs() < 0.01 && (interval.high - 1007.27).abs() < 0.01, "{interval:?}");
        assert_eq!(p50(record.arm("reuse").unwrap(), "nmi_handler_ns"), Some(1004.0));
        assert_eq!(level(record.arm("kvm").unwrap(), "nmi_handler_ns"), None);
        let few = crate::fixture::record(4, 5, |_, round| 1000 + round);
        assert_eq!(level(few.arm("reuse").unwrap(), "nmi_handler_ns").unwrap().interval, None);
    }
}
