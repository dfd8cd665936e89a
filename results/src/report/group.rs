//! Groups results that belong together: the same experiment with the same parameters, backend and kind of host. A
//! result has one metric for all of its arms; an arm without it has a dash.

use std::cmp::Reverse;
use std::collections::BTreeMap;

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

/// Places a result among others of which one stands for all: complete ones before the rest, of those one that is not quick, the newest.
fn precedence(record: &Record) -> (bool, bool, u64) {
    let is_quick = record.parameters.get("quick").is_some_and(|quick| quick == true);
    (record.status == Status::Complete, !is_quick, record.started_unix)
}

/// Returns the result whose figures stand for a group.
pub(super) fn shown<'a>(group: &[&'a Record]) -> &'a Record {
    group.iter().copied().max_by_key(|record| precedence(record)).unwrap_or(group[0])
}

/// Returns the results of the newest command that measured several workloads, that of the first first; without one none.
pub(super) fn of_one_command(records: &[Record]) -> Vec<&Record> {
    let mut commands = BTreeMap::<_, BTreeMap<_, &Record>>::new();
    for record in records.iter().filter(|record| record.experiment == NMI_LATENCY) {
        let command = (&record.command_line, &record.tool.git_revision, &record.host.class);
        let best = commands.entry(command).or_default().entry(record.parameter("workload")).or_insert(record);
        *best = std::cmp::max_by_key(*best, record, |one| precedence(one));
    }
    let several = commands.into_values().filter(|one| one.len() > 1).map(|one| one.into_values().collect::<Vec<_>>());
    let mut found = several.max_by_key(|all| all.iter().map(|record| precedence(record)).min()).unwrap_or_default();
    found.sort_by_key(|record| record.started_unix);
    found
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
    fn a_quick_an_unfinished_or_a_lone_result_does_not_stand_for_a_long_one_or_the_answer() {
        let result = |started: u64, workload: &str, command: &str, status: Status| {
            // More rounds are the same kind, and another workload is not.
            let mut document = fixture::document(started / 500);
            (document.started_unix, document.status, document.parameters.quick) = (started, status, command == "quick");
            (document.parameters.workload, document.command_line) = (workload.to_owned(), vec![command.to_owned()]);
            fixture::changed(document)
        };
        let records = [
            result(1000, "ten", "vpmu", Status::Complete),
            result(2000, "one", "vpmu", Status::Complete),
            result(3000, "ten", "vpmu nmi-latency", Status::Complete),
            result(4000, "ten", "quick", Status::Complete),
            result(5000, "ten", "vpmu", Status::Interrupted),
            result(6000, "ten", "vpmu", Status::Interrupted),
        ];
        let found = groups(&records);
        assert_eq!((found.len(), found[0][4].started_unix, shown(&found[0]).started_unix), (2, 6000, 3000));
        assert_eq!(title(found[1][0]), "nmi-latency, one, cpu-clock, 1 vCPU (stand-in cpu-clock)");
        assert_eq!(shown(&groups(&records[4..])[0]).started_unix, 6000);
        let answer = |all| of_one_command(all).iter().map(|one| one.started_unix).collect::<Vec<_>>();
        assert_eq!([answer(&records), answer(&records[2..])], [vec![1000, 2000], vec![]]);
    }
}
