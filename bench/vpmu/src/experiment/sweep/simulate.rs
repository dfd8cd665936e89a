//! Simulation of one point.
//!
//! Nothing of `fold` and `rounds` is needed: a point has neither rounds nor arms beside each other, and of its hosts'
//! samples only the totals are kept, since a sweep has thousands of points.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use arch_pmu::intel::IntelCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{BootPage, EventSpec, MAX_EVENTS};
use host_pmu::stats::OpKind;
use host_pmu::strategy::Strategy;
use sim::guest::Timer;
use sim::host::{CounterSource, Plan};
use sim::mediated::Mediated;
use sim::model::{CountBase, Model};
use sim::run::{self, Totals};

use super::point::{GridPoint, Latency, PerSample, PointResult, hash};
use crate::arms::arm::replay::{self, Parts};
use crate::arms::arm::runner::TurnOutcome;
use crate::setting::workload::Workload;
use crate::terminal::console::internal;
use results::error::Error;

/// Hard limit of a guest: this multiple of its time limit, plus a minute.
const HARD_LIMITS: u64 = 4;
const MINUTE_NS: u64 = 60_000_000_000;

/// Points name these by their hashes.
#[derive(Debug, Default)]
pub struct Hosts {
    /// Models of hosts.
    pub models: BTreeMap<String, Model>,
    /// Traces of guests.
    pub traces: BTreeMap<String, Parts>,
}

/// Simulates points of a set of models; shared by all threads.
#[derive(Debug)]
pub struct Simulator {
    hosts: Hosts,
    /// Medians of the floor by the parameters other than the strategy.
    floors: Mutex<BTreeMap<String, Option<u64>>>,
}

impl Simulator {
    /// Creates a simulator of points whose models and traces are these.
    pub fn new(hosts: Hosts) -> Self {
        Self { hosts, floors: Mutex::new(BTreeMap::new()) }
    }

    /// Simulates `point`; the result depends on the point and its model only.
    ///
    /// # Errors
    /// Internal error: a point that no grid produces.
    pub fn result(&self, point: &GridPoint) -> Result<PointResult, Error> {
        let wrong = |why: String| internal("cannot simulate a point", why);
        let mut model =
            self.hosts.models.get(&point.model_hash).ok_or_else(|| wrong("its model is missing".to_owned()))?.clone();
        for (cost, &factor) in &point.costs {
            model.scale(cost, factor).map_err(|error| wrong(error.to_string()))?;
        }
        if let Some(hash) = &point.trace_hash {
            let parts = self.hosts.traces.get(hash).ok_or_else(|| wrong("its trace is missing".to_owned()))?;
            let strategy = Strategy::from_toml(&point.definition).map_err(|error| wrong(error.to_string()))?;
            let [own, floor] = [Some(&strategy), None].map(|of| replay::whole(parts, &model, of, point.seed));
            return Ok(replayed(&own?, &floor?, point));
        }
        model.host.slice = point.slice_ns;
        let behind = match Mediated::named(&point.strategy) {
            Some(kind) => CounterSource::Mediated(kind),
            None => {
                CounterSource::Events(Strategy::from_toml(&point.definition).map_err(|error| wrong(error.to_string()))?)
            }
        };
        let workload: Workload = point.workload.parse().map_err(wrong)?;
        let totals = simulate(&model, point, workload, behind);
        let floor = self.floor(&model, point, workload);
        Ok(result(&totals, floor, point, workload))
    }

    /// Returns the median of the floor, simulated once for all strategies (twice if two threads need it at the same time).
    fn floor(&self, model: &Model, point: &GridPoint, workload: Workload) -> Option<u64> {
        let own =
            GridPoint { strategy: String::new(), definition: String::new(), release_slices: None, ..point.clone() };
        let key = hash([own.key().as_bytes()]);
        let known = || self.floors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&found) = known().get(&key) {
            return found;
        }
        let behind = match model.base {
            CountBase::Exits => CounterSource::PacedFloor { counts_per_ms: point.period },
            CountBase::GuestTime | CountBase::ThreadTime => CounterSource::Floor,
        };
        let totals = simulate(model, point, workload, behind);
        let found = latency_of(&totals, workload).map(|latency| latency.p50);
        known().insert(key, found);
        found
    }
}

