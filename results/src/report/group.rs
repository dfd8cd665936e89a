//! Groups results that belong together: the same experiment with the same parameters, backend and kind of host. A
//! result has one metric for all of its arms; an arm without it has a dash.

use std::collections::BTreeMap;

use crate::document::{Arm, ArmKind, Record, Status};

/// Parameters that say how long or often was measured, not what.
const NOT_WHAT: [&str; 14] = [
    "rounds",
    "samples",
    "warmup_samples",
    "warmup_rounds",
    "duration_ns",
    "quick",
    "until_ci",
    "time_limit_ns",
    "backend_why",
    "backend_requested",
    "baseline_ticks",
    "tail_ticks",
    "command",
    "pin",
];

/// Rounds of a result that represents its kind, however many another one has.
const MANY: usize = 100;

/// Results of one kind, the oldest first; never empty.
pub(super) struct Group<'a> {
    pub(super) records: Vec<&'a Record>,
}

/// Returns the key that results of one group share, ignoring the parameters in `without`.
pub(super) fn key(record: &Record, without: &[&str]) -> String {
    let what = record
        .parameters
        .iter()
        .filter(|(name, value)| {
            let name = name.as_str();
            !value.is_object() && !value.is_array() && !NOT_WHAT.contains(&name) && !without.contains(&name)
        })
        .map(|(name, value)| format!("{name}={value}"));
    let sizes = ["events", "cpus"].into_iter().filter(|name| !without.contains(name));
    let sizes = sizes.filter_map(|name| Some(format!("{name}: {}", record.size(name)?)));
    let enable = enable(record).map(|how| format!("enable={how}"));
    let parts =
        [record.experiment.clone(), record.host.class.clone()].into_iter().chain(what).chain(sizes).chain(enable);
    parts.collect::<Vec<_>>().join("\n")
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

/// Returns the newest record with [`MANY`] rounds, or half as many as any has; also a shorter one that has a strategy, by
/// its definition, which none of those has: it is the only one to show it.
pub(super) fn newest<'a>(records: &[&'a Record]) -> Option<&'a Record> {
    let rounds = |record: &Record| record.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    let most = records.iter().map(|record| rounds(record)).max()?;
    let long: Vec<&Record> =
        records.iter().filter(|record| rounds(record) >= MANY.min(most.div_ceil(2))).copied().collect();
    let is_known = |record: &Record, arm: &Arm| {
        long.iter().any(|one| one.arm(&arm.name).is_some() && one.defines_alike(record, &arm.name))
    };
    let is_shown = |record: &&&Record| {
        long.iter().any(|one| std::ptr::eq(*one, **record)) || record.arms.iter().any(|arm| !is_known(record, arm))
    };
    records.iter().rev().find(is_shown).copied()
}

/// Returns a heading for the subject of a record.
pub(super) fn title(record: &Record) -> String {
    let mut title = record.experiment.clone();
    if let Some(workload) = record.parameter("workload") {
        title = format!("{title}, {workload}");
    }
    let host = record.parameter("workload").is_none();
    for (name, one, many) in [("events", "event", "events"), ("cpus", "CPU", "CPUs"), ("vcpus", "vCPU", "vCPUs")] {
        // A workload says itself how many events it has, and a guest has one vCPU unless told otherwise.
        if let Some(n) = record.size(name).filter(|&n| host || name == "vcpus" && n != 1) {
            title = format!("{title}, {n} {}", if n == 1 { one } else { many });
        }
    }
    if let Some(mode) = record.parameter("mode") {
        title = format!("{title}, {mode}");
    }
    if enable(record) == Some("once") {
        title.push_str(", enabled at once");
    }
    if let Some(cpu) = record.other_cpu() {
        title = format!("{title}, {cpu}");
    }
    format!("{title}, {}", backend(record))
}

/// Returns the backend, and whether it is a stand-in or a simulation.
pub(super) fn backend(record: &Record) -> String {
    let backend = record.parameter("backend").or_else(|| record.arms.first().map(|arm| arm.backend.clone()));
    let backend = backend.filter(|backend| !backend.is_empty()).unwrap_or_else(|| "no backend".to_owned());
    let what = if is_simulated(record) {
        " (simulated)"
    } else if record.arms.iter().any(|arm| arm.stand_in) {
        " (stand-in)"
    } else {
        ""
    };
    format!("{backend}{what}")
}

/// Returns whether it holds only simulated figures.
pub(super) fn is_simulated(record: &Record) -> bool {
    record.is_simulated() || record.parameter("backend").is_some_and(|backend| backend.starts_with("sim:"))
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
        assert_eq!(title(&records[2]), "nmi-latency, sampling4/ftest, cpu-clock (stand-in)");
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
