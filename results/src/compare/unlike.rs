//! Differences of the hosts and builds behind documents, as far as they move a latency.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::document::Record;

type Fact = fn(&Record) -> String;

fn shown<T: std::fmt::Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "unknown".to_owned(), ToString::to_string)
}

/// Facts that must be equal, and their places.
const FACTS: [(&str, Fact); 13] = [
    ("host class", |r| r.host.class.clone()),
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
    CONDITIONS.iter().filter_map(line).collect()
}

/// One line for each fact that is not the same in all.
pub(crate) fn differences(base: &[&Record], new: &[&Record]) -> Vec<String> {
    let line = |(name, fact): &(&str, Fact)| unlike(base, new, fact).map(|values| format!("{name}: {values}"));
    FACTS.iter().filter_map(line).collect()
}
