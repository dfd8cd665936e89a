//! Decides when the figures are sure enough for a run to end.

use super::guest_arm::GIVEN_UP;
use results::answers;
use results::choice::{AS_GOOD, contenders};
use results::document::{Arm, ArmKind, Document};
use results::paired::{MIN_LOOKED_AT, Ratio, in_plan_order, over_runs};
use results::table::layout::{percent, plural};

/// Returns whether every ratio of the plan has a 95 % interval whose half-width is at most `wanted`: those of the
/// tables, each strategy to others and to the floor.
pub(super) fn is_reached(document: &Document, wanted: f64) -> bool {
    let known = |ratio: Ratio| ratio.guests >= MIN_LOOKED_AT && ratio.half_width().is_some_and(|half| half <= wanted);
    let mut all = ratios(document).peekable();
    all.peek().is_some() && all.all(|(_, found)| found.is_some_and(known))
}

/// Returns what is not known to `wanted` after a run that ended without it; `None` if everything is.
pub(super) fn missing(document: &Document, wanted: f64) -> Option<String> {
    if is_reached(document, wanted) {
        return None;
    }
    let half = |found: &Option<Ratio>| found.and_then(|found| found.half_width()).unwrap_or(f64::INFINITY);
    let worst = ratios(document).max_by(|(_, a), (_, b)| half(a).total_cmp(&half(b)));
    let why = worst.map_or_else(
        || "no two arms have figures".to_owned(),
        |(pair, found)| {
            let (width, guests) = (half(&found), plural(found.map_or(0, |found| found.guests), "guest"));
            let known = if width.is_finite() { format!("± {:.2} %", 100.0 * width) } else { "no interval".to_owned() };
            format!("{pair} has {known} by {guests}, and it takes {MIN_LOOKED_AT}")
        },
    );
    Some(format!("--until-ci {}% was not reached: {why}", percent(wanted)))
}

/// Returns the ratios of the plan as tables show them; `None` where the two arms have no round in common.
fn ratios(document: &Document) -> impl Iterator<Item = (String, Option<Ratio>)> {
    let pairs = in_plan_order(&document.arms, answers::metric(&document.parameters).key);
    // Rounds of one that was given up become no more.
    let goes_on = |arm: &&Arm| !arm.incomplete.iter().any(|why| why.starts_with(GIVEN_UP));
    pairs
        .into_iter()
        .filter(move |(arm, base)| goes_on(arm) && goes_on(base))
        .map(|(arm, base)| (format!("{} to {}", arm.name, base.name), against(document, arm, base)))
}

fn against(document: &Document, arm: &Arm, base: &Arm) -> Option<Ratio> {
    over_runs(document, arm, base, answers::metric(&document.parameters).key)
}

/// Returns whether the fastest strategy and the slowest are known: no other can be ahead of them, or behind, by more than what is as
/// good.
pub(super) fn order_is_known(document: &Document) -> bool {
    let arms: Vec<&Arm> = contenders(document, answers::metric(&document.parameters)).collect();
    let floor = document.arms.iter().find(|arm| arm.kind == ArmKind::Floor && !arm.rounds.is_empty());
    let Some(base) = floor.or_else(|| arms.first().copied()) else { return false };
    let time = |arm: &&&Arm| against(document, arm, base).map_or(f64::INFINITY, |ratio| ratio.ratio);
    let ends = [
        arms.iter().min_by(|a, b| time(a).total_cmp(&time(b))),
        arms.iter().max_by(|a, b| time(a).total_cmp(&time(b))),
    ];
    let [Some(&first), Some(&last)] = ends else { return false };
    let none = 1.0 / (1.0 + AS_GOOD);
    let is_behind = |arm: &Arm, other: &Arm| {
        arm.name == other.name
            || against(document, arm, other).is_some_and(|ratio| {
                ratio.guests >= MIN_LOOKED_AT && ratio.interval.is_some_and(|interval| interval.low >= none)
            })
    };
    arms.len() > 1 && arms.iter().all(|one| is_behind(one, first) && is_behind(last, one))
}

#[cfg(test)]
mod tests {
    use results::metric::NMI_HANDLER;
    use results::paired::narrowest;

    use super::*;
    use crate::arms::rounds::mock;

    #[test]
    fn equal_rounds_are_sure_and_few_guests_are_not() {
        // Every round is the same, so the intervals have no width.
        let arms = |rounds| mock::finished(&["--rounds", rounds]);
        assert!(is_reached(&arms("10"), 0.02) && missing(&arms("10"), 0.02).is_none());
        assert!(!is_reached(&arms("9"), 0.02));
        assert!(missing(&arms("9"), 0.02).is_some_and(|why| why.contains("% by 9 guests, and it takes 10")));
        assert!(missing(&arms("4"), 0.02).is_some_and(|why| why.contains("has no interval by 4 guests")));
        let mut noisy = arms("12");
        for (p50, n) in noisy.arms[0].rounds.metrics.get_mut(NMI_HANDLER.key).unwrap().p50.iter_mut().zip(1..) {
            *p50 += 300 * (n % 3);
        }
        assert!(!is_reached(&noisy, 0.02) && is_reached(&noisy, 10.0));
        let why = missing(&noisy, 0.02).unwrap_or_default();
        assert!(why.starts_with("--until-ci 2% was not reached: ") && why.contains(" has ± "), "{why}");
        noisy.arms.clear();
        assert!(!is_reached(&noisy, 0.02) && missing(&noisy, 0.02).is_some());
    }

    #[test]
    fn a_run_ends_by_the_intervals_that_it_shows() {
        // All rounds are the same, and runs of a host differ by a default: by 3.18 × 0.3 % of a ratio to the floor.
        let document = mock::finished(&["--rounds", "12"]);
        let shown = answers::of(&document, answers::metric(&document.parameters).key)[0].ratio_interval.unwrap();
        assert!((shown.high / shown.low).sqrt() - 1.0 >= narrowest(), "{shown:?}");
        assert!(!is_reached(&document, 0.009) && is_reached(&document, 0.012));
    }
}
