//! The document of `ab`, `"schema": "vpmu-ab/1"`.

use results::document::{Status, Tool};
use results::host::HostFacts;
use results::verdict::{Limits, Verdict};
use serde::Serialize;

use super::protocol::Hello;
use super::spec::Side;
use super::verdict::{AbArm, Row};

/// Name and version of the schema.
pub const SCHEMA: &str = "vpmu-ab/1";

/// Everything that was measured, and the verdicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The build that drove both sides.
    pub tool: Tool,
    /// The command line, program name first.
    pub command_line: Vec<String>,
    /// Start, seconds since 1970.
    pub started_unix: u64,
    /// Time from the start to the last whole round.
    pub wall_ns: u64,
    /// Outcome of the whole.
    pub status: Status,
    /// Seed of all orders.
    pub seed: u64,
    /// The host.
    pub host: HostFacts,
    /// The reference.
    pub base: AbSide,
    /// Side that is judged.
    pub new: AbSide,
    /// Both sides are one build with the same options.
    pub same_build: bool,
    /// Rules of the verdicts.
    pub rules: Limits,
    /// Pairs of processes.
    pub sessions: u64,
    /// The verdict of the whole.
    pub verdict: Verdict,
    /// The verdict for each arm and metric.
    pub rows: Vec<Row>,
    /// Doubts about the figures.
    pub doubts: Vec<String>,
    /// The arms with their rounds.
    pub arms: Vec<AbArm>,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbSide {
    /// The build's path.
    pub binary: String,
    /// The build.
    pub tool: Tool,
    /// Options of its own.
    pub args: Vec<String>,
    /// Events and work of its guests.
    pub workload: String,
    /// Backend behind their counters.
    pub backend: String,
    /// True if that stands in for hardware events.
    pub stand_in: bool,
    /// CPUs that vCPUs are bound to.
    pub pin: Option<String>,
    /// Samples of a turn and vCPU.
    pub samples: u64,
}

impl AbSide {
    /// Describes a side by its greeting.
    pub fn new(side: &Side, hello: &Hello) -> Self {
        Self {
            binary: side.binary.display().to_string(),
            tool: hello.tool.clone(),
            args: side.args.clone(),
            workload: hello.workload.clone(),
            backend: hello.backend.clone(),
            stand_in: hello.stand_in,
            pin: hello.pin.clone(),
            samples: hello.samples,
        }
    }
}
