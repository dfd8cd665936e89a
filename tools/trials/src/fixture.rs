//! Documents for tests, as a run of the tool leaves them: each arm's rounds of 40 samples, nothing lost.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use results::document::{
    Arm, ArmKind, Column, Counts, Document, EventParameter, EventsHeld, GuestArm, HostOp, Metrics, MsrCount,
    Parameters, Record, Rounds, SCHEMA, Status, StrategyParameter, Summary, Tool, WorkloadCost, latency_histogram,
    warnings,
};
use results::host::HostFacts;
use results::metric::{EXIT_PATH, Metric, NMI_HANDLER, PMI_DELIVERY};
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
    let kinds = strategies.iter().map(|name| (*name, ArmKind::Strategy));
    let kinds = kinds.chain([("floor", ArmKind::Floor), ("kvm", ArmKind::Kvm)]);
    let count = strategies.len() as u64 + 1;
    let arms = (0..).zip(kinds).map(|(place, (name, kind))| {
        let rounds = if kind == ArmKind::Kvm { 0 } else { rounds };
        arm(name, kind, (0..rounds).map(|round| (round, (place + round) % count)), count)
    });
    let mut document = Document {
        path: PathBuf::new(),
        schema: SCHEMA.to_owned(),
        experiment: "nmi-latency".to_owned(),
        place: None,
        tool: tool(),
        command_line: vec!["vpmu".to_owned()],
        started_unix: 1_700_000_000,
        wall_ns: rounds * count * 5_000_000,
        status: Status::Complete,
        seed: 1,
        parameters: parameters(rounds, strategies),
        host,
        arms: arms.collect(),
        warnings: Vec::new(),
        first_guest_instruction_ns: Some(2_000_000),
        answer: Vec::new(),
        exit: None,
    };
    document.warnings = warnings::collect(&document);
    document
}

/// Describes a tool built without optimization.
pub fn tool() -> Tool {
    Tool {
        name: "vpmu".to_owned(),
        version: "0.1.0".to_owned(),
        git_revision: "unknown".to_owned(),
        profile: "debug".to_owned(),
    }
}

fn parameters(rounds: u64, strategies: &[&str]) -> Parameters {
    let strategy = |name: &&str| StrategyParameter { name: (*name).to_owned(), definition: None };
    Parameters {
        strategies: strategies.iter().map(strategy).collect(),
        backend_requested: "auto".to_owned(),
        backend: "cpu-clock".to_owned(),
        backend_why: "a stand-in, since hardware events do not open".to_owned(),
        workload: "single/ftest".to_owned(),
        events: vec![EventParameter {
            name: "cpu-cycles".to_owned(),
            selector: "0x13003c".to_owned(),
            fixed_counter: None,
            period: 2_000_000,
        }],
        period: 2_000_000,
        freq_hz: None,
        mux_interval_ns: 4_000_000,
        vcpus: 1,
        cpus: None,
        altered: BTreeMap::default(),
        pin: None,
        rounds_per_guest: None,
        until_ci: None,
        quick: false,
        rounds,
        samples: SAMPLES,
        warmup_samples: 10,
        warmup_rounds: 1,
        duration_ns: None,
        time_limit_ns: 1_100_000_000,
        cpu: "clx".to_owned(),
        pmu_version: 2,
        gp_counters: 4,
        fixed_counters: 3,
        baseline_ticks: 10,
        tail_ticks: 4,
        set_up: None,
        linux: None,
    }
}

fn of_value(ns: u64, count: u64) -> Histogram<u64> {
    let mut histogram = latency_histogram();
    histogram.saturating_record_n(ns, count);
    histogram
}

/// Metrics that are there.
fn metrics(all: [(&Metric, Option<Summary>); 3]) -> Metrics {
    all.into_iter().filter_map(|(metric, summary)| Some((metric.key.to_owned(), summary?))).collect()
}

/// Adds a round; `of` arms share one.
fn add_round(rounds: &mut Rounds, index: u64, position: u64, of: u64, handler_ns: u64) {
    let brief = |ns, count| Summary::brief(&of_value(ns, count));
    rounds.index.push(index);
    rounds.position.push(position);
    rounds.complete.push(true);
    rounds.started_us.push((index * of + position) * 5_000);
    rounds.end.push("done".to_owned());
    rounds.wall_us.push(5_000);
    rounds.guest_start_us.push(2_000);
    rounds.counts.overflows.push(SAMPLES);
    rounds.counts.nmis.push(SAMPLES);
    rounds.lost.push(Some(0));
    rounds.counts.opens.push(1);
    rounds.counts.held_at_end.push(1);
    rounds.push_metrics(&metrics([
        (&NMI_HANDLER, brief(handler_ns, SAMPLES)),
        (&PMI_DELIVERY, brief(500, SAMPLES)),
        (&EXIT_PATH, brief(250, 1)),
    ]));
}

/// Builds an arm with a round for each (number, position); `of` arms share a round.
fn arm(name: &str, kind: ArmKind, places: impl Iterator<Item = (u64, u64)>, of: u64) -> Arm {
    let handler_ns = if name == "recreate" { 2000 } else { 1000 };
    let mut rounds = Rounds::default();
    places.for_each(|(number, position)| add_round(&mut rounds, number, position, of, handler_ns));
    let n = rounds.len() as u64;
    let nmis = n * SAMPLES;
    let kvm = kind == ArmKind::Kvm;
    let backend = match kind {
        ArmKind::Strategy => "cpu-clock",
        ArmKind::Floor => "none",
        ArmKind::Kvm => "kvm",
    };
    let summary = |ns, count| Summary::of(&of_value(ns, count));
    Arm {
        name: name.to_owned(),
        kind,
        backend: backend.to_owned(),
        stand_in: kind == ArmKind::Strategy,
        not_available: kvm.then(|| "the mock has no vPMU of its own".to_owned()),
        incomplete: Vec::new(),
        left_out: Vec::new(),
        notes: Vec::new(),
        metrics: metrics([
            (&NMI_HANDLER, summary(handler_ns, nmis)),
            (&PMI_DELIVERY, summary(500, nmis)),
            (&EXIT_PATH, summary(250, n)),
        ]),
        own: if n > 0 { measured(n) } else { GuestArm::default() },
        rounds,
    }
}

/// Builds everything else about an arm of so many rounds.
fn measured(rounds: u64) -> GuestArm {
    let nmis = rounds * SAMPLES;
    let op = |key: &str, count: u64| {
        (key.to_owned(), HostOp { count, p50_ns: if count > 0 { 30_000 } else { 0 }, total_ns: count * 30_000 })
    };
    GuestArm {
        counts: Counts {
            overflows: nmis,
            guest_overflows: nmis,
            pmi_requests: nmis,
            pmis: nmis,
            nmis,
            tsc_uncertainty_ns: 50,
            entries: 10 * rounds,
            signals: nmis,
            ..Counts::default()
        },
        nmis_delivered: Some(nmis),
        lost: Some(0),
        overflows_lost: Some(0),
        host_ops: ["open", "pause", "period", "read", "release", "resume"]
            .map(|key| op(key, if key == "open" { rounds } else { 0 }))
            .into(),
        msr_exits: [("0x38f".to_owned(), MsrCount { reads: 0, writes: 2 * nmis, faults: 0 })].into(),
        events_held: EventsHeld { time_mean: Some(3.0), max: 7, at_end: 1, tail: vec![3, 0] },
        workload_ns: 100_000_000 * rounds,
        workload: Some(WorkloadCost { unit_ns_without: 1000.0, unit_ns_with: 2000.0, slowdown: 2.0 }),
        ..GuestArm::default()
    }
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
