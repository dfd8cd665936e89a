//! Comparison of strategies by scenario: Pareto fronts of latency, events held and creates.

use std::collections::BTreeMap;

use results::stats::pareto::front;
use serde::Serialize;

use super::point::{Entry, GridPoint, Latency, PointResult};

/// Statistic of the latency used for the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The median.
    #[default]
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The arithmetic mean.
    Mean,
}

impl By {
    /// Returns the name on the command line.
    pub const fn key(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::Mean => "mean",
        }
    }

    fn of(self, latency: &Latency) -> f64 {
        match self {
            Self::P50 => latency.p50 as f64,
            Self::P90 => latency.p90 as f64,
            Self::P99 => latency.p99 as f64,
            Self::Mean => latency.mean,
        }
    }
}

/// Position of a strategy relative to the Pareto fronts of its scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// On the front of latency and events held.
    LatencyAndHeld,
    /// Dominated there, but on the front of latency, events held and creates.
    WithCreates,
    /// Dominated in all three.
    Beaten,
    /// It has no latency.
    Unknown,
}

/// A strategy in a scenario: means over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StrategySummary {
    /// Name of the strategy, with the grid's `release_slices`.
    pub strategy: String,
    /// Number of seeds with a result.
    pub seeds: usize,
    /// Latency by [`Pareto::by`], ns; `None` without samples.
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
    pub creates: f64,
    /// Lost NMIs and overflows, failed opens, pinned events without a counter, guests ended by the hard limit.
    pub doubtful: u64,
    /// Position relative to the fronts.
    pub front: Front,
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
    /// Statistic behind `latency_ns`.
    pub by: By,
    /// Scenarios in the order of the grid.
    pub scenarios: Vec<Scenario>,
}

/// Compares the strategies of each scenario.
pub fn compare(points: &[Entry], by: By) -> Pareto {
    let vary = Varying::of(points);
    let mut places = BTreeMap::new();
    let mut scenarios: Vec<(String, Vec<&Entry>)> = Vec::new();
    for entry in points {
        let name = vary.scenario(&entry.0);
        let place = *places.entry(name.clone()).or_insert(scenarios.len());
        if place == scenarios.len() {
            scenarios.push((name, Vec::new()));
        }
        scenarios[place].1.push(entry);
    }
    let scenarios = scenarios.into_iter().map(|(name, entries)| Scenario { name, rows: rows(&entries, by) }).collect();
    Pareto { by, scenarios }
}

fn rows(entries: &[&Entry], by: By) -> Vec<StrategySummary> {
    let mut arms: Vec<String> = Vec::new();
    for (point, _) in entries {
        if !arms.contains(&point.arm()) {
            arms.push(point.arm());
        }
    }
    let mut rows: Vec<StrategySummary> = arms
        .into_iter()
        .filter_map(|arm| {
            let of_arm = entries.iter().filter(|(point, _)| point.arm() == arm);
            let results: Vec<&PointResult> = of_arm.filter_map(|(_, result)| result.as_ref()).collect();
            (!results.is_empty()).then(|| row(arm, &results, by))
        })
        .collect();
    let known = || rows.iter().filter_map(|row| Some((row.latency_ns?, row.held_mean, row.creates)));
    let of_two = front(&known().map(|(latency, held, _)| [latency, held]).collect::<Vec<_>>());
    let of_three = front(&known().map(|(latency, held, creates)| [latency, held, creates]).collect::<Vec<_>>());
    let ranked = rows.iter_mut().filter(|row| row.latency_ns.is_some());
    for (row, on) in ranked.zip(of_two.into_iter().zip(of_three)) {
        row.front = match on {
            (true, _) => Front::LatencyAndHeld,
            (false, true) => Front::WithCreates,
            (false, false) => Front::Beaten,
        };
    }
    rows
}

fn row(strategy: String, results: &[&PointResult], by: By) -> StrategySummary {
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let of =
        |get: &dyn Fn(&PointResult) -> Option<f64>| -> Vec<f64> { results.iter().filter_map(|r| get(r)).collect() };
    let latencies = of(&|result| result.latency().map(|latency| by.of(latency)));
    // A guest that livelocked with one seed has no figure there, and the others are no mean of all.
    let latencies = if latencies.len() < results.len() { Vec::new() } else { latencies };
    let range = latencies.iter().fold([f64::INFINITY, 0.0], |[low, high], &n| [n.min(low), n.max(high)]);
    let doubtful = |r: &&PointResult| r.lost + r.overflows_lost + r.failed_opens + r.pinned_errors + r.timed_out;
    StrategySummary {
        strategy,
        seeds: results.len(),
        latency_ns: mean(&latencies),
        latency_range_ns: (!latencies.is_empty()).then_some(range),
        x_floor: mean(&of(&|result| result.x_floor)).filter(|_| !latencies.is_empty()),
        held_mean: mean(&of(&|result| Some(result.held_mean))).unwrap_or(0.0),
        held_max: results.iter().map(|result| result.held_max).max().unwrap_or(0),
        creates: mean(&of(&|result| Some(result.per_sample.open))).unwrap_or(0.0),
        doubtful: results.iter().map(doubtful).sum(),
        front: Front::Unknown,
    }
}

