//! The result document of `stat-setup`.

use serde::{Deserialize, Serialize};
use stat_setup::choose::Choice;
use stat_setup::costs::Calibration;
use stat_setup::limit::FileLimit;
use stat_setup::list::Class;
use stat_setup::method::Method;
use stat_setup::monitor::Traffic;
use stat_setup::outcome::Outcome;
use stat_setup::verify::Check;

use crate::host::HostFacts;
pub use crate::result::scaling::{ScalePoint, Spread};
use crate::result::warnings::Warning;
use crate::result::{Status, Tool};

/// Lengths of single calls, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Calls {
    /// Calls of all rounds.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Longest.
    pub max: u64,
}

/// One phase of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PhaseResult {
    /// open, enable, read, disable, close, last-close; map, unmap.
    pub phase: String,
    /// Wall time.
    pub wall_ns: Spread,
    /// Mean user time of the process, by the kernel's accounting: coarse for a single short phase.
    pub user_ns: f64,
    /// Mean system time.
    pub sys_ns: f64,
    /// System calls on events, and affinity calls, per round.
    pub syscalls: u64,
    /// Length of a call on an event.
    pub call_ns: Calls,
    /// What the kernel's trace events counted in a round of its own.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub traffic: Traffic,
}

/// What a phase took in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoundPhase {
    /// As in [`PhaseResult`].
    pub phase: String,
    /// Wall time: one value.
    pub wall_ns: Spread,
}

/// One round of one strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoundResult {
    /// Which round, from 0.
    pub round: u64,
    /// Which of the round's runs this was, those of the peer counted, from 0.
    pub position: u64,
    /// Whether what it measured is whole. Cut rounds are not kept.
    pub complete: bool,
    /// Its start, ns after the experiment's.
    pub started_ns: u64,
    /// All phases together: one value, as all below.
    pub total_ns: Spread,
    /// Until the counts were read.
    pub to_counts_ns: Spread,
    /// The phases, in order.
    pub phases: Vec<RoundPhase>,
}

/// One strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ArmResult {
    /// Its name.
    pub strategy: String,
    /// "strategy".
    pub kind: String,
    /// "perf_event_open".
    pub backend: String,
    /// Whether the backend only stands in for hardware events: no.
    pub stand_in: bool,
    /// What it did.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub method: Method,
    /// The same in words.
    pub what: String,
    /// The phases, in order.
    pub phases: Vec<PhaseResult>,
    /// All phases together.
    pub total_ns: Spread,
    /// Until the counts were read: open, enable and read.
    pub to_counts_ns: Spread,
    /// Round by round.
    pub rounds: Vec<RoundResult>,
    /// Weak groups broken up.
    pub broken_groups: u64,
    /// Whether its counts are right.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, serde_json::Value>>"))]
    pub check: Option<Check>,
}

impl ArmResult {
    /// One of its phases.
    #[must_use]
    pub fn phase(&self, name: &str) -> Option<&PhaseResult> {
        self.phases.iter().find(|phase| phase.phase == name)
    }
}

/// An event, or several of the same name and fate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventResult {
    /// As written.
    pub name: String,
    /// How many of the list.
    pub copies: u64,
    /// How it behaves; `None`: unknown here.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub class: Option<Class>,
    /// What became of the first of them.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub outcome: Outcome,
}

/// How time grows: total ~ x^exponent, fitted over the points by least squares of the logarithms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Growth {
    /// Strategy.
    pub strategy: String,
    /// "events" or "cpus".
    pub over: String,
    /// Least and largest x.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// 1 is linear.
    pub exponent: f64,
}

/// A command of the peer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerArm {
    /// "start-up", "ungrouped", "groups of 50", "as given", "bench", "vpmu", "vpmu start-up".
    pub name: String,
    /// The command, its list shortened.
    pub command: String,
    /// From its start to its end (of `bench`: what it reports).
    pub wall_ns: Spread,
    /// The same less the median of the start-up alone.
    pub less_startup_ns: Option<i64>,
    /// Of `vpmu`: from its start to the last count on its output.
    pub to_counts_ns: Option<Spread>,
    /// `wall_ns` of each round.
    pub rounds_ns: Vec<u64>,
}

/// Stock perf, in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Peer {
    /// `perf version`.
    pub version: String,
    /// Its commands.
    pub arms: Vec<PeerArm>,
    /// Events perf gave a count for, once, untimed; events that this tool gave a count for.
    pub counted: Option<(u64, u64)>,
    /// What is compared, and how many times longer the peer took.
    pub ratios: Vec<(String, f64)>,
}

/// One way of giving back the last descriptors of tracepoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastClose {
    /// "one by one", "by threads" ...
    pub way: String,
    /// Distinct tracepoints, each closed for the last time.
    pub tracepoints: u64,
    /// Until the last was closed.
    pub wall_ns: u64,
}

/// Every parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Parameters {
    /// `--events` as given, shortened to 4 KiB.
    pub events_requested: String,
    /// Events of the list.
    pub events: u64,
    /// Groups as written, events alone included.
    pub groups: u64,
    /// CPUs.
    pub cpus: Vec<u32>,
    /// "stat" or "mmap".
    pub mode: String,
    /// Strategies.
    pub strategies: Vec<String>,
    /// Rounds that count.
    pub rounds: u64,
    /// Between enable and read.
    pub count_ns: u64,
    /// sysfs and tracefs files read, and asked for: what the cache saves.
    pub look_ups: (u64, u64),
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// "vpmu-result/1".
    pub schema: String,
    /// "stat-setup".
    pub experiment: String,
    /// Where it was carried out: "host".
    #[serde(rename = "in")]
    pub place: String,
    /// What made it.
    pub tool: Tool,
    /// The command line.
    pub command_line: Vec<String>,
    /// Start, seconds since 1970.
    pub started_unix: u64,
    /// From the start to the end.
    pub wall_ns: u64,
    /// How it ended.
    pub status: Status,
    /// Seed of the order of arms.
    pub seed: u64,
    /// Parameters.
    pub parameters: Parameters,
    /// The host.
    pub host: HostFacts,
    /// Room for descriptors.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub file_limit: FileLimit,
    /// What calls cost here; none of it is in the arms' times.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub calibration: Calibration,
    /// What `auto` chose, and why.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub choice: Choice,
    /// The strategies.
    pub arms: Vec<ArmResult>,
    /// Whether all strategies opened and counted the same, and each counted right.
    pub agree: bool,
    /// Where not.
    pub disagreements: Vec<String>,
    /// What became of the events.
    pub events: Vec<EventResult>,
    /// Growth, point by point.
    pub scaling: Vec<ScalePoint>,
    /// Growth, as exponents.
    pub growth: Vec<Growth>,
    /// Stock perf.
    pub peer: Option<Peer>,
    /// Ways of closing.
    pub last_close: Vec<LastClose>,
    /// What a reader should know.
    pub warnings: Vec<Warning>,
}
