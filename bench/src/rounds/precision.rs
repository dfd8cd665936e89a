//! When the figures are sure enough for a run to end.

use results::document::Arm;
use results::metric::{Metric, NMI_HANDLER, ROTATION, SET_UP};
use results::paired::{Ratio, Statistic, in_plan_order, ratio};

/// Fewest guests of an arm before the first look.
const MIN_GUESTS: usize = 10;
/// So many looks in a row must find every interval narrow enough.
const IN_A_ROW: u32 = 2;

/// When a run looks at its intervals, and what the looks found.
///
/// Looking after each guest picks moments at which an interval happens to be narrow, and covers the truth too seldom. With two looks in a
/// row, the second after a quarter more guests, it does so as often as it says (docs/comparing.md).
#[derive(Debug)]
pub(super) struct Looks {
    guests: usize,
    next: usize,
    good: u32,
}

impl Default for Looks {
    fn default() -> Self {
        Self { guests: 0, next: MIN_GUESTS, good: 0 }
    }
}

impl Looks {
    /// Asked after each guest of an arm: whether the run may end. `is_reached` says whether the intervals are narrow enough now.
    pub(super) fn are_enough(&mut self, is_reached: impl FnOnce() -> bool) -> bool {
        self.guests += 1;
        if self.guests < self.next {
            return false;
        }
        self.next += self.next.div_ceil(4);
        self.good = if is_reached() { self.good + 1 } else { 0 };
        self.good >= IN_A_ROW
    }
}

/// Whether every ratio of the plan has a 95 % interval whose half-width is at most `wanted`: those of the tables, each strategy to
/// others and to the floor.
pub(super) fn is_reached(arms: &[Arm], wanted: f64) -> bool {
    let mut all = ratios(arms).peekable();
    all.peek().is_some() && all.all(|(_, found)| found.is_some_and(|found| is_sure(&found, wanted)))
}

/// What is not known to `wanted` after a run that ended without it; `None` if everything is.
pub(super) fn missing(arms: &[Arm], wanted: f64) -> Option<String> {
    if is_reached(arms, wanted) {
        return None;
    }
    let half = |found: &Option<Ratio>| found.and_then(|found| found.half_width()).unwrap_or(f64::INFINITY);
    let worst = ratios(arms).max_by(|(_, a), (_, b)| half(a).total_cmp(&half(b)));
    let wanted = wanted * 100.0;
    Some(match worst {
        None => format!("no ratio is known to ± {wanted} % as --until-ci asks: no two arms have figures"),
        Some((pair, found)) => match found.filter(|found| half(&Some(*found)).is_finite()) {
            Some(found) if found.guests < MIN_GUESTS => {
                format!(
                    "--until-ci {wanted}% was not reached: {} guests an arm are too few, it takes {MIN_GUESTS}",
                    found.guests
                )
            }
            Some(found) => {
                let half = half(&Some(found)) * 100.0;
                format!("--until-ci {wanted}% was not reached: {pair} is known to ± {half:.1} %")
            }
            None => format!("--until-ci {wanted}% was not reached: {pair} has too few rounds for an interval"),
        },
    })
}

/// The ratios of the plan; `None` where the two arms have no round in common.
fn ratios(arms: &[Arm]) -> impl Iterator<Item = (String, Option<Ratio>)> {
    let metric = headline(arms);
    in_plan_order(arms, metric.key).into_iter().map(move |(arm, base)| {
        (format!("{} to {}", arm.name, base.name), ratio(arm, base, metric.key, Statistic::P50))
    })
}

fn headline(arms: &[Arm]) -> &'static Metric {
    let has = |metric: &&Metric| arms.iter().any(|arm| arm.metric(metric).is_some());
    [&NMI_HANDLER, &ROTATION].into_iter().find(has).unwrap_or(&SET_UP)
}

fn is_sure(ratio: &Ratio, wanted: f64) -> bool {
    ratio.guests >= MIN_GUESTS && ratio.half_width().is_some_and(|half| half <= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::mock;

    #[test]
    fn two_looks_in_a_row_must_be_good() {
        let ends = |good: &dyn Fn(usize) -> bool| {
            let mut looks = Looks::default();
            (1..100).find(|guests| looks.are_enough(|| good(*guests)))
        };
        assert_eq!(ends(&|_| true), Some(13));
        assert_eq!(ends(&|guests| guests != 13), Some(22), "looks are after 10, 13, 17 and 22 guests");
        assert_eq!(ends(&|guests| [10, 17, 28, 44, 69].contains(&guests)), None);
    }

    #[test]
    fn equal_rounds_are_sure_and_few_guests_are_not() {
        // Every round is the same, so the intervals have no width.
        let arms = |rounds| mock::finished(&["--rounds", rounds]).document.arms;
        assert!(is_reached(&arms("10"), 0.02) && missing(&arms("10"), 0.02).is_none());
        assert!(!is_reached(&arms("9"), 0.02));
        assert!(missing(&arms("9"), 0.02).is_some_and(|why| why.contains("9 guests an arm are too few")));
        assert!(missing(&arms("4"), 0.02).is_some_and(|why| why.contains("has too few rounds")));
        let mut noisy = arms("12");
        for (round, n) in noisy[0].rounds.iter_mut().zip(1..) {
            if let Some(summary) = round.metrics.get_mut(NMI_HANDLER.key) {
                summary.p50 += 300 * (n % 3);
            }
        }
        assert!(!is_reached(&noisy, 0.02) && is_reached(&noisy, 10.0));
        let why = missing(&noisy, 0.02).unwrap_or_default();
        assert!(why.starts_with("--until-ci 2% was not reached: ") && why.contains(" is known to ± "), "{why}");
        assert!(!is_reached(&[], 0.02) && missing(&[], 0.02).is_some());
    }
}
