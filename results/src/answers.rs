//! The answer of a run, as its table gives it and as its document keeps it: each arm's p50 and ratio to the floor, with intervals.

use crate::document::{Answer, ArmKind, Document, Parameters};
use crate::metric::{HOST_WORK, Metric, NMI_HANDLER, ROTATION, SET_UP};
use crate::paired::{self, Ratio, Statistic};
use crate::stats::interval::Interval;

/// The metric that a run of guests is about.
pub fn metric(parameters: &Parameters) -> &'static Metric {
    if parameters.set_up.is_some() {
        &SET_UP
    } else if parameters.is_replayed() {
        &HOST_WORK
    } else if parameters.samples_events() {
        &NMI_HANDLER
    } else {
        &ROTATION
    }
}

/// The ratio of an arm to the floor; `None` of the floor itself, and where one of them was not measured.
pub fn over_floor(document: &Document, arm: usize, metric: &Metric) -> Option<Ratio> {
    let floor = document.arms.iter().find(|arm| arm.kind == ArmKind::Floor)?;
    let arm = document.arms.get(arm).filter(|arm| arm.kind != ArmKind::Floor)?;
    paired::over_runs(document, arm, floor, metric.key, Statistic::P50)
}

/// The answers of a document, in the order of its arms; an arm without rounds that count has none.
pub fn of(document: &Document) -> Vec<Answer> {
    let metric = metric(&document.parameters);
    let bounds = |Interval { low, high }| [low, high];
    let answer = |(place, arm): (usize, &crate::document::Arm)| {
        let level = paired::level(arm, metric.key, Statistic::P50)?;
        let ratio = over_floor(document, place, metric);
        Some(Answer {
            arm: arm.name.clone(),
            metric: metric.key.to_owned(),
            rounds: level.rounds as u64,
            whole: arm.incomplete.is_empty() && arm.own.doubts().next().is_none(),
            p50_ns: level.ns,
            p50_interval_ns: level.interval.map(bounds),
            times_floor: ratio.map(|ratio| ratio.ratio),
            times_floor_interval: ratio.and_then(|ratio| ratio.interval).map(bounds),
        })
    };
    document.arms.iter().enumerate().filter_map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn answers_are_those_of_the_table() {
        let document = fixture::document(10);
        let found = of(&document);
        let names: Vec<&str> = found.iter().map(|answer| answer.arm.as_str()).collect();
        assert_eq!(names, ["recreate", "reuse", "reuse-lazy", "floor"]);
        let recreate = &found[0];
        assert_eq!((recreate.metric.as_str(), recreate.rounds, recreate.p50_ns), ("nmi_handler_ns", 10, 2000.0));
        assert_eq!((recreate.p50_interval_ns, recreate.times_floor), (Some([2000.0, 2000.0]), Some(2.0)));
        assert!(recreate.times_floor_interval.is_some_and(|[low, high]| low <= 2.0 && high >= 2.0));
        assert_eq!((found[3].times_floor, found[3].times_floor_interval), (None, None));
        let few = of(&fixture::document(3));
        let table = crate::table::report(&document).text(100);
        let of = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(of("recreate").contains("2.00 µs") && of("recreate").contains("2.000 ["), "{table}");
        assert_eq!((few[0].p50_interval_ns, few[0].times_floor_interval), (None, None));
    }
}
