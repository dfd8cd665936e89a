//! What a document of ours never is: what it says must agree with itself.

use serde_json::Value;

use std::collections::BTreeSet;

use crate::document::{Arm, Document, Experiment, Status};

/// Most arms and rounds, far above what the tool can be asked for.
const MAX_ARMS: usize = 1000;
const MAX_ROUNDS: usize = 100_000;

/// # Errors
/// The first contradiction, in a sentence.
pub(super) fn document<E: Experiment>(document: &Document<E>) -> Result<(), String> {
    if document.arms.is_empty() || document.arms.len() > MAX_ARMS {
        return Err(format!("it has {} arms", document.arms.len()));
    }
    if document.started_unix == 0 && !document.is_simulated() {
        return Err("it says that it began at 1970-01-01: the host's clock was not set".to_owned());
    }
    let mut names = BTreeSet::new();
    for arm in &document.arms {
        if arm.name.is_empty() || arm.name.chars().any(char::is_control) {
            return Err(format!("an arm's name is {:?}", arm.name));
        }
        if !names.insert(&arm.name) {
            return Err(format!("duplicate arm {}", arm.name));
        }
        self::arm(arm, document).map_err(|why| format!("arm {}: {why}", arm.name))?;
    }
    Ok(())
}

fn arm<E: Experiment>(arm: &Arm<E>, document: &Document<E>) -> Result<(), String> {
    if arm.rounds.len() > MAX_ROUNDS {
        return Err(format!("{} rounds", arm.rounds.len()));
    }
    let measured = !arm.rounds.is_empty();
    if measured && arm.not_available.is_some() {
        return Err("it has rounds although it was not available".to_owned());
    }
    let excused = arm.not_available.is_some() || !arm.incomplete.is_empty() || document.status != Status::Complete;
    if !measured && !excused {
        return Err("it has no rounds and does not say why".to_owned());
    }
    if !measured && !arm.metrics.is_empty() {
        return Err("it has figures without rounds".to_owned());
    }
    for pair in arm.rounds.windows(2) {
        let [a, b] = pair else { continue };
        if b.index <= a.index {
            return Err(format!("round {} follows round {}", b.index, a.index));
        }
        if b.started_ns < a.started_ns {
            return Err(format!("the clock goes backwards from round {} to round {}", a.index, b.index));
        }
        if b.guest() < a.guest() {
            return Err(format!(
                "round {} is of guest {}, the one after it of guest {}",
                a.index,
                a.guest(),
                b.guest()
            ));
        }
    }
    if let Some(round) = arm.rounds.iter().find(|round| round.probe_ns.is_some_and(|ns| !(ns > 0.0 && ns.is_finite())))
    {
        return Err(format!("round {}: probe_ns is not above 0", round.index));
    }
    for name in arm.rounds.iter().flat_map(|round| round.metrics.keys()) {
        if !arm.metrics.contains_key(name) {
            return Err(format!("its rounds have {name}, which its summary lacks: mixed units, or edited by hand?"));
        }
    }
    for (name, metric) in &arm.metrics {
        let parts = || arm.rounds.iter().filter_map(|round| round.metrics.get(name));
        let counted = parts().fold(0_u64, |sum, part| sum.saturating_add(part.count));
        if counted > 0 && counted != metric.count {
            let all = metric.count;
            return Err(format!("{name} summarizes {all} values, its rounds {counted}: edited by hand?"));
        }
        if parts().any(|part| part.max > metric.max) {
            return Err(format!("{name}: a round's max is above the summary's: mixed units, or edited by hand?"));
        }
    }
    Ok(())
}
/// A number that no counter of 64 bits can hold.
pub(super) fn too_large(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64().filter(|found| found.abs() > u64::MAX as f64),
        Value::Array(all) => all.iter().find_map(too_large),
        Value::Object(all) => all.values().find_map(too_large),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}
