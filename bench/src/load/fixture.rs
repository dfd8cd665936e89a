//! Documents for tests: as the mock experiment leaves them, with the latencies a test wants.

use std::path::Path;

use serde_json::{Value, json};

use super::Record;
use crate::rounds::mock;

/// A document whose rounds of each arm have the p50 (and every other quantile) that `ns` gives, in all metrics.
pub(crate) fn value(rounds: u64, started_unix: u64, ns: impl Fn(&str, u64) -> u64) -> Value {
    let document = mock::finished(&["--rounds", &rounds.to_string()]).document;
    let mut value = serde_json::to_value(document).unwrap();
    value["started_unix"] = started_unix.into();
    value["wall_ns"] = (1_000_000_000 + started_unix).into();
    for arm in value["arms"].as_array_mut().unwrap() {
        let name = arm["strategy"].as_str().unwrap().to_owned();
        for metric in ["nmi_handler_ns", "pmi_delivery_ns", "exit_path_ns"] {
            let mut most = 0;
            for round in arm["rounds"].as_array_mut().unwrap() {
                let ns = ns(&name, round["round"].as_u64().unwrap());
                most = most.max(ns);
                let count = round[metric]["count"].clone();
                round[metric] = json!({"count": count, "p50": ns, "p99": ns, "max": ns, "mean": ns as f64});
            }
            if most > 0 {
                let all = &mut arm[metric];
                let count = all["count"].clone();
                *all = json!({"count": count, "min": 1, "p50": most, "p90": most, "p99": most, "p99_9": most, "max": most,
                    "mean": most as f64, "histogram": ""});
            }
        }
    }
    value
}

/// The same, read.
pub(crate) fn record(rounds: u64, started_unix: u64, ns: impl Fn(&str, u64) -> u64) -> Record {
    changed(value(rounds, started_unix, ns))
}

/// A changed [`value`], read.
pub(crate) fn changed(value: Value) -> Record {
    Record::new(Path::new("x.json"), value).unwrap()
}
