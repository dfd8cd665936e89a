//! The specification of a calibration: workloads, strategies, rounds.

use std::time::Duration;

use guest::abi::FLAG_TIME_LOOP;
use host_pmu::backend::scheduling::Processor;

use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::setting::backend::{BackendChoice, Chosen};
use crate::setting::parse::defaults;
use crate::setting::strategy::StrategyChoice;
use results::error::Error;
use vmm::machine::Cpu;

/// Parameters of a calibration: what is asked for, and what [`run`](super::run::run) finds here.
#[derive(Clone, Debug, Default)]
pub struct CalibrateSpec {
    /// The model's name.
    pub name: String,
    /// Strategies beside [`NEEDED`].
    pub others: Vec<String>,
    /// Rounds of each workload; `None`: what suits the backend.
    pub rounds: Option<u64>,
    /// Bound on the rounds.
    pub duration: Option<Duration>,
    /// Samples per strategy and round; likewise.
    pub samples: Option<u64>,
    /// The guests' processor.
    pub cpu: Cpu,
    /// The backend's key, never `auto`.
    pub backend: String,
    /// True if the backend is a tracepoint: a create then takes milliseconds, and events count exits.
    pub tracepoint: bool,
    /// True if the host's first event takes milliseconds to create, as a tracepoint's does, and nobody else holds one.
    pub dear: bool,
    /// The host's PMU, where events are hardware's.
    pub pmu: Option<Pmu>,
    /// Costs measured outside of guests.
    pub beside: Vec<Outside>,
}

/// A cost measured outside of guests: key, source, values in ns.
pub type Outside = (&'static str, &'static str, Vec<f64>);

/// The host's PMU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pmu {
    /// The processor, if perf's rules for it are known.
    pub processor: Option<Processor>,
    /// Its counters.
    pub counters: u32,
    /// Counters that others hold: the NMI watchdog's.
    pub taken: u32,
    /// Counts a microsecond outside of guests, by an event that is to count in guests alone; it is not 0 where the PMU
    /// knows no guest mode.
    pub outside: f64,
}

/// Strategies that a model is made from: the costs of each kind of host operation are in one of them.
pub const NEEDED: [&str; 4] = ["recreate", "reuse", "gate", "virtual"];

/// Workloads and their strategies: one event, and more events than counters. Four events serve only the check.
pub fn workloads(calibration: &CalibrateSpec) -> Vec<(&'static str, Vec<String>)> {
    let all: Vec<String> = NEEDED.map(str::to_owned).into_iter().chain(calibration.others.iter().cloned()).collect();
    let few = || ["reuse", "gate"].map(str::to_owned).to_vec();
    if calibration.tracepoint {
        // With more events a rotation under recreate takes longer than a tick.
        return vec![("single/io", all), ("sampling10/io", few())];
    }
    if calibration.dear {
        return vec![("single", all), ("sampling10", few())];
    }
    let mut workloads = vec![("single", all.clone()), ("sampling10", all.clone())];
    if !calibration.others.is_empty() {
        workloads.push(("sampling4", all));
    }
    workloads
}

/// Returns the specification of one workload.
///
/// # Errors
/// Exit 2 for an unknown workload.
pub fn spec(calibration: &CalibrateSpec, workload: &str, strategies: &[String]) -> Result<NmiLatencySpec, Error> {
    let spec: NmiLatencySpec = defaults();
    Ok(NmiLatencySpec {
        arms: ArmsOptions {
            strategy: strategies.iter().cloned().map(StrategyChoice::Preset).collect(),
            rounds: calibration.rounds,
            samples: calibration.samples.unwrap_or(spec.arms.samples),
            time_limit: Duration::from_secs(20),
            ..spec.arms
        },
        length: LengthOptions { guest_rounds: Some(1), ..spec.length },
        workload: workload.parse().map_err(|why: String| Error::usage("cannot calibrate", why, ""))?,
        ..spec
    })
}

/// Returns the plan of one workload. Its guests also time a loop in ring 0 that does not exit.
///
/// # Errors
/// Exit 2 for parameters that contradict each other or the host.
pub fn plan(spec: &NmiLatencySpec, cpu: Cpu, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
    let host = HostOptions { backend: BackendChoice::Key(chosen.backend.clone()), cpu, ..defaults() };
    let mut plan = spec.plan(&host, chosen, usable)?;
    plan.guest.boot.flags |= FLAG_TIME_LOOP;
    Ok(plan)
}
