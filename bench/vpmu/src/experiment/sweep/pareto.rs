//! Comparison of strategies by scenario, and how it is shown: Pareto fronts of latency and events held.

use std::collections::BTreeSet;

use results::stats::pareto::front;
use serde::Serialize;

use results::document::Arm;
use results::paired::Ratio;
use results::sweep::Line;
use results::table::layout::{dash, ratio, time};
use results::table::ranking::{self, Contender};
use results::table::{Report, Table};

/// A strategy in a scenario: means over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StrategySummary {
    /// Name of the strategy.
    pub strategy: String,
    /// Number of seeds with a result.
    pub seeds: usize,
    /// Median latency, ns; `None` without samples.
    pub latency_ns: Option<f64>,
    /// Its minimum and maximum over seeds.
    pub latency_range_ns: Option<[f64; 2]>,
    /// Median divided by the floor's median.
    pub x_floor: Option<f64>,
    /// Events held by a vCPU, mean over time.
    pub held_mean: f64,
    /// Maximum of events held by a vCPU.
    pub held_max: u64,
    /// Events created per sample.
    pub opens: f64,
    /// Lost NMIs and overflows, failed opens, pinned events without a counter, guests ended by the hard limit.
    pub doubtful: u64,
    /// It is on the front of latency and events held; `None` if it has no latency.
    pub on_front: Option<bool>,
}

/// Points that differ in strategy and seed only.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Model, workload, and the parameters that vary in the grid.
    pub name: String,
    /// Strategies in the order of the grid.
    pub rows: Vec<StrategySummary>,
}

/// Comparison of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pareto {
    /// Always "vpmu-pareto/3".
    pub schema: &'static str,
    /// Scenarios in the order of the grid.
    #[serde(rename = "answer")]
    pub scenarios: Vec<Scenario>,
}

/// Compares the strategies of each scenario.
pub fn compare(lines: &[Line]) -> Pareto {
    let differs = |key: &str| lines.iter().any(|line| line.point.get(key) != lines[0].point.get(key));
    let keys: BTreeSet<&String> = lines.iter().flat_map(|line| line.point.keys()).collect();
    let always = ["model", "workload"];
    let others = keys.into_iter().map(String::as_str).filter(|key| *key != "seed" && !always.contains(key));
    let named: Vec<&str> = always.into_iter().chain(others.filter(|key| differs(key))).collect();
    let name = |line: &Line| {
        let part = |key: &&str| line.point.get(*key).map(|value| format!("{key} {value}"));
        named.iter().filter_map(part).collect::<Vec<_>>().join(", ")
    };
    // Seeds are next to one another.
    let of_one = lines.chunk_by(|one, next| name(one) == name(next));
    let scenarios = of_one.map(|lines| Scenario { name: name(&lines[0]), rows: rows(lines) }).collect();
    Pareto { schema: "vpmu-pareto/3", scenarios }
}

/// Returns the strategies of points that differ in their seeds, which all have the same.
fn rows(lines: &[Line]) -> Vec<StrategySummary> {
    let own = lines.iter().take(1).flat_map(Line::strategies).filter(|arm| arm.not_available.is_none());
    let names = own.map(|arm| arm.name.as_str());
    let mut rows: Vec<StrategySummary> = names.map(|name| row(name, lines)).collect();
    let known = rows.iter().filter_map(|row| Some([row.latency_ns?, row.held_mean]));
    let on = front(&known.collect::<Vec<_>>());
    for (row, on) in rows.iter_mut().filter(|row| row.latency_ns.is_some()).zip(on) {
        row.on_front = Some(on);
    }
    rows
}

/// Returns the figures of a strategy over all seeds.
fn row(name: &str, lines: &[Line]) -> StrategySummary {
    let is_own = |arm: &&Arm| arm.name == name && arm.not_available.is_none();
    let own: Vec<(&Line, &Arm)> =
        lines.iter().filter_map(|line| Some((line, line.strategies().find(is_own)?))).collect();
    let summary = |line: &Line, arm: &Arm| line.latency().and_then(|metric| arm.metrics.get(metric.key)).cloned();
    let latency = |(line, arm): &(&Line, &Arm)| summary(line, arm).map(|found| found.p50 as f64);
    let x_floor = |one: &(&Line, &Arm)| Some(latency(one)? / latency(&(one.0, one.0.floor()?)).filter(|ns| *ns > 0.0)?);
    let opens = |(line, arm): &(&Line, &Arm)| {
        let samples = arm.own.counts.nmis.max(summary(line, arm).map_or(0, |own| own.count));
        if samples == 0 { 0.0 } else { arm.own.op_count("open") as f64 / samples as f64 }
    };
    let doubts = |arm: &Arm| arm.own.doubtful().map(|(count, _)| count).sum::<u64>() + arm.incomplete.len() as u64;
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let of = |get: &dyn Fn(&(&Line, &Arm)) -> Option<f64>| -> Vec<f64> { own.iter().filter_map(get).collect() };
    // A guest that livelocked with one seed has no figure there, and the others are no mean of all.
    let latencies = Some(of(&latency)).filter(|all| all.len() == own.len()).unwrap_or_default();
    let range = latencies.iter().fold([f64::INFINITY, 0.0], |[low, high], &n| [n.min(low), n.max(high)]);
    StrategySummary {
        strategy: name.to_owned(),
        seeds: own.len(),
        latency_ns: mean(&latencies),
        latency_range_ns: (!latencies.is_empty()).then_some(range),
        x_floor: mean(&of(&x_floor)).filter(|_| !latencies.is_empty()),
        held_mean: mean(&of(&|(_, arm)| Some(arm.own.events_held.time_mean.unwrap_or(0.0)))).unwrap_or(0.0),
        held_max: own.iter().map(|(_, arm)| arm.own.events_held.max).max().unwrap_or(0),
        opens: mean(&of(&|one| Some(opens(one)))).unwrap_or(0.0),
        doubtful: own.iter().map(|(_, arm)| doubts(arm)).sum(),
        on_front: None,
    }
}

