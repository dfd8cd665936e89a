//! Reasons against judging figures: they are not whole, or hosts and builds differ as far as that moves a latency.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use serde_json::Value;

use crate::document::{Any, Arm, Record, Status};

/// Says why an arm's figures are not whole on one of the sides; `None` if they are.
pub(super) fn of_arm(base: &[&Record], new: &[&Record], name: &str) -> Option<String> {
    [("BASE", base), ("NEW", new)].into_iter().find_map(|(which, records)| {
        let why = records.iter().find_map(|record| of_record(record, record.arm(name)?))?;
        Some(format!("{which}: {why}"))
    })
}

/// Says why one arm of a document is not whole.
pub fn of_record(record: &Record, arm: &Arm<Any>) -> Option<String> {
    match record.status {
        Status::Running => return Some("the run was killed".to_owned()),
        Status::Interrupted => return Some("the run was interrupted".to_owned()),
        Status::Incomplete if record.arms.iter().all(|arm| arm.incomplete.is_empty()) => {
            return Some("the run is incomplete".to_owned());
        }
        Status::Incomplete | Status::Complete => {}
    }
    if let Some(why) = arm.incomplete.first() {
        return Some(format!("incomplete: {why}"));
    }
    arm.own.doubts().next().map(|(count, about)| format!("{count} {about}"))
}

/// The runs of one side, in which those of the other are looked for.
pub(super) struct Runs<'a> {
    records: &'a [Record],
    /// The first of each file.
    by_path: HashMap<PathBuf, usize>,
    /// Those that were measured, by start and duration, in order.
    by_time: HashMap<(u64, u64), Vec<usize>>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(records: &'a [Record]) -> Self {
        let (mut by_path, mut by_time) = (HashMap::new(), HashMap::<_, Vec<usize>>::new());
        for (index, record) in records.iter().enumerate() {
            if let Some(path) = path(record) {
                by_path.entry(path).or_insert(index);
            }
            // Simulated runs of one seed are the same by design.
            if !record.parameter("backend").is_some_and(|name| name.starts_with("sim:")) {
                by_time.entry((record.started_unix, record.wall_ns)).or_default().push(index);
            }
        }
        Self { records, by_path, by_time }
    }

    /// Finds the first that is the same run: one file, or copies of one.
    pub(super) fn same_run(&self, record: &Record) -> Option<&'a Record> {
        let file = path(record).and_then(|path| self.by_path.get(&path).copied());
        let is_copy = |index: &usize| {
            let other = &self.records[*index];
            other.arms == record.arms && other.host == record.host && other.tool == record.tool
        };
        let timed = self.by_time.get(&(record.started_unix, record.wall_ns));
        let copy = timed.and_then(|found| {
            // A file found before them is the answer: figures need not be looked at.
            found
                .iter()
                .take_while(|index| file.is_none_or(|file| **index < file))
                .copied()
                .find(|index| is_copy(index))
        });
        copy.or(file).map(|index| &self.records[index])
    }
}

fn path(record: &Record) -> Option<PathBuf> {
    std::fs::canonicalize(&record.path).ok()
}

type Fact = fn(&Record) -> String;

fn shown<T: std::fmt::Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "unknown".to_owned(), ToString::to_string)
}

/// Facts that must be equal, and their places.
const FACTS: [(&str, Fact); 14] = [
    ("host class", |r| r.host.class.clone()),
    ("model's constants", |r| shown(r.host.model.as_ref())),
    ("CPU", |r| shown(r.host.cpu_model.as_ref())),
    ("CPU signature", |r| {
        r.host.cpu_signature.map_or_else(|| "unknown".to_owned(), |all| all.map(|n| n.to_string()).join("-"))
    }),
    ("microcode", |r| shown(r.host.microcode.as_ref())),
    ("online CPUs", |r| shown(r.host.cpus_online.as_ref())),
    ("kernel", |r| shown(r.host.kernel.as_ref())),
    ("KVM", |r| shown(r.host.kvm.as_ref())),
    ("governor", |r| shown(r.host.governor.as_ref())),
    ("turbo", |r| shown(r.host.turbo.as_ref())),
    ("SMT", |r| shown(r.host.smt.as_ref())),
    ("nmi_watchdog", |r| shown(r.host.nmi_watchdog.as_ref())),
    ("mitigations", |r| format!("{:?}", r.host.mitigations)),
    ("build profile", |r| r.tool.profile.clone()),
];

/// Each fact of a document that must be alike, by its name.
pub fn facts(record: &Record) -> impl Iterator<Item = (&'static str, String)> {
    FACTS.iter().map(|(name, fact)| (*name, fact(record)))
}

/// Parameters that affect figures but do not prevent a comparison.
const CONDITIONS: [(&str, &str); 4] = [
    ("pin", "CPUs that vCPUs are pinned to"),
    ("rounds_per_guest", "rounds of a guest"),
    ("samples", "samples of a round"),
    ("quick", "quick run"),
];

