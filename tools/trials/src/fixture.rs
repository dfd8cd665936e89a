//! Documents for tests, as a run of the tool leaves them: each arm's rounds of 40 samples, nothing lost.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::path::Path;

use serde_json::{Value, json};

use results::document::{Column, Document, Record, Rounds, SCHEMA, Summary, Tool, latency_histogram, warnings};
use results::host::HostFacts;
use results::metric::{EXIT_PATH, NMI_HANDLER, PMI_DELIVERY};
use results::read;

use super::hosts;
use super::synthetic::Turn;

/// Samples of a round.
pub const SAMPLES: u64 = 40;
/// The strategies, unless a test gives others.
const STRATEGIES: [&str; 3] = ["recreate", "reuse", "reuse-lazy"];

/// Builds a document of so many rounds of `recreate`, `reuse`, `reuse-lazy` and the floor, without arm `kvm`.
pub fn document(rounds: u64) -> Document {
    of_strategies(rounds, &STRATEGIES)
}

/// Builds a document of other strategies. The handler of `recreate` takes 2 µs, every other 1 µs.
pub fn of_strategies(rounds: u64, strategies: &[&str]) -> Document {
    let (_dir, fs) = hosts::tree(hosts::PVM);
    let mut host = HostFacts::read(&fs);
    host.finish(&fs);
    let template = template();
    let mut value = template["document"].clone();
    value["host"] = json!(host);
    let count = strategies.len() as u64 + 1;
    value["wall_ns"] = (rounds * count * 5_000_000).into();
    value["parameters"]["rounds"] = rounds.into();
    let definition = |name| json!({"name": name, "definition": null});
    value["parameters"]["strategies"] = strategies.iter().map(definition).collect();
    let kinds = strategies.iter().map(|name| (*name, "strategy")).chain([("floor", "floor"), ("kvm", "kvm")]);
    let arms = kinds.zip(0..).map(|(of, place)| arm(&template["measured"], of, rounds, place, count));
    value["arms"] = arms.collect();
    value["warnings"] = json!([]);
    value["schema"] = SCHEMA.into();
    let mut document: Document = serde_json::from_value(value).unwrap();
    document.warnings = warnings::collect(&document);
    document
}

/// A document without host, rounds and arms, and what an arm has measured in one round.
fn template() -> Value {
    serde_json::from_str(include_str!("fixture.json")).unwrap()
}

/// Describes a tool built without optimization.
pub fn tool() -> Tool {
    serde_json::from_value(template()["document"]["tool"].clone()).unwrap()
}

/// Builds an arm of so many rounds, which `count` arms share; arm `kvm` has none.
fn arm(measured: &Value, (name, kind): (&str, &str), rounds: u64, place: u64, count: u64) -> Value {
    const EACH_ROUND: &str = "/overflows /pmi_requests /pmis /entries /signals /nmis /guest_overflows /nmis_delivered /workload_ns \
         /host_ops/open/count /host_ops/open/total_ns /msr_exits/0x38f/writes";
    let rounds = if kind == "kvm" { 0 } else { rounds };
    let mut arm = if rounds > 0 { measured.clone() } else { json!({"rounds": {"complete": []}}) };
    let places = (0..rounds).map(|round| (place + round) % count);
    let started_us = (0..rounds).zip(places.clone()).map(|(round, place)| (round * count + place) * 5_000);
    let columns = &mut arm["rounds"];
    columns["started_us"] = started_us.collect();
    columns["position"] = places.collect();
    columns["round"] = (0..rounds).collect();
    columns["metrics"] = json!({});
    arm["metrics"] = json!({});
    for pointer in EACH_ROUND.split_whitespace().filter(|_| rounds > 0) {
        let each = arm.pointer_mut(pointer).unwrap();
        *each = (each.as_u64().unwrap() * rounds).into();
    }
    let handler_ns = if name == "recreate" { 2000 } else { 1000 };
    let metrics = [(&NMI_HANDLER, handler_ns, SAMPLES), (&PMI_DELIVERY, 500, SAMPLES), (&EXIT_PATH, 250, 1)];
    for (metric, ns, samples) in metrics.into_iter().filter(|_| rounds > 0) {
        let mut histogram = latency_histogram();
        histogram.saturating_record_n(ns, samples * rounds);
        arm["metrics"][metric.key] = json!(Summary::of(&histogram));
        let ns = [ns];
        arm["rounds"]["metrics"][metric.key] =
            json!({"count": [samples], "min": ns, "p50": ns, "p90": ns, "max": ns, "mean": ns});
    }
    arm["strategy"] = name.into();
    arm["kind"] = kind.into();
    arm["backend"] = match kind {
        "floor" => "none".into(),
        "kvm" => "kvm".into(),
        _ => "cpu-clock".into(),
    };
    arm["stand_in"] = (kind == "strategy").into();
    arm["not_available"] = (kind == "kvm").then_some("the mock has no vPMU of its own").into();
    arm["incomplete"] = json!([]);
    arm
}