fn simulate(model: &Model, point: &GridPoint, workload: Workload, behind: CounterSource) -> Totals {
    let named = workload.events.events(Vendor::Intel, point.period);
    let mut events = [EventSpec::default(); MAX_EVENTS];
    for (slot, event) in events.iter_mut().zip(&named) {
        *slot = event.spec;
    }
    let ticks = |ns: u64| ns.div_ceil(point.mux_interval_ns.max(1)).max(1);
    let boot = BootPage {
        workload: workload.work.abi(),
        flags: workload.events.flags(),
        tick_count: point.mux_interval_ns,
        baseline_ticks: 1,
        max_ticks: ticks(point.time_limit_ns),
        tail_ticks: ticks(point.tail_ns),
        sample_target: point.samples,
        freq_hz: point.freq_hz.unwrap_or(0),
        event_count: named.len().min(MAX_EVENTS) as u64,
        events,
        ..BootPage::default()
    };
    let plan = Plan {
        behind,
        pmu: IntelCaps::default().into(),
        vcpus: point.vcpus,
        cpus: point.cpus,
        boot,
        timer: if point.timer == "forwarded" { Timer::Forwarded } else { Timer::Periodic },
        limit_ns: point.time_limit_ns.saturating_mul(HARD_LIMITS).saturating_add(point.tail_ns + MINUTE_NS),
        seed: point.seed,
        trace: None,
    };
    run::run(model, &plan, point.hosts)
}

fn latency_of(totals: &Totals, workload: Workload) -> Option<Latency> {
    summary(if workload.events.samples() { &totals.handler } else { &totals.rotation })
}

fn summary(latency: &sim::guest::Latency) -> Option<Latency> {
    // A bucket's upper bound may exceed the values in it.
    let histogram = latency.histogram();
    let quantile = |q: f64| histogram.value_at_quantile(q).clamp(latency.min, latency.max);
    latency.mean().map(|mean| Latency {
        count: latency.count(),
        min: latency.min,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        max: latency.max,
        mean,
    })
}

/// Summarizes the host's work of each sample of a trace.
fn of_work(work: &[u64]) -> Option<Latency> {
    let mut sorted = work.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted[(sorted.len() - 1) * percent / 100];
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let mean = work.iter().sum::<u64>() as f64 / work.len() as f64;
    Some(Latency { count: work.len() as u64, min, p50: at(50), p90: at(90), p99: at(99), max, mean })
}

fn replayed(own: &TurnOutcome, floor: &TurnOutcome, point: &GridPoint) -> PointResult {
    let (work, floor) = (of_work(&own.host_work), of_work(&floor.host_work));
    let mut totals = Totals::default();
    for vcpu in &own.run.vcpus {
        totals.counts.merge(&vcpu.account.counts);
        totals.ops.merge(&vcpu.account.host.ops);
        totals.accesses += vcpu.account.msr_exits.iter().map(|msr| msr.reads + msr.writes).sum::<u64>();
    }
    totals.counts.nmis = totals.counts.nmis_injected;
    let held_mean = totals.counts.held_ns as f64 / totals.counts.time_ns.max(1) as f64;
    let result = of_totals(&totals, work, point);
    PointResult {
        host_work_ns: work,
        floor_p50_ns: floor.map(|floor| floor.p50),
        x_floor: work.zip(floor).filter(|(_, floor)| floor.mean > 0.0).map(|(work, floor)| work.mean / floor.mean),
        held_mean,
        virtual_ns: totals.counts.time_ns,
        ..result
    }
}

fn result(totals: &Totals, floor: Option<u64>, point: &GridPoint, workload: Workload) -> PointResult {
    let latency = latency_of(totals, workload);
    PointResult {
        nmi_handler_ns: summary(&totals.handler),
        pmi_delivery_ns: summary(&totals.delivery),
        rotation_ns: summary(&totals.rotation),
        floor_p50_ns: floor,
        x_floor: latency.zip(floor).filter(|&(_, floor)| floor > 0).map(|(l, floor)| l.p50 as f64 / floor as f64),
        ..of_totals(totals, latency, point)
    }
}