/// Parameters other than strategy and seed that differ between points.
struct Varying {
    costs: Vec<String>,
    vcpus: bool,
    cpus: bool,
    slice: bool,
}

impl Varying {
    fn of(points: &[Entry]) -> Self {
        let Some((first, _)) = points.first() else {
            return Self { costs: Vec::new(), vcpus: false, cpus: false, slice: false };
        };
        let differ = |get: &dyn Fn(&GridPoint) -> u64| points.iter().any(|(point, _)| get(point) != get(first));
        let same_model = |point: &GridPoint| point.model_hash == first.model_hash;
        Self {
            costs: first.costs.keys().cloned().collect(),
            vcpus: differ(&|point| point.vcpus),
            cpus: differ(&|point| point.vcpus - point.cpus) || first.cpus != first.vcpus,
            slice: points.iter().any(|(point, _)| same_model(point) && point.slice_ns != first.slice_ns),
        }
    }

    fn scenario(&self, point: &GridPoint) -> String {
        let mut parts = vec![format!("model {}", point.model), format!("workload {}", point.workload)];
        parts.extend(self.costs.iter().map(|cost| format!("{cost} × {}", point.costs.get(cost).unwrap_or(&1.0))));
        if self.vcpus || self.cpus {
            parts.push(format!("{} vCPU{}", point.vcpus, if point.vcpus == 1 { "" } else { "s" }));
        }
        if self.cpus {
            parts.push(format!("on {} CPU{}", point.cpus, if point.cpus == 1 { "" } else { "s" }));
        }
        if self.slice && point.cpus < point.vcpus {
            parts.push(format!("slice {}", results::table::layout::time(point.slice_ns as f64)));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::point::PerSample;
    use super::super::point::tests::point;
    use results::stats::pareto::dominates;

    use super::*;

    fn result(p50: u64, held: u64, creates: f64) -> PointResult {
        let latency = Latency { count: 10, min: p50, p50, p90: p50, p99: p50, max: p50, mean: p50 as f64 };
        PointResult {
            host_work_ns: None,
            guests: 1,
            timed_out: 0,
            nmis: 10,
            nmis_driver_off: 0,
            lost: 0,
            overflows_lost: 0,
            nmi_handler_ns: (p50 > 0).then_some(latency),
            pmi_delivery_ns: None,
            rotation_ns: None,
            floor_p50_ns: None,
            x_floor: None,
            per_sample: PerSample { open: creates, ..PerSample::default() },
            creates_gp: 0,
            creates_fixed: 0,
            held_mean: held as f64,
            held_max: held,
            sched_ins: 0,
            pinned_errors: 0,
            failed_opens: 0,
            virtual_ns: 1,
        }
    }

    fn arm(strategy: &str, seed: u64, result: PointResult) -> Entry {
        (GridPoint { strategy: strategy.to_owned(), seed, ..point() }, Some(result))
    }

    proptest! {
        /// Nothing on a front is dominated, and everything off it is dominated by something on it.
        #[test]
        fn a_front_is_a_front(values in proptest::collection::vec((1..9_u64, 0..5_u64, 0..4_u8), 1..12)) {
            let points: Vec<_> = values
                .iter()
                .enumerate()
                .map(|(i, &(p50, held, creates))| arm(&i.to_string(), 1, result(p50, held, creates.into())))
                .collect();
            let rows = &compare(&points, By::P50).scenarios[0].rows;
            let objectives = |row: &StrategySummary| [row.latency_ns.unwrap(), row.held_mean, row.creates];
            for row in rows {
                let by = |count: usize, on: &dyn Fn(&StrategySummary) -> bool| {
                    rows.iter().any(|other| on(other) && dominates(&objectives(other)[..count], &objectives(row)[..count]))
                };
                match row.front {
                    Front::LatencyAndHeld => prop_assert!(!by(2, &|_| true)),
                    Front::WithCreates => {
                        prop_assert!(by(2, &|other| other.front == Front::LatencyAndHeld) && !by(3, &|_| true));
                    }
                    Front::Beaten => prop_assert!(by(3, &|other| other.front != Front::Beaten)),
                    Front::Unknown => prop_assert!(false),
                }
            }
        }
    }
}