/// `BASE / NEW`, each side with its values; `None` where all records have one value.
fn unlike(base: &[&Record], new: &[&Record], value: impl Fn(&Record) -> String) -> Option<String> {
    let of = |records: &[&Record]| records.iter().map(|record| value(record)).collect::<BTreeSet<String>>();
    let sides = [of(base), of(new)];
    let is_unlike = sides[0].union(&sides[1]).count() > 1;
    is_unlike.then(|| sides.map(|values| values.into_iter().collect::<Vec<_>>().join(", ")).join(" / "))
}

/// One line for each strategy that has one name and other definitions, with the choices that differ.
pub(crate) fn definitions(base: &[&Record], new: &[&Record]) -> Vec<String> {
    let names = base.iter().chain(new).flat_map(|record| &record.arms).map(|arm| arm.name.as_str());
    let line = |name: &str| {
        let all: Vec<Vec<String>> = base.iter().chain(new).filter_map(|record| record.definition(name)).collect();
        let differs = |choice: &&String| all.iter().any(|one| !one.contains(choice));
        let own = |record: &Record| {
            let choices = record.definition(name).unwrap_or_default();
            choices.iter().filter(differs).cloned().collect::<Vec<_>>().join(", ")
        };
        let defined = |records: &[&Record]| -> BTreeSet<String> {
            records.iter().filter(|record| record.definition(name).is_some()).map(|record| own(record)).collect()
        };
        let sides = [base, new].map(defined);
        let is_other = sides.iter().all(|side| !side.is_empty()) && sides[0].union(&sides[1]).count() > 1;
        let sides = sides.map(|side| side.into_iter().collect::<Vec<_>>().join("; or "));
        is_other.then(|| format!("{name} has other definitions: {}", sides.join(" / ")))
    };
    names.collect::<BTreeSet<_>>().into_iter().filter_map(line).collect()
}

/// One line for each of them that is not the same in all.
pub(super) fn conditions(base: &[&Record], new: &[&Record]) -> Vec<String> {
    let shown = |record: &Record, key: &str| match record.parameters.get(key) {
        None | Some(Value::Null) if key == "rounds_per_guest" => "1".to_owned(),
        None | Some(Value::Null | Value::Bool(false)) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(value) => value.to_string(),
    };
    let line = |(key, what): &(&str, &str)| {
        unlike(base, new, |record| shown(record, key)).map(|values| format!("unlike: {what}: {values}"))
    };
    CONDITIONS.iter().filter_map(line).chain(definitions(base, new)).collect()
}

/// One line for each fact that is not the same in all.
pub(crate) fn differences(base: &[&Record], new: &[&Record]) -> Vec<String> {
    let line = |(name, fact): &(&str, Fact)| unlike(base, new, fact).map(|values| format!("{name}: {values}"));
    FACTS.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{changed, value};

    #[test]
    fn lost_throttled_and_interrupted_figures_are_not_whole() {
        let of = |change: &dyn Fn(&mut Value)| {
            let mut value = value(3, 5, |_, _| 1000);
            change(&mut value);
            let record = changed(value);
            let arm = record.arm("recreate").unwrap().clone();
            of_record(&record, &arm)
        };
        assert_eq!(of(&|_| {}), None);
        assert_eq!(
            of(&|d| d["arms"][0]["lost"] = json!(2)),
            Some("2 NMIs delivered and not taken, or the reverse".to_owned())
        );
        assert_eq!(of(&|d| d["arms"][1]["lost"] = json!(2)), None);
        assert!(of(&|d| d["arms"][0]["throttled"] = json!(7)).is_some_and(|why| why.contains("throttled")));
        assert!(of(&|d| d["arms"][0]["periods_missed"] = json!(900_000)).is_some_and(|why| why.contains("900000 p")));
        assert!(of(&|d| d["status"] = json!("interrupted")).is_some_and(|why| why.contains("interrupted")));
        assert!(of(&|d| d["arms"][0]["incomplete"] = json!(["round 2"])).is_some_and(|why| why.contains("round 2")));
    }

    #[test]
    fn a_name_with_other_definitions_is_said_with_what_differs() {
        let with = |reuse: &str| {
            let mut value = value(3, 5, |_, _| 1000);
            let text = format!("name = \"recreate\"\napply = \"at-once\"\n{reuse}");
            value["parameters"]["strategies"] = json!([{"name": "recreate", "definition": text}]);
            changed(value)
        };
        let (last, pool, none) =
            (with("reuse = \"last\""), with("\n[reuse]\npool = 4\n"), changed(value(3, 5, |_, _| 1000)));
        assert_eq!(last.definition("recreate").unwrap(), ["apply = \"at-once\"", "reuse = \"last\""]);
        let of = |base: &Record, new: &Record| conditions(&[base], &[new]);
        assert_eq!(of(&last, &pool), ["recreate has other definitions: reuse = \"last\" / reuse.pool = 4"]);
        assert_eq!(
            (of(&pool, &pool), of(&none, &pool)),
            (vec![], vec![]),
            "a document without definitions does not say"
        );
    }

    #[test]
    fn a_document_and_its_copy_are_one_run() {
        let of = |at| changed(value(3, at, |_, round| 1000 + round));
        let base = [of(4), of(5), of(5)];
        let runs = Runs::new(&base);
        assert!(runs.same_run(&of(5)).is_some_and(|same| std::ptr::eq(same, &raw const base[1])));
        assert!(runs.same_run(&of(6)).is_none());
    }
}
