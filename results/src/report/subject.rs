//! The subject of a result: one metric for all of its arms. An arm without it has a dash.

use crate::document::{Any, Arm, ArmKind, Record, Summary};
use crate::metric;
use crate::paired;

/// Returns the metric of a record's tables and plots, by key: the first headline metric that any of its arms has, else the first of all.
pub(super) fn metric_of(record: &Record) -> Option<&str> {
    let key = |wanted: &str| record.arms.iter().find_map(|arm| arm.metrics.get_key_value(wanted));
    let mut headlines = metric::ALL.into_iter().filter(|metric| metric.headline);
    headlines
        .find_map(|metric| key(metric.key))
        .or_else(|| record.arms.iter().find_map(|arm| arm.metrics.first_key_value()))
        .map(|(key, _)| key.as_str())
}

/// Returns the arms that have the record's metric, with its key and summary.
pub(super) fn measured(record: &Record) -> impl Iterator<Item = (&Arm<Any>, &str, &Summary)> {
    let key = metric_of(record);
    record.arms.iter().filter_map(move |arm| Some((arm, key?, arm.metrics.get(key?)?)))
}

/// Returns the p50 of an arm, ns, by the record's metric.
pub(super) fn p50(record: &Record, arm: &Arm<Any>) -> Option<f64> {
    paired::p50(arm, metric_of(record)?)
}

/// Returns the arm with which the others are compared: the floor, else the first arm, as far as it has the metric.
pub(super) fn base(record: &Record) -> Option<&Arm<Any>> {
    let key = metric_of(record)?;
    let has = |arm: &&Arm<Any>| arm.metrics.contains_key(key);
    let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    if floor.is_some() { floor.filter(has) } else { record.arms.iter().find(has) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn an_arm_without_nmis_lends_no_other_metric() {
        let mut record = fixture::record(6, 5, |_, round| 1000 + round);
        let livelocked = &mut record.arms[0];
        livelocked.metrics.retain(|key, _| key == "exit_path_ns");
        livelocked.rounds.metrics.retain(|key, _| key == "exit_path_ns");
        assert_eq!(metric_of(&record), Some("nmi_handler_ns"));
        assert_eq!(
            measured(&record).map(|(arm, ..)| arm.name.as_str()).collect::<Vec<_>>(),
            ["reuse", "reuse-lazy", "floor"]
        );
        assert_eq!((p50(&record, &record.arms[0]), p50(&record, &record.arms[1])), (None, Some(1002.5)));
        assert_eq!(base(&record).map(|arm| arm.name.as_str()), Some("floor"));
        record.arms.retain(|arm| arm.kind != ArmKind::Floor);
        assert_eq!(base(&record).map(|arm| arm.name.as_str()), Some("reuse"));
    }
}
