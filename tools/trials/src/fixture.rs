//! Documents for tests, as a run of the tool leaves them: each arm's rounds of 40 samples, nothing lost.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use results::document::{Document, Record, SCHEMA, Summary, latency_histogram, warnings};
use results::host::HostFacts;
use results::metric::{EXIT_PATH, Metric, NMI_HANDLER, PMI_DELIVERY};
use results::paired::Pair;
use results::read;

use super::hosts;

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
    let ns = |metric: &Metric, arm: &str, _| match metric.key {
        "pmi_delivery_ns" => 500,
        "exit_path_ns" => 250,
        _ if arm == "recreate" => 2000,
        _ => 1000,
    };
    let mut document: Document = serde_json::from_value(built(rounds, strategies, ns)).unwrap();
    document.warnings = warnings::collect(&document);
    document
}

/// Builds a document as JSON whose rounds take these times, by metric, arm and round. Every column has a value a round, so that a test
/// can change one.
fn built(rounds: u64, strategies: &[&str], ns: impl Fn(&Metric, &str, u64) -> u64) -> Value {
    // A document without host, rounds and arms, what an arm has measured in one round, and an arm that measures nothing.
    let template: Value = serde_json::from_str(include_str!("fixture.json")).unwrap();
    let mut value = template["document"].clone();
    let (_dir, fs) = hosts::tree(&hosts::PVM);
    let mut host = HostFacts::read(&fs);
    host.finish(&fs);
    value["host"] = json!(host);
    let count = strategies.len() as u64 + 1;
    value["wall_ns"] = (rounds * count * 5_000_000).into();
    value["schema"] = SCHEMA.into();
    value["parameters"]["rounds"] = rounds.into();
    let definition = |name: &&str| format!("gate = {}\noverflow = \"keep\"\n", *name == "gate");
    value["parameters"]["strategies"] =
        strategies.iter().map(|name| json!({"name": name, "definition": definition(name)})).collect();
    let arms = (0..).zip(strategies.iter().chain([&"floor"])).map(|(place, &name)| {
        let kind = if name == "floor" { "floor" } else { "strategy" };
        let mut arm = measured(&template["measured"], rounds, (place, count), |metric, round| ns(metric, name, round));
        arm.as_object_mut().unwrap().extend(template[kind].as_object().unwrap().clone());
        arm["arm"] = name.into();
        arm
    });
    value["arms"] = arms.chain([template["kvm"].clone()]).collect();
    value
}

/// Makes so many rounds of an arm's one, whose place is the first of so many that take turns.
fn measured(one: &Value, rounds: u64, (place, count): (u64, u64), ns: impl Fn(&Metric, u64) -> u64) -> Value {
    const EACH_ROUND: &str = "/overflows /pmi_requests /pmis /entries /signals /nmis /guest_overflows /nmis_delivered /workload_ns \
         /host_ops/open/count /host_ops/open/total_ns /msr_exits/0x38f/writes";
    let mut arm = one.clone();
    for pointer in EACH_ROUND.split_whitespace() {
        let each = arm.pointer_mut(pointer).unwrap();
        *each = (each.as_u64().unwrap() * rounds).into();
    }
    let columns = &mut arm["rounds"];
    for column in columns.as_object_mut().unwrap().values_mut() {
        *column = (0..rounds).map(|_| column[0].clone()).collect();
    }
    let places = (0..rounds).map(|round| (place + round) % count);
    columns["started_us"] = (0..rounds).zip(places.clone()).map(|(round, at)| (round * count + at) * 5_000).collect();
    columns["position"] = places.collect();
    columns["round"] = (0..rounds).collect();
    for (metric, samples) in [(&NMI_HANDLER, SAMPLES), (&PMI_DELIVERY, SAMPLES), (&EXIT_PATH, 1)] {
        let times: Vec<u64> = (0..rounds).map(|round| ns(metric, round)).collect();
        let mut histogram = latency_histogram();
        for ns in &times {
            histogram.saturating_record_n(*ns, samples);
        }
        arm["metrics"][metric.key] = json!(Summary::of(&histogram));
        let count = vec![samples; times.len()];
        arm["rounds"]["metrics"][metric.key] = json!({"count": count, "p50": times, "mean": times});
    }
    arm
}

/// Builds a document as JSON: the rounds of each arm have the time that `ns` gives, in all metrics.
pub fn value(rounds: u64, started_unix: u64, ns: impl Fn(&str, u64) -> u64) -> Value {
    let mut value = built(rounds, &STRATEGIES, |_, arm, round| ns(arm, round));
    value["started_unix"] = started_unix.into();
    value["wall_ns"] = (1_000_000_000 + started_unix).into();
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

/// Builds a record.
pub fn record(rounds: u64, started_unix: u64, ns: impl Fn(&str, u64) -> u64) -> Record {
    changed(value(rounds, started_unix, ns))
}

/// Gives `template`, a [`record`] of as many rounds, the synthetic turns of each of its arms: 100 µs times e to their `log`. It has one
/// metric, `nmi_handler_ns`.
///
/// # Panics
/// If it has no such metric.
#[expect(clippy::cast_sign_loss, reason = "an exponential is positive")]
pub fn of_turns(template: &Record, started_unix: u64, arms: &[Vec<Pair>]) -> Record {
    let mut record = Record { started_unix, ..template.clone() };
    for (arm, turns) in record.arms.iter_mut().zip(arms) {
        arm.metrics.retain(|key, _| key == NMI_HANDLER.key);
        arm.rounds.metrics.retain(|key, _| key == NMI_HANDLER.key);
        let column = arm.rounds.metrics.get_mut(NMI_HANDLER.key).unwrap();
        column.p50 = turns.iter().map(|turn| (turn.log.exp() * 100_000.0) as u64).collect();
        arm.rounds.guest = turns.iter().map(|turn| Some(turn.guest)).collect();
    }
    record
}

/// Builds a result of so many rounds of strategies at these times in ns, with a spread, and the floor at 1000 ns.
pub fn timed(rounds: u64, times: &[(&str, u64)]) -> Record {
    let names: Vec<&str> = times.iter().map(|(name, _)| *name).collect();
    let ns = |_: &Metric, arm: &str, round: u64| {
        let found = (0..).zip(times).find(|(_, (name, _))| *name == arm);
        let (place, ns) = found.map_or((names.len() as u64, 1000), |(place, (_, ns))| (place, *ns));
        ns + (round * (7 + place)) % 5
    };
    changed(built(rounds, &names, ns))
}

/// Reads a document of a test, or a changed [`value`].
///
/// # Panics
/// If it is refused.
pub fn changed(value: impl Serialize) -> Record {
    read::of_text(Path::new("x.json"), &serde_json::to_string(&value).unwrap()).unwrap()
}
