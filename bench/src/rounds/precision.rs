//! When the figures are sure enough for a run to end.

use results::document::Arm;
use results::metric::{Metric, NMI_HANDLER, ROTATION, SET_UP};
use results::paired::{Ratio, Statistic, in_plan_order, ratio};

/// Fewest guests of an arm before the first look. Looking after each guest picks moments at which the interval happens to be narrow;
/// with this many, intervals at the end cover the truth as often as they say (docs/comparing.md).
const MIN_GUESTS: usize = 10;

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
