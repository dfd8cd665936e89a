//! Summaries within an object: an arm's or a round's metrics.

use serde_json::{Map, Value};

use super::metrics::Metrics;
use super::summary::Summary;

/// How deep summaries may lie below an arm: `phases` → `open` → `wall_ns`.
const DEPTH: usize = 2;
/// The key of a list of phases.
const PHASES: &str = "phases";
/// Whole set-ups of a guest are a metric of their own; among its phases they would count twice.
const SET_UPS: &str = "phases/set-up/total_ns";
/// What the keys of metrics end in.
const UNIT: &str = "_ns";

/// Whether an object is a summary: it counts values and has a median.
fn is_summary(map: &Map<String, Value>) -> bool {
    map.contains_key("p50") && map.contains_key("count")
}

/// A summary of nothing: zeros throughout.
fn is_empty(map: &Map<String, Value>) -> bool {
    map.values().all(|value| value.as_f64() == Some(0.0))
}

/// Takes the summaries out of an object, with those that are null or empty.
///
/// # Errors
/// Which one is wrong, and how.
pub(super) fn take(map: &mut Map<String, Value>) -> Result<Metrics, String> {
    let is_metric = |(key, value): (&String, &Value)| match value {
        Value::Object(inner) => is_summary(inner),
        Value::Null => key.ends_with(UNIT),
        _ => false,
    };
    let keys: Vec<String> = map.iter().filter(|&field| is_metric(field)).map(|(key, _)| key.clone()).collect();
    let mut metrics = Metrics::new();
    for key in keys {
        if let Some(Value::Object(inner)) = map.remove(&key) {
            insert(&mut metrics, key, &inner)?;
        }
    }
    Ok(metrics)
}

fn insert(metrics: &mut Metrics, path: String, map: &Map<String, Value>) -> Result<(), String> {
    if is_empty(map) {
        return Ok(());
    }
    let summary = Summary::read(map).map_err(|why| format!("{path}: {why}"))?;
    if !path.ends_with(UNIT) {
        return Err(format!("{path}: its unit is unknown; a summary's name ends in {UNIT}"));
    }
    metrics.insert(path, summary);
    Ok(())
}

/// Adds the summaries below the fields of `map`, by their path, such as `phases/open/wall_ns`.
///
/// # Errors
/// Which one is wrong, and how.
pub(super) fn find(map: &Map<String, Value>, metrics: &mut Metrics) -> Result<(), String> {
    walk("", map, DEPTH, metrics)?;
    metrics.remove(SET_UPS);
    Ok(())
}

/// Adds the summaries among and below the fields of `map`, as a reader of any experiment finds them; `None` if one is wrong.
pub(crate) fn find_summaries(mut map: Map<String, Value>, metrics: &mut Metrics) -> Option<()> {
    metrics.extend(take(&mut map).ok()?);
    find(&map, metrics).ok()
}

/// Adds the summaries below the fields of `map`; `None` if one is wrong, or a field is one itself.
pub(crate) fn find_nested(map: &Map<String, Value>, metrics: &mut Metrics) -> Option<()> {
    if map.values().any(|value| value.as_object().is_some_and(is_summary)) {
        return None;
    }
    find(map, metrics).ok()
}

fn walk(above: &str, map: &Map<String, Value>, depth: usize, metrics: &mut Metrics) -> Result<(), String> {
    for (key, value) in map {
        // Most fields are numbers and need none.
        let path = || if above.is_empty() { key.clone() } else { format!("{above}/{key}") };
        let inner = match value {
            Value::Object(inner) => inner,
            // Phases in their order, each with its name.
            Value::Array(list) if key == PHASES && depth > 1 => {
                let path = path();
                for phase in list {
                    let named = phase.as_object().and_then(|map| Some((map.get("phase")?.as_str()?, map)));
                    let (name, inner) = named.ok_or_else(|| format!("{path}: a phase has no name (\"phase\")"))?;
                    walk(&format!("{path}/{name}"), inner, depth - 2, metrics)?;
                }
                continue;
            }
            _ => continue,
        };
        if is_summary(inner) {
            insert(metrics, path(), inner)?;
        } else if depth > 0 {
            walk(&path(), inner, depth - 1, metrics)?;
        }
    }
    Ok(())
}