/// Builds a document as JSON: the rounds of each arm have the p50 (and every other quantile) that `ns` gives, in all metrics.
///
/// # Panics
/// Never: the document is this module's own.
pub fn value(rounds: u64, started_unix: u64, ns: impl Fn(&str, u64) -> u64) -> Value {
    let mut value = spread(&document(rounds));
    value["started_unix"] = started_unix.into();
    value["wall_ns"] = (1_000_000_000 + started_unix).into();
    for arm in value["arms"].as_array_mut().unwrap() {
        let name = arm["strategy"].as_str().unwrap().to_owned();
        for metric in ["nmi_handler_ns", "pmi_delivery_ns", "exit_path_ns"] {
            let rounds = arm["rounds"]["round"].as_array().unwrap();
            let times: Vec<u64> = rounds.iter().map(|round| ns(&name, round.as_u64().unwrap())).collect();
            let most = times.iter().copied().max().unwrap_or(0);
            if most > 0 {
                let column = &mut arm["rounds"]["metrics"][metric];
                let count = column["count"].clone();
                *column = json!({"count": count, "p50": times, "p99": times, "max": times, "mean": times});
                let all = &mut arm["metrics"][metric];
                let count = all["count"].clone();
                *all = json!({"count": count, "min": 1, "p50": most, "p90": most, "p99": most, "p99_9": most, "max": most,
                    "mean": most as f64, "histogram": ""});
            }
        }
    }
    value
}

/// Formats a document as JSON in which every column has a value a round, so that a test can change one.
///
/// # Panics
/// Never: the document is this module's own.
pub fn spread(document: &Document) -> Value {
    fn column(value: &mut Value, rounds: usize) {
        match value {
            Value::Array(values) if values.len() == 1 => *values = vec![values[0].clone(); rounds],
            Value::Object(columns) => columns.values_mut().for_each(|value| column(value, rounds)),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(document).unwrap();
    for (json, arm) in value["arms"].as_array_mut().unwrap().iter_mut().zip(&document.arms) {
        column(&mut json["rounds"], arm.rounds.len());
    }
    value
}

/// Makes the rounds of a [`value`] turns of guests that live for so many rounds.
///
/// # Panics
/// If it is no such value.
pub fn in_guests(value: &mut Value, rounds: u64) {
    for arm in value["arms"].as_array_mut().unwrap() {
        let columns = &mut arm["rounds"];
        let index: Vec<u64> = serde_json::from_value(columns["round"].clone()).unwrap();
        columns["guest"] = index.iter().map(|index| index / rounds.max(1)).collect();
    }
}

/// Takes a round out of the columns of an arm's rounds.
///
/// # Panics
/// Without such a round.
pub fn without_round(columns: &mut Value, at: usize) {
    match columns {
        Value::Array(column) => drop(column.remove(at)),
        Value::Object(columns) => columns.values_mut().for_each(|column| without_round(column, at)),
        _ => {}
    }
}

/// Builds a record.
pub fn record(rounds: u64, started_unix: u64, ns: impl Fn(&str, u64) -> u64) -> Record {
    changed(value(rounds, started_unix, ns))
}

/// Fills `template`, a [`record`] of any rounds, with the synthetic turns of each of its arms as its rounds: 100 µs
/// times e to their `log`. It has one metric, `nmi_handler_ns`.
///
/// # Panics
/// Never.
#[expect(clippy::cast_sign_loss, reason = "an exponential is positive")]
pub fn of_turns(template: &Record, started_unix: u64, arms: &[Vec<Turn>]) -> Record {
    let mut record = template.clone();
    record.started_unix = started_unix;
    record.arms.truncate(arms.len());
    for (arm, turns) in record.arms.iter_mut().zip(arms) {
        arm.metrics.retain(|key, _| key == NMI_HANDLER.key);
        let column = Column {
            count: vec![SAMPLES; turns.len()],
            p50: turns.iter().map(|turn| (turn.log.exp() * 100_000.0) as u64).collect(),
            ..Column::default()
        };
        arm.rounds = Rounds {
            index: (0..turns.len() as u64).collect(),
            position: vec![0; turns.len()],
            complete: vec![true; turns.len()],
            started_us: vec![0; turns.len()],
            guest: turns.iter().map(|turn| Some(turn.guest)).collect(),
            metrics: [(NMI_HANDLER.key.to_owned(), column)].into(),
            ..Rounds::default()
        };
    }
    record
}

/// Builds a result of so many rounds of strategies at these times in ns, with a spread, and the floor at 1000 ns.
///
/// # Panics
/// If it is refused.
pub fn timed(rounds: u64, times: &[(&str, u64)]) -> Record {
    let names: Vec<&str> = times.iter().map(|(name, _)| *name).collect();
    let mut document = spread(&of_strategies(rounds, &names));
    for (arm, place) in document["arms"].as_array_mut().unwrap().iter_mut().zip(0..) {
        if arm["kind"] != "kvm" {
            arm["metrics"]["nmi_handler_ns"]["max"] = 1_000_000.into();
            let ns = usize::try_from(place).ok().and_then(|place| times.get(place)).map_or(1000, |(_, ns)| *ns);
            let p50: Vec<u64> = (0..rounds).map(|round| ns + (round * (7 + place)) % 5).collect();
            let count = vec![SAMPLES; p50.len()];
            arm["rounds"]["metrics"]["nmi_handler_ns"] = json!({"count": count, "p50": p50, "max": p50});
        }
    }
    for strategy in document["parameters"]["strategies"].as_array_mut().unwrap() {
        let gate = strategy["name"] == "gate";
        strategy["definition"] = format!("gate = {gate}\noverflow = \"keep\"\n").into();
    }
    changed(document)
}

/// Reads a changed [`value`].
///
/// # Panics
/// If it is refused.
#[expect(clippy::needless_pass_by_value, reason = "tests hand over the value that they changed")]
pub fn changed(value: Value) -> Record {
    read::of_text(Path::new("x.json"), &value.to_string()).unwrap()
}

/// Writes a document to a file and reads it back. The file lives as long as the folder.
///
/// # Panics
/// If it cannot be written, or is refused.
pub fn written(document: &Document) -> (tempfile::TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    std::fs::write(&path, document.to_json().unwrap()).unwrap();
    let record = read::record(&path).unwrap();
    (dir, record)
}
