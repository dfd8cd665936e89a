//! Two sides out of the runs of one campaign.

use crate::run::Run;

/// Runs of one variant and of another.
#[must_use]
pub fn by_variant(runs: &[Run], base: &str, new: &str) -> (Vec<Run>, Vec<Run>) {
    let of = |name: &str| runs.iter().filter(|run| run.labels.variant.as_deref() == Some(name)).cloned().collect();
    (of(base), of(new))
}

/// Runs with one value of a fact and with another, such as two kernels.
#[must_use]
pub fn by_fact(runs: &[Run], fact: &str, base: &str, new: &str) -> (Vec<Run>, Vec<Run>) {
    let of =
        |value: &str| runs.iter().filter(|run| run.facts.get(fact).is_some_and(|own| own == value)).cloned().collect();
    (of(base), of(new))
}
