//! When the figures are sure enough for a run to end.

use results::document::{Arm, ArmKind};
use results::metric::{NMI_HANDLER, ROTATION, SET_UP};
use results::paired::groups::MIN_GUESTS;
use results::paired::{Statistic, ratio};

/// Whether every ratio judged has a 95 % interval whose half-width is at most `wanted`: each arm to the floor, and each strategy to the
/// one before it. Arms without rounds are not judged. The layouts of guests differ: with a few guests it is never sure.
pub(super) fn is_reached(arms: &[Arm], wanted: f64) -> bool {
    let measured: Vec<&Arm> = arms.iter().filter(|arm| !arm.rounds.is_empty()).collect();
    let strategies = measured.iter().filter(|arm| arm.kind == ArmKind::Strategy);
    let neighbours = strategies.clone().skip(1).zip(strategies);
    let floor = measured.iter().find(|arm| arm.kind == ArmKind::Floor);
    let others = measured.iter().filter(|arm| arm.kind != ArmKind::Floor);
    let mut pairs = neighbours.chain(others.zip(floor.into_iter().cycle())).peekable();
    pairs.peek().is_some() && pairs.all(|(arm, base)| sure(arm, base, wanted))
}

fn sure(arm: &Arm, base: &Arm, wanted: f64) -> bool {
    let metrics = [&NMI_HANDLER, &ROTATION, &SET_UP];
    let Some(metric) = metrics.into_iter().find(|metric| arm.metric(metric).is_some()) else { return false };
    ratio(arm, base, metric.key, Statistic::P50)
        .is_some_and(|ratio| ratio.guests >= MIN_GUESTS && ratio.half_width().is_some_and(|half| half <= wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::mock;

    #[test]
    fn equal_rounds_are_sure_and_few_guests_are_not() {
        // Every round is the same, so the intervals have no width.
        let arms = |rounds| mock::finished(&["--rounds", rounds]).document.arms;
        assert!(is_reached(&arms("8"), 0.02));
        assert!(!is_reached(&arms("4"), 0.02));
        let mut noisy = arms("8");
        for (round, n) in noisy[0].rounds.iter_mut().zip(1..) {
            if let Some(summary) = round.metrics.get_mut(NMI_HANDLER.key) {
                summary.p50 += 300 * (n % 3);
            }
        }
        assert!(!is_reached(&noisy, 0.02) && is_reached(&noisy, 10.0));
        assert!(!is_reached(&[], 0.02));
    }
}