const LEGEND: [&str; 2] = [
    "latency: NMI handler (rotation, where the guest only counts); held: host events of a vCPU, over time; opens: per NMI (rotation)",
    "front: ● on the Pareto front of latency and events held",
];
const NO_LATENCY: &str =
    "latency –: with some seed no handler was timed: no period passed, or the guest livelocks; on no front";
const DOUBTFUL: &str =
    "*: lost NMIs or overflows, failed opens, or a guest ended by the hard limit; sweep.jsonl has the counts";

const COLUMNS: [&str; 8] = ["strategy", "latency p50", "range", "× floor", "held mean", "held max", "opens", "front"];

fn cells(row: &StrategySummary) -> [String; 8] {
    let star = if row.doubtful > 0 { "*" } else { "" };
    [
        format!("{}{star}", row.strategy),
        row.latency_ns.map_or_else(dash, time),
        match row.latency_range_ns {
            Some([low, high]) if low < high => format!("{} … {}", time(low), time(high)),
            _ => dash(),
        },
        row.x_floor.map_or_else(dash, ratio),
        ratio(row.held_mean),
        row.held_max.to_string(),
        ratio(row.opens),
        row.on_front.map_or_else(dash, |on| if on { "●" } else { "" }.to_owned()),
    ]
}

/// Describes the order of a scenario's strategies that have a latency and no doubt.
fn fastest(rows: &[StrategySummary]) -> Option<String> {
    let contender = |row: &StrategySummary| {
        let over_floor = row.x_floor.map(|over| Ratio::of_means(over, row.seeds));
        Some(Contender { name: row.strategy.clone(), cost: row.latency_ns.filter(|_| row.doubtful == 0)?, over_floor })
    };
    let found: Vec<Contender> = rows.iter().filter_map(contender).collect();
    let seeds = rows.iter().map(|row| row.seeds).min().unwrap_or(0);
    let against = |one: &Contender, other: &Contender| Some(Ratio::of_means(one.cost / other.cost, seeds));
    ranking::sentence(&found, &against, (" (simulated)", "seed"))
}

/// Returns the comparison as it is shown.
pub fn report(pareto: &Pareto) -> Report {
    let mut report = Report::new("vpmu sweep");
    for scenario in &pareto.scenarios {
        let mut table = Table::new(COLUMNS);
        scenario.rows.iter().for_each(|row| table.add_row(cells(row)));
        report.heading(scenario.name.clone());
        report.table(table);
        report.notes(fastest(&scenario.rows));
        report.gap();
    }
    report.notes(LEGEND);
    let rows = || pareto.scenarios.iter().flat_map(|scenario| &scenario.rows);
    if rows().any(|row| row.latency_ns.is_none()) {
        report.note(NO_LATENCY);
    }
    if rows().any(|row| row.doubtful > 0) {
        report.note(DOUBTFUL);
    }
    report
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use results::document::{ArmKind, GuestArm, HostOp, Summary};
    use results::metric::NMI_HANDLER;
    use results::stats::pareto::dominates;

    use super::*;

    static USUAL: LazyLock<Arm> = LazyLock::new(|| trials::fixture::document(1).arms.remove(0));

    fn arm(name: &str, kind: ArmKind, (p50, held, opens): (u64, u64, u64)) -> Arm {
        let mut own = GuestArm::default();
        own.counts.nmis = 10;
        (own.events_held.time_mean, own.events_held.max) = (Some(held as f64), held);
        own.host_ops.insert("open".to_owned(), HostOp { count: 10 * opens, ..HostOp::default() });
        let latency = Summary { count: 10, p50, ..Summary::default() };
        let metrics = [(NMI_HANDLER.key.to_owned(), latency)].into();
        Arm { name: name.to_owned(), kind, metrics, own, ..USUAL.clone() }
    }

    proptest! {
        /// Nothing on a front is dominated, and everything off it is dominated by something on it.
        #[test]
        fn a_front_is_a_front(values in proptest::collection::vec((1..9_u64, 0..5_u64, 0..4_u64), 1..12)) {
            let strategies = values.iter().enumerate().map(|(i, &value)| arm(&i.to_string(), ArmKind::Strategy, value));
            let arms = strategies.chain([arm("floor", ArmKind::Floor, (1, 0, 0))]).collect();
            let rows = &compare(&[Line { arms, ..Line::default() }]).scenarios[0].rows;
            let objectives = |row: &StrategySummary| [row.latency_ns.unwrap(), row.held_mean];
            for row in rows {
                let by = |other: &StrategySummary| {
                    other.on_front == Some(true) && dominates(&objectives(other), &objectives(row))
                };
                prop_assert_eq!(Some(!rows.iter().any(by)), row.on_front);
            }
        }
    }
}
