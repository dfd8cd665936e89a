//! Which documents go with which: those that measured the same, on both sides.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde_json::Value;

use super::facts::doubt_of;
use crate::document::{Any, Arm, ArmKind, Record, other_cpu};
use crate::error::Error;
use crate::read;
use crate::table::layout::plural;

/// The two sides of a comparison, BASE first.
pub(super) type Both<T> = [T; 2];
/// Arms or workloads that keep "no regression" from being said, and why; or, of no name, a whole sentence.
pub(super) type Missing = Vec<(String, String)>;
/// Notes, and what is missing, as they are found.
pub(super) type Said<'a> = (&'a mut Vec<String>, &'a mut Missing);
/// Their names.
pub(super) const SIDES: Both<&str> = ["BASE", "NEW"];
/// With this many documents on both sides how runs differ is seen.
pub const MIN_RUNS: usize = 8;
/// Parameters that say how much is measured or why, not what, and those of a side's build: they may differ.
const HOW_MUCH: &str = "rounds rounds_per_guest until_ci quick pin samples warmup_samples warmup_rounds duration_ns time_limit_ns \
                        strategies backend_requested backend_why look_ups binary tool rules";

/// Documents of both sides that measured the same.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) label: String,
    pub(super) sides: Both<Vec<&'a Record>>,
    /// The arm that the others are divided by.
    pub(super) reference: Option<&'a String>,
    /// Documents of one place are turns of a pair.
    pub(super) turns: bool,
}

impl<'a> Pair<'a> {
    pub(super) fn all(&self) -> impl Iterator<Item = &'a Record> {
        self.sides.iter().flatten().copied()
    }

    /// Returns whether the runs were simulated: no two of them differ by the host's doing.
    pub(super) fn simulated(&self) -> bool {
        self.all().all(Record::is_simulated)
    }

    /// Returns an arm of a document, of a turn if it is whole.
    pub(super) fn arm<'b>(&self, record: &'b Record, name: &str) -> Option<&'b Arm> {
        record.arm(name).filter(|arm| !self.turns || doubt_of(record, arm).is_none())
    }

    /// Says why an arm's figures are not whole on one of the sides; `None` if they are.
    pub(super) fn doubt(&self, name: &str) -> Option<String> {
        let of = |record: &&Record| doubt_of(record, record.arm(name)?);
        let of_side = |(which, side): (&str, &Vec<&Record>)| Some(format!("{which}: {}", side.iter().find_map(of)?));
        SIDES.into_iter().zip(&self.sides).find_map(of_side)
    }
}

/// Returns the arm that the others of these documents are divided by: the floor, else the first that all of them have.
pub(crate) fn reference<'a>(records: &[&'a Record]) -> Option<&'a String> {
    let everywhere = |name: &str| records.iter().all(|one| one.arm(name).is_some_and(|arm| !arm.rounds.is_empty()));
    let arms = || records.first().into_iter().flat_map(|one| &one.arms).filter(|arm| everywhere(&arm.name));
    arms().find(|arm| arm.kind == ArmKind::Floor).or_else(|| arms().next()).map(|arm| &arm.name)
}

/// Returns the parameters that must be equal for two documents to be comparable.
fn subject(record: &Record) -> Any {
    let mut subject = what(&record.parameters);
    subject.insert("experiment".to_owned(), record.experiment.clone().into());
    subject
}

/// Returns what comparable documents share, as text, but for the parameters in `without`.
pub fn group_key(record: &Record, without: &[&str]) -> String {
    let mut subject = subject(record);
    subject.retain(|name, _| !without.contains(&name.as_str()));
    Value::from(subject).to_string()
}

/// Returns those of parameters that say what is measured. The sides of `ab` are runs with parameters of their own.
fn what(parameters: &Any) -> Any {
    let is_what = |name: &str| HOW_MUCH.split(' ').all(|other| other != name);
    let own = |value: &Value| value.as_object().map_or_else(|| value.clone(), |within| what(within).into());
    parameters.iter().filter(|(name, _)| is_what(name)).map(|(name, value)| (name.clone(), own(value))).collect()
}

