//! Decides when the figures are sure enough for a run to end.

use results::advice::AS_GOOD;
use results::answers;
use results::document::{Arm, Document};
use results::metric::Metric;
use results::paired::{MIN_LOOKED_AT, Ratio, Statistic, in_plan_order, over_runs, ratio};
use results::table::layout::percent;
use results::table::ranking::{WITHOUT, contenders};

/// Returns whether every ratio of the plan has a 95 % interval whose half-width is at most `wanted`: those of the
/// tables, each strategy to others and to the floor.
pub(super) fn is_reached(arms: &[Arm], metric: &'static Metric, wanted: f64) -> bool {
    let mut all = ratios(arms, metric).peekable();
    all.peek().is_some() && all.all(|(_, found)| found.is_some_and(|found| is_sure(&found, wanted)))
}

/// Returns what is not known to `wanted` after a run that ended without it; `None` if everything is.
pub(super) fn missing(arms: &[Arm], metric: &'static Metric, wanted: f64) -> Option<String> {
    if is_reached(arms, metric, wanted) {
        return None;
    }
    let half = |found: &Option<Ratio>| found.and_then(|found| found.half_width()).unwrap_or(f64::INFINITY);
    let worst = ratios(arms, metric).max_by(|(_, a), (_, b)| half(a).total_cmp(&half(b)));
    let wanted = percent(wanted);
    Some(match worst {
        None => format!("no ratio is known to ± {wanted} % as --until-ci asks: no two arms have figures"),
        Some((pair, found)) => match found.filter(|found| half(&Some(*found)).is_finite()) {
            Some(found) if found.guests < MIN_LOOKED_AT => {
                format!(
                    "--until-ci {wanted}% was not reached: {} guests an arm are too few, it takes {MIN_LOOKED_AT}",
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

/// Returns the ratios of the plan; `None` where the two arms have no round in common.
fn ratios(arms: &[Arm], metric: &'static Metric) -> impl Iterator<Item = (String, Option<Ratio>)> {
    in_plan_order(arms, metric.key).into_iter().map(move |(arm, base)| {
        (format!("{} to {}", arm.name, base.name), ratio(arm, base, metric.key, Statistic::P50))
    })
}

/// Returns whether the fastest strategy, the fastest that loses no counts and the slowest are known: no other can be ahead of them,
/// or behind, by more than what is as good. Of a variant of a strategy its ratio to that must be known.
pub(super) fn order_is_known(document: &Document) -> bool {
    let metric = answers::metric(&document.parameters);
    let against = |arm: &Arm, base: &Arm| over_runs(document, arm, base, metric.key, Statistic::P50);
    let arms: Vec<&Arm> = contenders(document, metric).collect();
    let Some(base) = arms.first() else { return false };
    let time = |arm: &&&Arm| against(arm, base).map_or(f64::INFINITY, |ratio| ratio.ratio);
    let whole: Vec<&Arm> = arms.iter().copied().filter(|arm| !document.parameters.is_lossy(&arm.name)).collect();
    let not_ahead = |ratio: Option<Ratio>| {
        ratio.is_some_and(|ratio| {
            let low = ratio.interval.map_or(0.0, |interval| interval.low);
            ratio.guests >= MIN_LOOKED_AT && low * (1.0 + AS_GOOD) >= 1.0
        })
    };
    let has_first = |arms: &[&Arm]| {
        let first = arms.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
        first.is_none_or(|first| arms.iter().all(|one| one.name == first.name || not_ahead(against(one, first))))
    };
    let last = arms.iter().max_by(|a, b| time(a).total_cmp(&time(b)));
    let has_last =
        last.is_none_or(|last| arms.iter().all(|one| one.name == last.name || not_ahead(against(last, one))));
    let variants = document.arms.iter().filter_map(|arm| Some((arm, document.arm(arm.name.split_once(WITHOUT)?.0)?)));
    let mut worth = variants.filter_map(|(arm, strategy)| against(arm, strategy));
    arms.len() > 1
        && has_first(&arms)
        && has_first(&whole)
        && has_last
        && worth.all(|ratio| ratio.is_distinguishable() || is_sure(&ratio, AS_GOOD))
}

fn is_sure(ratio: &Ratio, wanted: f64) -> bool {
    ratio.guests >= MIN_LOOKED_AT && ratio.half_width().is_some_and(|half| half <= wanted)
}

#[cfg(test)]
mod tests {
    use results::metric::NMI_HANDLER;

    use super::*;
    use crate::arms::rounds::mock;

    #[test]
    fn equal_rounds_are_sure_and_few_guests_are_not() {
        // Every round is the same, so the intervals have no width.
        let arms = |rounds| mock::finished(&["--rounds", rounds]).document.arms;
        assert!(is_reached(&arms("10"), &NMI_HANDLER, 0.02) && missing(&arms("10"), &NMI_HANDLER, 0.02).is_none());
        assert!(!is_reached(&arms("9"), &NMI_HANDLER, 0.02));
        assert!(missing(&arms("9"), &NMI_HANDLER, 0.02).is_some_and(|why| why.contains("9 guests an arm are too few")));
        assert!(missing(&arms("4"), &NMI_HANDLER, 0.02).is_some_and(|why| why.contains("has too few rounds")));
        let mut noisy = arms("12");
        for (p50, n) in noisy[0].rounds.metrics.get_mut(NMI_HANDLER.key).unwrap().p50.iter_mut().zip(1..) {
            *p50 += 300 * (n % 3);
        }
        assert!(!is_reached(&noisy, &NMI_HANDLER, 0.02) && is_reached(&noisy, &NMI_HANDLER, 10.0));
        let why = missing(&noisy, &NMI_HANDLER, 0.02).unwrap_or_default();
        assert!(why.starts_with("--until-ci 2% was not reached: ") && why.contains(" is known to ± "), "{why}");
        assert!(!is_reached(&[], &NMI_HANDLER, 0.02) && missing(&[], &NMI_HANDLER, 0.02).is_some());
    }
}
