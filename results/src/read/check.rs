//! Contradictions within a document, which this tool never writes.

use std::collections::BTreeSet;

use crate::document::{Arm, Document, Experiment, Status};

/// Most arms and rounds, far above what the tool can be asked for.
const MAX_ARMS: usize = 1000;
const MAX_ROUNDS: usize = 100_000;
/// The keys of metrics end in it.
const UNIT: &str = "_ns";

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
    arm.rounds.check().map_err(|why| format!("rounds: {why}"))?;
    for (a, b) in arm.rounds.iter().zip(arm.rounds.iter().skip(1)) {
        if b.index <= a.index {
            return Err(format!("round {} follows round {}", b.index, a.index));
        }
        if arm.rounds.started_us[b.at] < arm.rounds.started_us[a.at] {
            return Err(format!("the clock goes backwards from round {} to round {}", a.index, b.index));
        }
        if b.guest < a.guest {
            return Err(format!("round {} is of guest {}, the one after it of guest {}", a.index, a.guest, b.guest));
        }
    }
    if let Some(round) = arm.rounds.iter().find(|round| round.probe_ns.is_some_and(|ns| !(ns > 0.0 && ns.is_finite())))
    {
        return Err(format!("round {}: probe_ns is not above 0", round.index));
    }
    for (name, metric) in &arm.metrics {
        metric.check().map_err(|why| format!("{name}: {why}"))?;
        if !name.ends_with(UNIT) {
            return Err(format!("{name}: its unit is unknown; a metric's name ends in {UNIT}"));
        }
        let Some(parts) = arm.rounds.metrics.get(name) else { continue };
        let counted = parts.count.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if counted > 0 && counted != metric.count {
            let all = metric.count;
            return Err(format!("{name} summarizes {all} values, its rounds {counted}: edited by hand?"));
        }
        if parts.max.iter().any(|max| *max > metric.max) {
            return Err(format!("{name}: a round's max is above the summary's: mixed units, or edited by hand?"));
        }
    }
    for (name, column) in &arm.rounds.metrics {
        if !arm.metrics.contains_key(name) && column.count.iter().any(|count| *count > 0) {
            return Err(format!("its rounds have {name}, which its summary lacks: mixed units, or edited by hand?"));
        }
    }
    Ok(())
}
