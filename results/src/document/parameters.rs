//! Parameters of guest runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::linux::LinuxParameters;

/// An event of the guest's set, as programmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventParameter {
    /// perf's name.
    pub name: String,
    /// IA32_PERFEVTSELx without EN, in hex.
    pub selector: String,
    /// The fixed counter it is bound to, if it is.
    pub fixed_counter: Option<u64>,
    /// Events between two overflows; 0 = counting.
    pub period: u64,
}

/// A strategy as it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StrategyParameter {
    /// Name of the preset, or of the definition.
    pub name: String,
    /// The TOML text, if it came from a file.
    pub definition: Option<String>,
}

impl Parameters {
    /// Returns whether the guest takes PMIs: an event samples, or it plays a trace back.
    pub fn samples_events(&self) -> bool {
        self.workload.starts_with(REPLAY) || self.events.iter().any(|event| event.period > 0)
    }

    /// Returns whether a trace is replayed on a model: its figure is the host's work.
    pub fn is_replayed(&self) -> bool {
        self.workload.starts_with(REPLAY) && self.backend.starts_with("sim:")
    }
}

/// Begin of the workload's name where it is a trace.
pub const REPLAY: &str = "trace:";

/// The processor of guests unless another is chosen.
const USUAL_CPU: &str = "clx";

/// Returns a guest's processor, if it is not the usual one: what is measured in such a guest is another thing, and its
/// name says so.
pub fn other_cpu(cpu: &str) -> Option<&str> {
    Some(cpu).filter(|cpu| !cpu.is_empty() && *cpu != USUAL_CPU)
}

/// Every parameter of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parameters {
    /// The strategies.
    pub strategies: Vec<StrategyParameter>,
    /// `--backend` as given.
    pub backend_requested: String,
    /// The backend that was used.
    pub backend: String,
    /// Why that one, where `auto` chose.
    pub backend_why: String,
    /// Event set and guest work.
    pub workload: String,
    /// The events, in the guest's order.
    pub events: Vec<EventParameter>,
    /// Base period, before an event's own multiplier.
    pub period: u64,
    /// Sampling frequency; `None` = fixed period.
    pub freq_hz: Option<u64>,
    /// The guest's tick.
    pub mux_interval_ns: u64,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Host CPUs of a simulated host that they share. Absent: one each, or a host that is not simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u64>,
    /// Keys of a simulated host or guest that are not as its model or the payload has them, such as `cost.open`: a factor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub altered: BTreeMap<String, String>,
    /// Host CPUs they are pinned to, if they are.
    pub pin: Option<String>,
    /// Rounds that count.
    pub rounds: u64,
    /// Rounds in which an arm's guest lived on before a fresh one replaced it. Absent: each round had guests of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_per_guest: Option<u64>,
    /// Half-width of the 95 % intervals of ratios, a share, at which the run was to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ci: Option<f64>,
    /// A short run whose figures are indicative only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quick: bool,
    /// Samples per arm, round and vCPU.
    pub samples: u64,
    /// Samples of a warm-up round.
    pub warmup_samples: u64,
    /// Warm-up rounds.
    pub warmup_rounds: u64,
    /// Bound on the whole run, after which it ended with the current round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// A measured phase's time limit.
    pub time_limit_ns: u64,
    /// Processor of the guest.
    pub cpu: String,
    /// PMU version the guest sees; of AMD's 1, or 2 for PerfMonV2.
    pub pmu_version: u64,
    /// General-purpose counters the guest sees.
    pub gp_counters: u64,
    /// Fixed counters the guest sees.
    pub fixed_counters: u64,
    /// Guest ticks without any counter, before the measured phase.
    pub baseline_ticks: u64,
    /// Guest ticks with all counters off and the vCPU halted, after it.
    pub tail_ticks: u64,
    /// Description of a set-up, where the guest sets events up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up: Option<SetUpParameters>,
    /// The guest, where it is Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxParameters>,
}

/// Way in which a guest sets events up, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetUpParameters {
    /// "each": a re-scheduling for each event, as `perf stat -a`; "once": one for all of them, as `perf stat COMMAND`.
    pub enable: String,
    /// Guest ticks from enabling events to reading them.
    pub window_ticks: u64,
    /// Guest ticks from disabling them to the next set-up.
    pub gap_ticks: u64,
}
