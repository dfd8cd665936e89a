//! What every experiment's document has in common.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Metric, NOT_OURS, check, metric, older, refuse};
use crate::document::scaling::ScalePoint;
use crate::document::warnings::Warning;
use crate::document::{Status, Tool};
use crate::error::Error;
use crate::host::HostFacts;

/// A checked document of any experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The file it was read from.
    pub path: PathBuf,
    /// Name of the experiment.
    pub experiment: String,
    /// What made it.
    pub tool: Tool,
    /// The command line, program name first.
    pub command_line: Vec<String>,
    /// Start of the experiment, seconds since 1970.
    pub started_unix: u64,
    /// From the start to the last finished round.
    pub wall_ns: u64,
    /// How it ended.
    pub status: Status,
    /// The seed.
    pub seed: u64,
    /// The experiment's own parameters.
    pub parameters: Map<String, Value>,
    /// The host.
    pub host: HostFacts,
    /// The arms; never empty, no two alike.
    pub arms: Vec<Arm>,
    /// How times grow with events and CPUs, where the experiment measured that.
    pub scaling: Vec<ScalePoint>,
    /// What a reader should know before trusting a figure.
    pub warnings: Vec<Warning>,
}

/// An arm of any experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name: `strategy`, or `name` where the experiment has no strategies.
    pub name: String,
    /// `strategy`, `floor`, `kvm`, or what the experiment says.
    pub kind: String,
    /// Backend key.
    pub backend: String,
    /// Whether the backend only stands in for hardware events.
    pub stand_in: bool,
    /// Why there are no figures, if it could not run.
    pub not_available: Option<String>,
    /// Why figures are not whole.
    pub incomplete: Vec<String>,
    /// Its metrics over all rounds, by name (`nmi_handler_ns`, `phases/open_ns`).
    pub metrics: BTreeMap<String, Metric>,
    /// Its rounds, in order of time.
    pub rounds: Vec<Round>,
    /// Everything else the document holds of it, as it stands there.
    pub rest: Map<String, Value>,
}

/// One round of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Which round, from 0.
    pub index: u64,
    /// Whether what it measured is whole.
    pub complete: bool,
    /// Its start, ns after the experiment's.
    pub started_ns: u64,
    /// Its metrics, by name.
    pub metrics: BTreeMap<String, Metric>,
}

/// Whole set-ups of a guest stand among its phases, and by this name in its rounds, which serves for both.
const SET_UPS: &str = "phases/set-up/total_ns";
const SET_UPS_OF_ROUND: &str = "set_up_ns";

#[derive(Deserialize)]
struct Envelope {
    experiment: String,
    tool: Tool,
    #[serde(default)]
    command_line: Vec<String>,
    started_unix: u64,
    wall_ns: u64,
    status: Status,
    seed: u64,
    parameters: Map<String, Value>,
    host: HostFacts,
    arms: Vec<Map<String, Value>>,
    #[serde(default)]
    scaling: Vec<ScalePoint>,
    warnings: Vec<Warning>,
}

impl Record {
    pub(crate) fn new(path: &Path, value: Value) -> Result<Self, Error> {
        let wrong = |why: String| refuse(path, why, NOT_OURS);
        let envelope: Envelope = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        let arms = envelope.arms.into_iter().map(Arm::new).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let record = Self {
            path: path.to_owned(),
            experiment: envelope.experiment,
            tool: envelope.tool,
            command_line: envelope.command_line,
            started_unix: envelope.started_unix,
            wall_ns: envelope.wall_ns,
            status: envelope.status,
            seed: envelope.seed,
            parameters: envelope.parameters,
            host: envelope.host,
            arms,
            scaling: envelope.scaling,
            warnings: envelope.warnings,
        };
        check::record(&record).map_err(wrong)?;
        Ok(record)
    }

    /// A parameter as text; `None` if the experiment has none of that name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.parameters.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// A parameter that is a number, or the length of one that is a list: how many `events`, `cpus`, `vcpus`.
    #[must_use]
    pub fn size(&self, name: &str) -> Option<u64> {
        match self.parameters.get(name)? {
            Value::Array(list) => Some(list.len() as u64),
            value => value.as_u64(),
        }
    }

    /// The arm of that name.
    #[must_use]
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}

impl Arm {
    fn new(mut map: Map<String, Value>) -> Result<Self, String> {
        let mut text = |key: &str| match map.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("an arm's {key} is {other}, not text")),
        };
        let name = match text("strategy")? {
            Some(name) => name,
            None => text("name")?.ok_or("an arm has no name (\"strategy\")")?,
        };
        let (kind, backend, not_available) = (text("kind")?, text("backend")?, text("not_available")?);
        let within = |why: String| format!("arm {name}: {why}");
        older::convert(&mut map);
        let rounds = match map.remove("rounds") {
            Some(Value::Array(rounds)) => {
                rounds.into_iter().map(Round::new).collect::<Result<_, _>>().map_err(within)?
            }
            _ => return Err(within("it has no list of rounds".to_owned())),
        };
        let mut metrics: BTreeMap<String, Metric> = metric::find(&map).map_err(within)?.into_iter().collect();
        if let Some(whole) = metrics.remove(SET_UPS) {
            metrics.insert(SET_UPS_OF_ROUND.to_owned(), whole);
        }
        let incomplete = match map.remove("incomplete") {
            None => Vec::new(),
            Some(value) => serde_json::from_value(value).map_err(|error| within(format!("incomplete: {error}")))?,
        };
        let stand_in = map.remove("stand_in").and_then(|value| value.as_bool()).unwrap_or(false);
        Ok(Self {
            kind: kind.unwrap_or_else(|| "strategy".to_owned()),
            backend: backend.unwrap_or_default(),
            stand_in,
            not_available,
            incomplete,
            metrics,
            rounds,
            rest: map,
            name,
        })
    }
}

impl Round {
    fn new(value: Value) -> Result<Self, String> {
        let Value::Object(map) = value else { return Err("a round is not an object".to_owned()) };
        let number = |key: &str| {
            map.get(key).and_then(Value::as_u64).ok_or_else(|| format!("a round's {key} is not a whole number"))
        };
        let index = number("round")?;
        Ok(Self {
            index,
            complete: map.get("complete").and_then(Value::as_bool).ok_or("a round does not say if it is complete")?,
            started_ns: number("started_ns")?,
            metrics: metric::find(&map).map_err(|why| format!("round {index}: {why}"))?.into_iter().collect(),
        })
    }
}
