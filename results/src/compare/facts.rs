//! Reasons against judging figures: they are not whole, or hosts and builds differ as far as that moves a latency.

use std::collections::BTreeSet;

use crate::document::{Arm, Record, Status};

/// Says why an arm of a document is not whole; `None` if it is.
pub fn doubt_of(record: &Record, arm: &Arm) -> Option<String> {
    let of_run = match record.status {
        Status::Running => Some("the run was killed"),
        Status::Interrupted => Some("the run was interrupted"),
        Status::Incomplete if record.arms.iter().all(|arm| arm.incomplete.is_empty()) => Some("the run is incomplete"),
        Status::Incomplete | Status::Complete => None,
    };
    of_run.map(str::to_owned).or_else(|| arm.doubt())
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
    ("CPU signature", |r| shown(r.host.cpu_signature.map(|all| all.map(|n| n.to_string()).join("-")).as_ref())),
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
        let [base, new] = [base, new].map(|side| {
            side.iter().copied().filter(|record| record.definition(name).is_some()).collect::<Vec<&Record>>()
        });
        let all: Vec<_> = base.iter().chain(&new).filter_map(|record| record.definition(name)).collect();
        let own = |record: &Record| {
            let mut choices = record.definition(name).unwrap_or_default();
            choices.retain(|choice| all.iter().any(|one| !one.contains(choice)));
            choices.join(", ")
        };
        let differ = unlike(&base, &new, own).filter(|_| !base.is_empty() && !new.is_empty());
        differ.map(|values| format!("{name} has other definitions: {values}"))
    };
    names.collect::<BTreeSet<_>>().into_iter().filter_map(line).collect()
}

/// One line for each of these parameters that is not the same in all: figures depend on it, and are compared.
pub(super) fn conditions([base, new]: &[Vec<&Record>; 2], keys: &[&str]) -> Vec<String> {
    let line = |key: &&str| {
        let given = |record: &Record| record.parameter(key).filter(|value| value != "null");
        let values = unlike(base, new, |record| given(record).unwrap_or_else(|| "none".to_owned()));
        values.map(|values| format!("unlike: {key}: {values}"))
    };
    keys.iter().filter_map(line).collect()
}

/// One line for each fact that is not the same in all.
pub(crate) fn differences(base: &[&Record], new: &[&Record]) -> Vec<String> {
    let line = |(name, fact): &(&str, Fact)| unlike(base, new, fact).map(|values| format!("{name}: {values}"));
    FACTS.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{changed, value};

    #[test]
    fn a_name_with_other_definitions_is_said_with_what_differs() {
        let with = |definition: Option<String>| {
            let mut value = value(3, 5, |_, _| 1000);
            value["parameters"]["strategies"] = json!([{"name": "recreate", "definition": definition}]);
            changed(value)
        };
        let text = |reuse: &str| Some(format!("name = \"recreate\"\napply = \"at-once\"\n{reuse}"));
        let (last, pool, none) = (with(text("reuse = \"last\"")), with(text("\n[reuse]\npool = 4\n")), with(None));
        assert_eq!(last.definition("recreate").unwrap(), ["apply = \"at-once\"", "reuse = \"last\""]);
        let of = |base: &Record, new: &Record| definitions(&[base], &[new]);
        assert_eq!(of(&last, &pool), ["recreate has other definitions: reuse = \"last\" / reuse.pool = 4"]);
        assert_eq!(
            (of(&pool, &pool), of(&none, &pool)),
            (vec![], vec![]),
            "a document without definitions does not say"
        );
    }
}
