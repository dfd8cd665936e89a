//! Comparison of strategies by scenario, and how it is shown: Pareto fronts of latency and events held.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use results::choice::{Work, means};
use results::document::Arm;
use results::sweep::Line;
use results::table::column::{Place, columns, legend, work};
use results::table::layout::{dash, ratio, time};
use results::table::{Report, Table};

/// A strategy in a scenario: means over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StrategySummary {
    /// Name of the strategy.
    pub arm: String,
    /// Number of seeds with a result.
    pub seeds: usize,
    /// Median latency, ns; `None` where it has none with some seed: the others' mean is no mean of all.
    pub latency_ns: Option<f64>,
    /// Median divided by the floor's median.
    pub x_floor: Option<f64>,
    /// Figures by column, `held_mean` among them.
    #[serde(flatten)]
    pub work: Work,
    /// Lost NMIs and overflows, failed opens, pinned events without a counter, guests ended by the hard limit.
    pub doubtful: u64,
    /// It is on the front of latency and events held; `None` if it has no latency.
    pub on_front: Option<bool>,
}

/// Points that differ in strategy and seed only.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Scenario {
    /// Model, workload, and the parameters that vary in the grid.
    pub name: String,
    /// Strategies in the order of the grid.
    pub rows: Vec<StrategySummary>,
}

/// The answer of `vpmu sweep`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Swept {
    /// The scenarios.
    pub answer: Vec<Scenario>,
}

/// Compares the strategies of each scenario, in the order of the grid.
pub fn compare(lines: &[Line]) -> Vec<Scenario> {
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
    of_one.map(|lines| Scenario { name: name(&lines[0]), rows: rows(lines) }).collect()
}

/// Returns the strategies of points that differ in their seeds, which all have the same.
fn rows(lines: &[Line]) -> Vec<StrategySummary> {
    let own = lines.iter().take(1).flat_map(Line::strategies).filter(|arm| arm.not_available.is_none());
    let names = own.map(|arm| arm.name.as_str());
    let mut rows: Vec<StrategySummary> = names.map(|name| row(name, lines)).collect();
    let known = rows.iter().filter_map(|row| Some([row.latency_ns?, held(row)]));
    let on = front(&known.collect::<Vec<_>>());
    for (row, on) in rows.iter_mut().filter(|row| row.latency_ns.is_some()).zip(on) {
        row.on_front = Some(on);
    }
    rows
}

fn held(row: &StrategySummary) -> f64 {
    row.work.get("held_mean").copied().unwrap_or(0.0)
}

/// Returns the figures of a strategy over all seeds.
fn row(name: &str, lines: &[Line]) -> StrategySummary {
    let is_own = |arm: &&Arm| arm.name == name && arm.not_available.is_none();
    let own: Vec<(&Line, &Arm)> =
        lines.iter().filter_map(|line| Some((line, line.strategies().find(is_own)?))).collect();
    let p50 = |line: &Line, arm: &Arm| Some(arm.metric(line.latency()?)?.p50 as f64);
    let mean = |of: &dyn Fn(&Line, &Arm) -> Option<f64>| {
        let all: Vec<f64> = own.iter().map(|(line, arm)| of(line, arm)).collect::<Option<_>>()?;
        Some(all.iter().sum::<f64>() / all.len() as f64)
    };
    let works: Vec<Work> = own.iter().filter_map(|(line, arm)| Some(work(arm, line.latency()?))).collect();
    let doubts = |arm: &Arm| arm.own.doubtful().map(|(count, _)| count).sum::<u64>() + arm.incomplete.len() as u64;
    StrategySummary {
        arm: name.to_owned(),
        seeds: own.len(),
        latency_ns: mean(&p50),
        x_floor: mean(&|line, arm| Some(p50(line, arm)? / p50(line, line.floor()?)?)),
        work: means(&works.iter()),
        doubtful: own.iter().map(|(_, arm)| doubts(arm)).sum(),
        on_front: None,
    }
}

const NO_LATENCY: &str =
    "latency –: with some seed no handler was timed: no period passed, or the guest livelocks; on no front";
const DOUBTFUL: &str =
    "*: lost NMIs or overflows, failed opens, or a guest ended by the hard limit; sweep.jsonl has the counts";

/// Returns the comparison as it is shown.
pub fn report(scenarios: &[Scenario]) -> Report {
    let mut report = Report::new("vpmu sweep");
    let columns = columns(Place::Advice);
    let head = ["strategy", "latency p50", "× floor"].into_iter().chain(columns.clone().map(|column| column.heading));
    for scenario in scenarios {
        let mut table = Table::new(head.clone().chain(["front"]));
        for row in &scenario.rows {
            let name = format!("{}{}", row.arm, if row.doubtful > 0 { "*" } else { "" });
            let cells = [name, row.latency_ns.map_or_else(dash, time), row.x_floor.map_or_else(dash, ratio)];
            let work =
                columns.clone().map(|column| row.work.get(column.key).map_or_else(dash, |&one| (column.text)(one)));
            let front = row.on_front.map_or_else(dash, |on| if on { "●" } else { "" }.to_owned());
            table.add_row(cells.into_iter().chain(work).chain([front]));
        }
        report.heading(scenario.name.clone());
        report.table(table);
    }
    report.note("latency: NMI handler (rotation, where the guest only counts)");
    report.note(legend(Place::Advice));
    report.note("front: ● on the Pareto front of latency and events held");
    let rows = || scenarios.iter().flat_map(|scenario| &scenario.rows);
    if rows().any(|row| row.latency_ns.is_none()) {
        report.note(NO_LATENCY);
    }
    if rows().any(|row| row.doubtful > 0) {
        report.note(DOUBTFUL);
    }
    report
}

/// Returns whether `one` is as good as `other` in each objective and better in one. Smaller is better.
fn dominates(one: &[f64], other: &[f64]) -> bool {
    let mut pairs = one.iter().zip(other);
    pairs.clone().all(|(a, b)| a <= b) && pairs.any(|(a, b)| a < b)
}

/// Returns for each candidate whether no other one dominates it.
fn front<P: AsRef<[f64]>>(candidates: &[P]) -> Vec<bool> {
    candidates.iter().map(|own| !candidates.iter().any(|other| dominates(other.as_ref(), own.as_ref()))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use results::document::{ArmKind, GuestArm, HostOp, Summary};
    use results::metric::NMI_HANDLER;

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
            let rows = &compare(&[Line { arms, ..Line::default() }])[0].rows;
            let objectives = |row: &StrategySummary| [row.latency_ns.unwrap(), held(row)];
            for row in rows {
                let by = |other: &StrategySummary| {
                    other.on_front == Some(true) && dominates(&objectives(other), &objectives(row))
                };
                prop_assert_eq!(Some(!rows.iter().any(by)), row.on_front);
            }
        }
    }
}
