//! One arm against another within one result.

use super::change::Change;
use super::row::{Question, Row, SideLevel};
use super::spec::CompareSpec;
use super::whole;
use crate::document::{Any, Arm, Record};
use crate::metric::EXIT_PATH;
use crate::paired;
use crate::stats::cliffs_delta;
use crate::verdict::Verdict;

/// The row of `arm` against `base`: rounds are paired, so nothing between runs is to be allowed for.
pub(super) fn row(record: &Record, base: &Arm<Any>, arm: &Arm<Any>, metric: &str, request: &CompareSpec) -> Row {
    let found = paired::ratio(arm, base, metric, request.statistic);
    let level = |arm: &Arm<Any>, ratio: Option<f64>| {
        let level = paired::level(arm, metric, request.statistic)?;
        Some(SideLevel { median_ns: level.ns, interval_ns: level.interval, ratio, n: level.rounds, runs: 1 })
    };
    let times =
        |arm: &Arm<Any>| paired::counting(arm, metric, request.statistic).map(|(_, value)| value).collect::<Vec<f64>>();
    // Arms differ in which accesses exit: the median of their exits is no reason to prefer one.
    let asked = request.metrics.iter().any(|asked| asked == metric);
    let mut limits = request.limits(metric);
    let shown = metric == EXIT_PATH.key && !asked;
    limits.report_only |= shown;
    let not_whole = whole::of_record(record, base).or_else(|| whole::of_record(record, arm));
    let whole = not_whole.is_none();
    let (verdict, why) = match not_whole {
        _ if shown => (Verdict::NotJudged, format!("judged only with --metric {metric}")),
        Some(why) => (Verdict::Inconclusive, format!("not whole: {why}")),
        None => (Verdict::Inconclusive, format!("too few rounds: an interval needs {}", paired::MIN_ROUNDS)),
    };
    let found_change = found.and_then(|found| found.log).map(|log| Change { log, allowance: 0.0, blocks: 0 });
    Row {
        base: level(base, Some(1.0)),
        new: level(arm, found.map(|found| found.ratio)),
        cliffs_delta: cliffs_delta(&times(base), &times(arm)),
        verdict,
        why,
        whole,
        ..Row::blank(Question::OneArm, &arm.name, metric, limits)
    }
    .with(found_change)
}
