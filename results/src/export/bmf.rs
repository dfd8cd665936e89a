//! Bencher Metric Format: benchmark → measure → value and bounds. The measure `latency` is Bencher's own, in ns; the bounds
//! are the smallest and largest median of a round.

use serde_json::{Map, Value, json};

use super::named::named;
use crate::document::Record;
use crate::error::Error;

/// Formats the records as BMF.
///
/// # Errors
/// Exit 2 for two figures under one name.
pub fn text(records: &[Record]) -> Result<String, Error> {
    let mut all = Map::new();
    for row in named(records)? {
        let mut latency = json!({ "value": row.metric.median() });
        if let Some((low, high)) = row.spread {
            // The median of all rounds lies between theirs, apart from the histogram's rounding.
            latency["lower_value"] = low.min(row.metric.median()).into();
            latency["upper_value"] = high.max(row.metric.median()).into();
        }
        let mut measures = json!({ "latency": latency });
        if let Some(p99) = row.metric.p99 {
            measures["p99"] = json!({ "value": p99 });
        }
        all.insert(row.name, measures);
    }
    Ok(format!("{:#}\n", Value::Object(all)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_benchmark_has_a_latency_within_its_bounds() {
        let (_dir, record) = fixture::written(&fixture::document(2));
        let text = text(&[record]).unwrap();
        let all: Map<String, Value> = serde_json::from_str(&text).unwrap();
        assert!(all.contains_key("nmi-latency/single:ftest/1vcpu/cpu-clock/recreate/nmi_handler_ns"), "{text}");
        for measures in all.values() {
            let latency = &measures["latency"];
            let value = latency["value"].as_f64().unwrap();
            assert!(latency["lower_value"].as_f64().is_none_or(|low| low <= value));
            assert!(latency["upper_value"].as_f64().is_none_or(|high| high >= value));
        }
    }
}
