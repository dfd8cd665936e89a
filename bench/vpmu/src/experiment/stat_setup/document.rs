//! The result document of `stat-setup`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stat_setup::list::Class;
use stat_setup::method::Method;
use stat_setup::monitor::Traffic;
use stat_setup::run::FileLimit;
use stat_setup::unit::Outcome;
use stat_setup::verify::Check;

use results::document::{self, Experiment, Summary};

/// Events are set up on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSetUp;

impl Experiment for HostSetUp {
    type Parameters = Parameters;
    type Extra = HostSetUpExtra;
    type Arm = HostSetUpArm;
}

/// The result document of `stat-setup`.
pub type Document = document::Document<HostSetUp>;
/// One strategy.
pub type Arm = document::Arm<HostSetUp>;

/// One phase of one arm. Its times are the arm's metrics `phases/NAME/wall_ns` and, of a call on an event, `phases/NAME/call_ns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseResult {
    /// open, enable, read, disable, close, last-close; map, unmap.
    pub phase: String,
    /// Mean user time of the process, by the kernel's accounting: coarse for a single short phase.
    pub user_ns: f64,
    /// Mean system time.
    pub sys_ns: f64,
    /// System calls on events, and affinity calls, per round.
    pub syscalls: u64,
    /// System calls, migrations and the interrupts that CPUs received, in a round of its own.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub traffic: Traffic,
}

/// Part of an arm beside its metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostSetUpArm {
    /// Method that it used.
    #[schemars(with = "serde_json::Value")]
    pub method: Method,
    /// Description of the method in words.
    pub what: String,
    /// The phases, in order.
    #[serde(rename = "costs")]
    pub phases: Vec<PhaseResult>,
    /// Weak groups broken up.
    pub broken_groups: u64,
    /// Check of its counts.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub check: Option<Check>,
}

impl HostSetUpArm {
    /// Returns one of its phases.
    pub fn phase(&self, name: &str) -> Option<&PhaseResult> {
        self.phases.iter().find(|phase| phase.phase == name)
    }
}

/// An event, or several of the same name and fate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventResult {
    /// Name as written.
    pub name: String,
    /// Number of them in the list.
    pub copies: u64,
    /// Class of its behaviour; `None`: unknown here.
    #[schemars(with = "Option<String>")]
    pub class: Option<Class>,
    /// Outcome of the first of them.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub outcome: Outcome,
}

/// A command of the peer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeerArm {
    /// "start-up", "ungrouped", "groups of 50", "as given", "bench", "vpmu", "vpmu start-up".
    pub name: String,
    /// The command, its list shortened.
    pub command: String,
    /// Time from its start to its end (of `bench`: the time it reports).
    pub wall_ns: Summary,
    /// Wall time less the median of the start-up alone.
    pub less_startup_ns: Option<i64>,
    /// Time of `vpmu` from its start to the last count on its output.
    pub to_counts_ns: Option<Summary>,
    /// `wall_ns` of each round.
    pub rounds_ns: Vec<u64>,
}

/// Stock perf, in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// `perf version`.
    pub version: String,
    /// Its commands.
    pub arms: Vec<PeerArm>,
    /// Events perf gave a count for, once, untimed; events that this tool gave a count for.
    pub counted: Option<(u64, u64)>,
}

/// A ratio of two ways to set up, from the rounds that they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The two.
    pub what: String,
    /// True of the answer: both sides do the same work under the same conditions.
    pub like_for_like: bool,
    /// Time of the first over that of the second.
    pub ratio: f64,
    /// Its 95 % interval; none with too few rounds.
    pub interval: Option<[f64; 2]>,
    /// Rounds.
    pub rounds: u64,
}

/// The system calls of the groups of `auto` with nothing around them: no clock between two calls, no counts, no lists, no
/// disable, and threads are there before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BareCalls {
    /// Kind of the calls.
    pub what: String,
    /// Time from the first to the last.
    pub wall_ns: Summary,
    /// `wall_ns` of each round.
    pub rounds_ns: Vec<u64>,
}

/// Every parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Rounds before those, beside the two runs that check each arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_rounds: Option<u64>,
    /// Bound on all rounds, after which they ended with the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// Time between enable and read.
    pub count_ns: u64,
    /// Numbers of sysfs and tracefs files read, and asked for; the cache saves the difference.
    pub look_ups: (u64, u64),
}

/// Figures beside the arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostSetUpExtra {
    /// Room for descriptors.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub file_limit: FileLimit,
    /// True if all strategies opened and counted the same, and each counted right.
    pub agree: bool,
    /// Disagreements between strategies.
    pub disagreements: Vec<String>,
    /// Outcome of the events.
    pub events: Vec<EventResult>,
    /// The limit of any method that makes these calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bare: Option<BareCalls>,
    /// Stock perf.
    pub peer: Option<Peer>,
    /// Ratios, the answer first.
    pub ratios: Vec<Comparison>,
}