/// Returns what is counted alike with and without a trace.
fn of_totals(totals: &Totals, latency: Option<Latency>, point: &GridPoint) -> PointResult {
    let samples = latency.map_or(0, |latency| latency.count).max(totals.counts.nmis);
    let per = |n: u64| if samples == 0 { 0.0 } else { n as f64 / samples as f64 };
    let op = |kind| per(totals.ops.count(kind));
    PointResult {
        guests: point.vcpus * point.hosts,
        timed_out: totals.timed_out,
        nmis: totals.counts.nmis,
        nmis_driver_off: totals.counts.nmis_driver_off,
        lost: totals.lost,
        overflows_lost: totals.overflows_lost,
        nmi_handler_ns: None,
        pmi_delivery_ns: None,
        rotation_ns: None,
        host_work_ns: None,
        floor_p50_ns: None,
        x_floor: None,
        per_sample: PerSample {
            open: op(OpKind::Open),
            release: op(OpKind::Release),
            pause: op(OpKind::Pause),
            resume: op(OpKind::Resume),
            period: op(OpKind::Period),
            read: op(OpKind::Read),
            msr_accesses: per(totals.accesses),
        },
        creates_gp: totals.counts.opens - totals.counts.opens_fixed,
        creates_fixed: totals.counts.opens_fixed,
        held_mean: totals.held_mean(),
        held_max: totals.counts.held_max,
        sched_ins: totals.counts.sched_ins,
        pinned_errors: totals.counts.pinned_errors,
        failed_opens: totals.counts.failed_opens,
        virtual_ns: totals.ns,
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::Grid;
    use super::*;

    fn results(toml: &str) -> Vec<(GridPoint, PointResult)> {
        let grid: Grid = toml::from_str(toml).unwrap();
        let (points, models) = grid.points().unwrap();
        let simulator = Simulator::new(models);
        points.into_iter().map(|point| (point.clone(), simulator.result(&point).unwrap())).collect()
    }

    #[test]
    fn a_trace_takes_the_place_of_a_workload() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/traces");
        let grid = |more: &str| {
            let names = "strategy = ['recreate', 'reuse-lazy', 'gate']\nmodel = ['clx-ap-watchdog-on']";
            format!("{names}\ntrace = ['{corpus}/record10-clx-6.1', '{corpus}/stat-clx-6.1']\n{more}")
        };
        let found = results(&grid("cost.open = [1, 10]"));
        assert_eq!(found.len(), 12);
        let of = |strategy: &str, workload: &str, open: f64| {
            let is = |point: &GridPoint| {
                point.strategy == strategy
                    && point.workload == workload
                    && point.costs["open"].to_bits() == open.to_bits()
            };
            &found.iter().find(|(point, _)| is(point)).unwrap().1
        };
        for workload in ["trace:record10-clx-6.1", "trace:stat-clx-6.1"] {
            let [recreate, lazy, gate] = ["recreate", "reuse-lazy", "gate"].map(|name| of(name, workload, 1.0));
            let work = |result: &PointResult| result.latency().unwrap().mean;
            assert!(work(recreate) > work(lazy) && work(lazy) > work(gate), "{recreate:?} {lazy:?} {gate:?}");
            assert!(gate.x_floor > Some(1.0) && recreate.per_sample.open > lazy.per_sample.open);
            assert!(work(of("recreate", workload, 10.0)) > work(recreate));
            assert!(lazy.held_mean > 0.0 && lazy.held_mean <= lazy.held_max as f64, "{lazy:?}");
        }
        assert_eq!(of("gate", "trace:record10-clx-6.1", 1.0).nmis, 138);
        // With hyper-threading and a watchdog the host has too few counters for the guest's seven.
        let (text, _) = crate::arms::arm::sim::model_text("clx-ap-watchdog-on").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let few = dir.path().join("few.toml");
        std::fs::write(&few, text.replace("cascade-lake-no-smt", "cascade-lake")).unwrap();
        let grid_of = |strategies: &str| -> Grid {
            let trace = format!("trace = ['{corpus}/record10-clx-6.1']");
            toml::from_str(&format!("strategy = {strategies}\nmodel = ['{}']\n{trace}", few.display())).unwrap()
        };
        let (points, hosts) = grid_of("['gate', 'reuse', 'recreate']").points().unwrap();
        let simulator = Simulator::new(hosts);
        let fell: Vec<_> = points.iter().map(|point| simulator.result(point).unwrap()).collect();
        assert!(fell.iter().all(|result| result.pinned_errors > 0), "{fell:?}");
        assert!(fell[0].per_sample.pause > 1.0, "single events: {:?}", fell[0]);
        for (more, needle) in [
            ("workload = ['single']", "trace and workload exclude each other"),
            ("samples = 5", "trace and samples exclude each other"),
            ("strategy = ['virtual']", "strategy virtual cannot be replayed"),
            ("trace = []", "the axis has no values"),
        ] {
            let grid: Grid = toml::from_str(&grid("")).unwrap();
            let error = grid.overridden_by(&toml::from_str(more).unwrap()).unwrap().points().unwrap_err().to_string();
            assert!(error.contains(needle), "{more}: {error}");
        }
    }

    #[test]
    fn results_are_whole_whatever_the_workload() {
        let found = results(
            "strategy = ['deferred']\nworkload = ['single', 'counting1', 'single/idle', 'sampling4/io']\nsamples = 60\n\
             model = ['development-host', 'development-host-tracepoint', 'icx-2021']\ntime-limit = '1s'",
        );
        assert_eq!(found.len(), 12);
        for (point, result) in found {
            assert_eq!((result.lost, result.overflows_lost, result.timed_out), (0, 0, 0), "{point:?}");
            let sampled = result.latency().is_some();
            // A guest that computes does not exit; a halted one runs for its ticks only.
            let exits = point.workload.ends_with("/io") || point.workload.starts_with("counting1");
            let expected = exits || point.model != "development-host-tracepoint";
            assert!(sampled == expected || point.workload == "single/idle", "{point:?}");
            assert_eq!(sampled, result.x_floor.is_some() && result.per_sample.msr_accesses > 0.0, "{point:?}");
            assert!(result.held_mean > 0.0 && result.held_mean <= result.held_max as f64, "{point:?}");
        }
    }
}
