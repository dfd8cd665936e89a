//! Selects the rounds that count: those that ended as they should, with about as many samples as the arm's others.

use super::statistic::Statistic;
use crate::document::{Arm, Experiment, Round};

/// Returns the fewest samples of a round that counts, given those of all rounds: half of their median.
///
/// A turn that was cut short has a median of few samples, often of those before the first rotation. The measure is the arm's own rounds and
/// not the number asked for: an arm that is too slow for `--samples` within `--time-limit` has such rounds only.
#[must_use]
pub fn fewest(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    counts.get(counts.len() / 2).map_or(0, |middle| middle.div_ceil(2))
}

/// Returns the rounds of an arm that count and have the statistic of the metric, with it, in order.
pub fn counting<'a, E: Experiment>(
    arm: &'a Arm<E>,
    metric: &str,
    statistic: Statistic,
) -> impl Iterator<Item = (Round, f64)> + use<'a, E> {
    let column = arm.rounds.metrics.get(metric);
    let least = fewest(counts(arm, metric).collect());
    let complete = arm.rounds.iter().filter(|round| round.complete);
    complete.filter_map(move |round| {
        let column = column.filter(|column| column.count.get(round.at).is_some_and(|count| *count >= least.max(1)))?;
        Some((round, statistic.of_round(column, round.at)?))
    })
}

/// Returns the number of rounds of an arm that do not count because they have few samples.
#[must_use]
pub fn short<E: Experiment>(arm: &Arm<E>, metric: &str) -> usize {
    let least = fewest(counts(arm, metric).collect());
    counts(arm, metric).filter(|count| *count < least).count()
}

/// The samples of the complete rounds that have the metric.
fn counts<E: Experiment>(arm: &Arm<E>, metric: &str) -> impl Iterator<Item = u64> {
    let counts = arm.rounds.metrics.get(metric).map_or(&[][..], |column| &column.count);
    let complete = counts.iter().zip(&arm.rounds.complete).filter(|(_, complete)| **complete);
    complete.map(|(count, _)| *count).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::document;

    #[test]
    fn rounds_of_few_samples_and_incomplete_ones_do_not_count() {
        let mut document = document(9);
        let arm = &mut document.arms[0];
        arm.rounds.complete[2] = false;
        for (round, count) in [(4, 19), (5, 20)] {
            arm.rounds.metrics.get_mut("nmi_handler_ns").unwrap().count[round] = count;
        }
        let found: Vec<u64> = counting(arm, "nmi_handler_ns", Statistic::P50).map(|(round, _)| round.index).collect();
        assert_eq!(found, [0, 1, 3, 5, 6, 7, 8]);
        assert_eq!((short(arm, "nmi_handler_ns"), short(arm, "pmi_delivery_ns")), (1, 0));
        // All rounds are short: they count.
        arm.rounds.metrics.get_mut("nmi_handler_ns").unwrap().count.fill(3);
        assert_eq!((counting(arm, "nmi_handler_ns", Statistic::P50).count(), short(arm, "nmi_handler_ns")), (8, 0));
        assert_eq!((fewest(Vec::new()), fewest(vec![1]), fewest(vec![7, 9, 2])), (0, 1, 4));
    }
}