/// The experiment and its main parameters, for people.
pub fn group_label(record: &Record) -> String {
    let mut parts = vec![record.experiment.clone()];
    let sized = |name: &str, unit: &str| record.size(name).map(|n| plural(n as usize, unit));
    if record.parameter("workload").is_none() {
        parts.extend([sized("events", "event"), sized("cpus", "CPU")].into_iter().flatten());
        parts.extend(record.parameter("mode"));
    }
    parts.extend(["workload", "backend"].into_iter().filter_map(|name| record.parameter(name)));
    parts.extend(sized("vcpus", "vCPU"));
    parts.extend(record.parameter("cpu").filter(|cpu| other_cpu(cpu).is_some()));
    parts.join(", ")
}

/// Puts together the documents that measured the same, and are alike in `also`.
pub(crate) fn grouped<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    also: fn(&'a Record) -> &'a str,
) -> BTreeMap<(&'a str, String), Vec<&'a Record>> {
    let mut groups = BTreeMap::<_, Vec<&'a Record>>::new();
    for record in records {
        groups.entry((also(record), group_key(record, &[]))).or_default().push(record);
    }
    groups
}

/// Parts the runs of NEW into those that are also in BASE, as one file or a copy of it, and the others. Simulated runs of one seed are
/// the same by design.
pub(super) fn of_base<'a>(base: &[Record], new: &'a [Record]) -> (Vec<&'a Record>, Vec<&'a Record>) {
    let file = |record: &Record| std::fs::canonicalize(&record.path).ok();
    let files: HashSet<PathBuf> = base.iter().filter_map(file).collect();
    let is_copy = |record: &Record| base.iter().any(|other| !other.is_simulated() && read::is_copy(other, record));
    new.iter().partition(|record| file(record).is_some_and(|path| files.contains(&path)) || is_copy(record))
}

/// Pairs documents by what they measured, turns as they come, and says what NEW lacks of BASE; what a baseline has of other
/// experiments is no part of the question.
///
/// # Errors
/// Exit 2 if the sides have nothing in common.
pub(super) fn pairs<'a>(
    names: Both<&str>,
    sides: &Both<Vec<&'a Record>>,
    turns: bool,
    (notes, missing): Said<'_>,
) -> Result<Vec<Pair<'a>>, Error> {
    if let (true, Some(last)) = (turns, sides[1].last()) {
        let (label, sides) = (group_label(last), sides.clone());
        return Ok(vec![Pair { label, sides, reference: None, turns }]);
    }
    let [mut bases, mut news] = sides.each_ref().map(|side| grouped(side.iter().copied(), |_| ""));
    let mut pairs = Vec::new();
    bases.retain(|key, base| {
        let Some(new) = news.remove(key) else { return true };
        let sides = [std::mem::take(base), new];
        let (label, reference) = (group_label(sides[0][0]), reference(&sides.concat()));
        pairs.push(Pair { label, sides, reference, turns });
        false
    });
    if pairs.is_empty() {
        let both = sides[0].first().zip(sides[1].first());
        let why = both.map_or_else(|| "there are no documents".to_owned(), |(a, b)| first_difference(a, b));
        let what = format!("{} and {} measured different things", names[0], names[1]);
        return Err(Error::usage(what, why, "compare runs of the same experiment and parameters"));
    }
    for (which, left) in SIDES.into_iter().zip([&bases, &news]) {
        notes.extend(left.values().map(|records| {
            let (label, documents) = (group_label(records[0]), plural(records.len(), "document"));
            format!("{label} ({documents}): only in {which}, not compared; a folder of its own leaves it out")
        }));
    }
    let is_known = |left: &&Vec<&Record>| pairs.iter().any(|pair| pair.sides[0][0].experiment == left[0].experiment);
    let lacks = bases.values().filter(is_known).map(|left| (group_label(left[0]), "only in BASE".to_owned()));
    missing.extend(lacks);
    Ok(pairs)
}

/// Names a parameter that differs: the workload if it does, and a list, which follows from others, only if nothing else does.
fn first_difference(a: &Record, b: &Record) -> String {
    let [one, two] = [a, b].map(subject);
    let unlike = one.keys().chain(two.keys()).filter(|name| one.get(*name) != two.get(*name));
    let is_list = |name: &String| one.get(name).or(two.get(name)).is_some_and(|value| !value.is_string());
    let name = unlike.min_by_key(|name| (*name != "workload", is_list(name)));
    let shown = |key: &Any, name| key.get(name).map_or("absent".to_owned(), |value| value.to_string().replace('"', ""));
    name.map_or_else(String::new, |name| format!("{name} is {} and {}", shown(&one, name), shown(&two, name)))
}
