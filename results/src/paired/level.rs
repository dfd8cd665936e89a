//! How long an arm takes: one definition for tables, comparisons and the report.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde::Serialize;

use super::groups::groups;
use super::ratio::MIN_ROUNDS;
use super::statistic::Statistic;
use super::whole::whole;
use crate::document::{Arm, Experiment};
use crate::stats::bootstrap::{CONFIDENCE, Interval, MAX_DRAWS, of_draws};
use crate::stats::median;
use crate::stats::permutation::below;

/// Draws of the bootstrap.
const DRAWS: usize = 999;
/// Its seed: the same document has the same interval.
const SEED: u64 = 1;

/// A latency of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Median over whole rounds of the rounds' statistic, ns.
    pub ns: f64,
    /// Its 95 % interval, ns; `None` with fewer than [`MIN_ROUNDS`] rounds.
    pub interval: Option<Interval>,
    /// Rounds.
    pub rounds: usize,
}

/// The median over whole rounds of their `statistic`: with p50, *the* p50 of an arm. `None` without such rounds.
///
/// The interval is a percentile bootstrap over guests, or over stretches of rounds where there are few guests.
#[must_use]
pub fn level<E: Experiment>(arm: &Arm<E>, metric: &str, statistic: Statistic) -> Option<Level> {
    let (guests, values) = whole_rounds(arm, metric, statistic);
    let ns = median(&values)?;
    let interval = median_interval(&values, &guests);
    Some(Level { ns, interval, rounds: values.len() })
}

/// The p50 of an arm, ns: that of [`level`] without its interval, which takes longer.
#[must_use]
pub fn p50<E: Experiment>(arm: &Arm<E>, metric: &str) -> Option<f64> {
    median(&whole_rounds(arm, metric, Statistic::P50).1)
}

/// Guests and values of the whole rounds that have the metric.
fn whole_rounds<E: Experiment>(arm: &Arm<E>, metric: &str, statistic: Statistic) -> (Vec<u64>, Vec<f64>) {
    whole(arm, metric).filter_map(|(round, summary)| Some((round.guest(), statistic.of(summary)?))).unzip()
}

/// The interval of the median of values of these guests, in order of time; `None` with fewer than [`MIN_ROUNDS`].
#[must_use]
pub fn median_interval(values: &[f64], guests: &[u64]) -> Option<Interval> {
    (values.len() >= MIN_ROUNDS).then(|| interval(values, guests))
}

fn interval(values: &[f64], guests: &[u64]) -> Interval {
    let group = groups(guests).group;
    let mut groups: Vec<Vec<f64>> = vec![Vec::new(); group.last().map_or(0, |last| last + 1)];
    for (value, group) in values.iter().zip(&group) {
        groups[*group].push(*value);
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let draws = DRAWS.min(MAX_DRAWS / values.len()).max(199);
    let mut taken = Vec::with_capacity(values.len());
    let mut medians: Vec<f64> = (0..draws)
        .filter_map(|_| {
            taken.clear();
            for _ in 0..groups.len() {
                taken.extend_from_slice(&groups[below(&mut random, groups.len())]);
            }
            median(&taken)
        })
        .collect();
    of_draws(&mut medians, CONFIDENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::record;

    #[test]
    fn it_is_the_median_of_the_rounds() {
        let record = record(9, 5, |_, round| 1000 + round);
        let found = level(record.arm("reuse").unwrap(), "nmi_handler_ns", Statistic::P50).unwrap();
        assert!((found.ns - 1004.0).abs() < 1e-9 && found.rounds == 9);
        // The order statistics of nine values: the second and the eighth.
        assert_eq!(found.interval, Some(Interval { low: 1001.0, high: 1007.0 }));
        assert_eq!(p50(record.arm("reuse").unwrap(), "nmi_handler_ns"), Some(1004.0));
        assert_eq!(level(record.arm("kvm").unwrap(), "nmi_handler_ns", Statistic::P50), None);
        let few = crate::fixture::record(4, 5, |_, round| 1000 + round);
        assert_eq!(level(few.arm("reuse").unwrap(), "nmi_handler_ns", Statistic::P50).unwrap().interval, None);
    }

    #[test]
    fn rounds_of_a_guest_are_drawn_together() {
        let values: Vec<f64> = (0..40).map(|round| f64::from(round / 4)).collect();
        let guests: Vec<u64> = (0..40).map(|round| round / 4).collect();
        let apart: Vec<u64> = (0..40).collect();
        let width = |guests: &[u64]| {
            let found = interval(&values, guests);
            found.high - found.low
        };
        assert!(width(&guests) >= width(&apart) + 1.0, "{} {}", width(&guests), width(&apart));
    }
}
