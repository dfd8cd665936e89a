//! Groups results that belong together: the same experiment with the same parameters, backend and kind of host. A
//! result has one metric for all of its arms; an arm without it has a dash.

use std::collections::BTreeMap;

use crate::compare::{group_key, group_label};
use crate::document::{Arm, ArmKind, Record, Status};
use crate::table::ranking::origin;

/// Rounds of a result that represents its kind, however many another one has.
const MANY: usize = 100;

/// Results of one kind, the oldest first; never empty.
pub(super) struct Group<'a> {
    pub(super) records: Vec<&'a Record>,
}

/// Returns the key that results of one group share, as those that `compare` compares do, ignoring the parameters in `without`.
pub(super) fn key(record: &Record, without: &[&str]) -> String {
    let mut what = group_key(record);
    what.retain(|name, _| !without.contains(&name.as_str()));
    format!("{}\n{}", record.host.class, serde_json::to_string(&what).unwrap_or_default())
}

/// Returns the way in which a guest's set-up enables its events: "each" or "once".
fn enable(record: &Record) -> Option<&str> {
    record.parameters.get("set_up")?.get("enable")?.as_str()
}

/// Returns the groups; that of the newest result first.
pub(super) fn groups(records: &[Record]) -> Vec<Group<'_>> {
    let mut by_key: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for record in records {
        by_key.entry(key(record, &[])).or_default().push(record);
    }
    let mut groups: Vec<Group<'_>> = by_key.into_values().map(|records| Group { records }).collect();
    for group in &mut groups {
        group.records.sort_by_key(|record| record.started_unix);
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.latest().started_unix));
    groups
}

impl<'a> Group<'a> {
    /// Returns the newest result.
    pub(super) fn latest(&self) -> &'a Record {
        self.records[self.records.len() - 1]
    }

    /// Returns the result whose figures stand for the group: the newest complete one that is not of few rounds beside
    /// the others. A quick run after a long one does not take its place, nor is a very long one shown for ever.
    pub(super) fn shown(&self) -> &'a Record {
        let complete: Vec<&Record> =
            self.records.iter().filter(|record| record.status == Status::Complete).copied().collect();
        newest(&complete).or_else(|| newest(&self.records)).unwrap_or_else(|| self.latest())
    }
}

/// Returns the newest record with [`MANY`] rounds, or half as many as any has; also a shorter one, unless it was a quick run, that
/// has a strategy, by its definition, which none of those has: it is the only one to show it.
pub(super) fn newest<'a>(records: &[&'a Record]) -> Option<&'a Record> {
    let rounds = |record: &Record| record.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    let most = records.iter().map(|record| rounds(record)).max()?;
    let long: Vec<&Record> =
        records.iter().filter(|record| rounds(record) >= MANY.min(most.div_ceil(2))).copied().collect();
    let is_known = |record: &Record, arm: &Arm| {
        long.iter().any(|one| one.arm(&arm.name).is_some() && one.defines_alike(record, &arm.name))
    };
    let is_shown = |record: &&&Record| {
        let is_quick = record.parameter("quick").as_deref() == Some("true");
        let is_only_one = !is_quick && record.arms.iter().any(|arm| !is_known(record, arm));
        is_only_one || long.iter().any(|one| std::ptr::eq(*one, **record))
    };
    records.iter().rev().find(is_shown).copied()
}

/// Returns a heading for the subject of a record.
pub(super) fn title(record: &Record) -> String {
    let once = if enable(record) == Some("once") { ", enabled at once" } else { "" };
    format!("{}{once}{}", group_label(record), origin(record))
}

/// Returns the arm with which the others are compared: the floor, else the first arm, as far as it has the metric.
pub(super) fn base(record: &Record) -> Option<&Arm> {
    let key = record.metric()?;
    let has = |arm: &&Arm| arm.metrics.contains_key(key);
    let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    if floor.is_some() { floor.filter(has) } else { record.arms.iter().find(has) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn more_rounds_are_the_same_kind_and_another_workload_is_not() {
        let (_a, mut few) = fixture::written(&fixture::document(2));
        let (_b, many) = fixture::written(&fixture::document(3));
        let (_c, other) = {
            let mut document = fixture::document(10);
            document.parameters.workload = "sampling4/ftest".to_owned();
            fixture::written(&document)
        };
        few.started_unix += 10;
        let records = [few, many, other];
        let groups = groups(&records);
        assert_eq!(groups.iter().map(|group| group.records.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(groups[0].latest().started_unix, records[0].started_unix);
        assert_eq!(title(&records[2]), "nmi-latency, sampling4/ftest, cpu-clock, 1 vCPU (stand-in cpu-clock)");
    }

    #[test]
    fn a_quick_or_unfinished_result_does_not_stand_for_a_long_one() {
        let record = |rounds: u64, started: u64, quick: bool, status: Status| {
            let mut document = fixture::document(rounds);
            (document.started_unix, document.status, document.parameters.quick) = (started, status, quick);
            fixture::written(&document).1
        };
        let records = [
            record(90, 1000, false, Status::Complete),
            record(80, 2000, false, Status::Complete),
            record(20, 3000, true, Status::Complete),
            record(95, 4000, false, Status::Interrupted),
        ];
        let found = groups(&records);
        assert_eq!((found.len(), found[0].latest().started_unix, found[0].shown().started_unix), (1, 4000, 2000));
        let cut = [record(9, 1000, false, Status::Interrupted), record(2, 2000, false, Status::Interrupted)];
        assert_eq!(groups(&cut)[0].shown().started_unix, 1000);
    }

    #[test]
    fn the_newest_result_with_a_strategy_of_its_own_is_shown() {
        let with = |rounds: u64, started: u64, definition: &str| {
            let mut document = fixture::of_strategies(rounds, &["reuse", "mine"]);
            document.started_unix = started;
            document.parameters.strategies[1].definition = Some(definition.to_owned());
            fixture::written(&document).1
        };
        let mut long = with(90, 1000, "reuse = \"last\"");
        long.arms.remove(1);
        let shown = |records: &[Record]| groups(records)[0].shown().started_unix;
        assert_eq!(shown(&[long.clone(), with(10, 2000, "reuse = \"last\"")]), 2000);
        let (old, short) = (with(90, 1000, "reuse = \"last\""), with(10, 2000, "reuse = \"none\""));
        assert_eq!(shown(&[old.clone(), short]), 2000, "another definition is another strategy");
        assert_eq!(shown(&[old, with(10, 2000, "reuse = \"last\"")]), 1000);
    }
}
