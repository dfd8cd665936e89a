//! The specification of a calibration: workloads, strategies, rounds.

use std::time::Duration;

use guest::abi::FLAG_TIME_LOOP;
use host_pmu::backend::scheduling::Processor;

use crate::arms::rounds::options::{ArmsOptions, HostOptions};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::{NmiLatencySpec, PAYLOAD};
use crate::setting::backend::{BackendChoice, Chosen};
use crate::setting::options::BehindOptions;
use crate::setting::parse::defaults;
use crate::setting::strategy::StrategyChoice;
use results::error::Error;
use vmm::machine::Cpu;

/// Parameters of a calibration: what is asked for, and what [`run`](super::run::run) finds here.
#[derive(Clone, Debug, Default)]
pub struct CalibrateSpec {
    /// The model's name.
    pub name: String,
    /// Rounds of each workload; `None`: what suits the backend.
    pub rounds: Option<u64>,
    /// The guests' processor.
    pub cpu: Cpu,
    /// The backend is a tracepoint: a create then takes milliseconds, and events count exits.
    pub tracepoint: bool,
    /// The host's first event takes milliseconds to create, as a tracepoint's does, and nobody else holds one.
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
const NEEDED: &[&str] = &["recreate", "reuse", "gate", "virtual"];

impl CalibrateSpec {
    /// Returns the workloads with their strategies: one event, and more events than counters.
    pub fn workloads(&self) -> [(&'static str, &'static [&'static str]); 2] {
        // Where a create takes long, a rotation of more events under recreate takes longer than a tick.
        let many = if self.tracepoint || self.dear { &["reuse", "gate"] } else { NEEDED };
        let [one, ten] = if self.tracepoint { ["single/io", "sampling10/io"] } else { ["single", "sampling10"] };
        [(one, NEEDED), (ten, many)]
    }

    /// Returns the plan of one workload. Its guests also time a loop in ring 0 that does not exit.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(
        &self,
        (workload, strategies): (&str, &[&str]),
        chosen: &Chosen,
        usable: Option<&[u32]>,
    ) -> Result<Plan, Error> {
        let usual: NmiLatencySpec = defaults();
        let spec = NmiLatencySpec {
            arms: ArmsOptions {
                strategy: StrategyChoice::presets(strategies),
                rounds: self.rounds,
                samples: Some(if self.tracepoint { 20 } else { 50 }),
                time_limit: Some(Duration::from_secs(20)),
                ..usual.arms
            },
            workload: Some(workload.parse().map_err(|why: String| Error::usage("cannot calibrate", why, ""))?),
            ..usual
        };
        let backend = BackendChoice::Key(chosen.backend.clone());
        let mut plan =
            spec.plan(&PAYLOAD, &HostOptions { behind: BehindOptions::of(backend), cpu: self.cpu }, chosen, usable)?;
        plan.parameters.rounds_per_guest = None;
        plan.guest.boot.flags |= FLAG_TIME_LOOP;
        Ok(plan)
    }
}
