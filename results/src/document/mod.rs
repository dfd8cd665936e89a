//! The result document, `"schema": "vpmu-result/1"`: everything measured, and everything needed to measure
//! it again.

pub mod agreement;
pub mod arm;
pub mod phases;
pub mod scaling;
#[cfg(test)]
mod schema;
pub mod summary;
pub mod warnings;

use serde::{Deserialize, Serialize};

use crate::host::HostFacts;
use arm::ArmResult;
use warnings::Warning;

/// The schema's name and version.
pub const SCHEMA: &str = "vpmu-result/1";
/// Name of the experiment that compares strategies by a guest's NMI handler.
pub const NMI_LATENCY: &str = "nmi-latency";

/// What made the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Tool {
    /// Always "vpmu".
    pub name: String,
    /// Version of the tool.
    pub version: String,
    /// git revision it was built from, "-dirty" appended if the tree was changed; "unknown" outside git.
    /// "+planted-slowdown" is appended where that feature is built in.
    pub git_revision: String,
    /// cargo profile: figures of a debug build are not comparable.
    pub profile: String,
}

/// Whether the experiment is over, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// More rounds follow: a document that still says so was left by a killed run.
    Running,
    /// Every round of every available arm ended as it should.
    Complete,
    /// Some round ended early; the arms say why.
    Incomplete,
    /// The user interrupted it; whole rounds were kept.
    Interrupted,
}

/// An event of the guest's set, as programmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct StrategyParameter {
    /// Name of the preset, or of the definition.
    pub name: String,
    /// The TOML text, if it came from a file.
    pub definition: Option<String>,
}

/// Every parameter of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
    /// Host CPUs they are pinned to, if they are.
    pub pin: Option<String>,
    /// Rounds that count.
    pub rounds: u64,
    /// Samples per arm, round and vCPU.
    pub samples: u64,
    /// Samples of the warm-up.
    pub warmup_samples: u64,
    /// A measured phase's time limit.
    pub time_limit_ns: u64,
    /// PMU version the guest sees.
    pub pmu_version: u64,
    /// General-purpose counters the guest sees.
    pub gp_counters: u64,
    /// Fixed counters the guest sees.
    pub fixed_counters: u64,
    /// Guest ticks without any counter, before the measured phase.
    pub baseline_ticks: u64,
    /// Guest ticks with all counters off and the vCPU halted, after it.
    pub tail_ticks: u64,
    /// What a set-up is, where the guest sets events up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up: Option<SetUpParameters>,
}

/// How a guest sets events up, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct SetUpParameters {
    /// "each": a re-scheduling for each event, as `perf stat -a`; "once": one for all of them, as `perf stat COMMAND`.
    pub enable: String,
    /// Guest ticks from enabling events to reading them.
    pub window_ticks: u64,
    /// Guest ticks from disabling them to the next set-up.
    pub gap_ticks: u64,
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Where it was carried out, if the experiment has places: "guest".
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What made it.
    pub tool: Tool,
    /// The command line, program name first.
    pub command_line: Vec<String>,
    /// Start of the experiment, seconds since 1970.
    pub started_unix: u64,
    /// From the start to the last finished round.
    pub wall_ns: u64,
    /// From the process's `main` to the first instruction of its first guest.
    pub first_guest_instruction_ns: Option<u64>,
    /// How it ended.
    pub status: Status,
    /// Seed of the order of arms.
    pub seed: u64,
    /// Parameters.
    pub parameters: Parameters,
    /// The host.
    pub host: HostFacts,
    /// The arms, in the order of the command line, the floor and `kvm` last.
    pub arms: Vec<ArmResult>,
    /// What a reader should know before trusting a figure.
    pub warnings: Vec<Warning>,
}

impl Document {
    /// The document as indented JSON with a final newline.
    ///
    /// # Errors
    /// Those of serde_json; none is expected for this type.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
