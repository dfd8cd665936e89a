//! Groups results that belong together: the same experiment with the same parameters, backend and kind of host. A
//! result has one metric for all of its arms; an arm without it has a dash.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::compare::{group_label, grouped};
use crate::document::{NMI_LATENCY, Record, Status};
use crate::table::ranking::origin;

/// Returns the groups, none of them empty, the oldest result of each first; that of the newest result is the first.
pub(super) fn groups(records: &[Record]) -> Vec<Vec<&Record>> {
    let mut groups: Vec<Vec<&Record>> = grouped(records, |one| &one.host.class).into_values().collect();
    for group in &mut groups {
        group.sort_by_key(|record| record.started_unix);
    }
    groups.sort_by_key(|group| Reverse(group.last().map(|record| record.started_unix)));
    groups
}

/// Returns the result whose figures stand for a group: the newest complete one, and of those one that is not quick, as far as there are
/// such.
pub(super) fn shown<'a>(group: &[&'a Record]) -> &'a Record {
    let is_quick = |record: &Record| record.parameters.get("quick").is_some_and(|quick| quick == true);
    let rank = |record: &&&Record| (record.status == Status::Complete, !is_quick(record), record.started_unix);
    group.iter().max_by_key(rank).copied().unwrap_or(group[0])
}

/// Returns the results of other workloads that the newest group's command measured, too, that of the first first; of most commands none.
pub(super) fn of_one_command<'a>(groups: &[Vec<&'a Record>]) -> Vec<&'a Record> {
    let all = || groups.iter().map(|group| shown(group));
    let Some(newest) = all().find(|record| record.experiment == NMI_LATENCY) else {
        return Vec::new();
    };
    let is_its = |one: &&Record| {
        (&one.experiment, &one.command_line, &one.host.class)
            == (&newest.experiment, &newest.command_line, &newest.host.class)
    };
    let mut found: Vec<&Record> = all().filter(is_its).collect();
    let mut workloads = BTreeSet::new();
    found.retain(|record| workloads.insert(record.parameter("workload")));
    found.sort_by_key(|record| record.started_unix);
    if found.len() > 1 { found } else { Vec::new() }
}

/// Returns a heading for the subject of a record.
pub(super) fn title(record: &Record) -> String {
    group_label(record) + &origin(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn more_rounds_are_the_same_kind_and_another_workload_is_not() {
        let [mut few, many, mut other] = [2, 3, 10].map(fixture::document);
        other.parameters.workload = "sampling4/ftest".to_owned();
        few.started_unix += 10;
        let records = [few, many, other].map(fixture::changed);
        let groups = groups(&records);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(groups[0][1].started_unix, records[0].started_unix);
        assert_eq!(title(&records[2]), "nmi-latency, sampling4/ftest, cpu-clock, 1 vCPU (stand-in cpu-clock)");
    }

    #[test]
    fn a_quick_or_unfinished_result_does_not_stand_for_a_long_one() {
        let record = |rounds: u64, started: u64, quick: bool, status: Status| {
            let mut document = fixture::document(rounds);
            (document.started_unix, document.status, document.parameters.quick) = (started, status, quick);
            fixture::changed(document)
        };
        let records = [
            record(90, 1000, false, Status::Complete),
            record(80, 2000, false, Status::Complete),
            record(20, 3000, true, Status::Complete),
            record(95, 4000, false, Status::Interrupted),
        ];
        let found = groups(&records);
        assert_eq!((found.len(), found[0][3].started_unix, shown(&found[0]).started_unix), (1, 4000, 2000));
        let cut = [record(9, 1000, false, Status::Interrupted), record(2, 2000, false, Status::Interrupted)];
        assert_eq!(shown(&groups(&cut)[0]).started_unix, 2000);
    }
}
