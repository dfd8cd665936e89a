//! Arms and rounds: what every experiment's have in common.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::experiment::Experiment;
use super::guest::GuestRun;
use super::metrics::Metrics;
use super::nested;
use super::summary::Summary;
use crate::metric::{self, Metric};

/// What an arm compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ArmKind {
    /// A strategy on the userspace vPMU, or for setting up events.
    Strategy,
    /// The userspace vPMU with no host event; PMIs raised by a timer.
    Floor,
    /// KVM's own vPMU.
    Kvm,
}

impl ArmKind {
    /// Its name in documents.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Strategy => "strategy",
            Self::Floor => "floor",
            Self::Kvm => "kvm",
        }
    }
}

/// An arm: one of the things that an experiment compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(bound = "")]
#[cfg_attr(
    any(test, feature = "testing"),
    schemars(bound = "E::Arm: schemars::JsonSchema, E::Round: schemars::JsonSchema")
)]
pub struct Arm<E: Experiment = GuestRun> {
    /// Strategy name, "floor", or one of "kvm" and "kvm-mediated" (`host::KVM_ARMS`).
    #[serde(rename = "strategy")]
    pub name: String,
    /// What it compares.
    pub kind: ArmKind,
    /// Backend key; "none" for the floor, its name for an arm with KVM's own vPMU.
    pub backend: String,
    /// Whether the backend only stands in for hardware events.
    pub stand_in: bool,
    /// Why there are no figures, if this arm cannot run here.
    pub not_available: Option<String>,
    /// Why figures are not whole: one line per round and vCPU.
    #[cfg_attr(any(test, feature = "testing"), schemars(default))]
    pub incomplete: Vec<String>,
    /// Its metrics over all rounds.
    #[serde(flatten)]
    #[cfg_attr(any(test, feature = "testing"), schemars(with = "std::collections::BTreeMap<String, Option<Summary>>"))]
    pub metrics: Metrics,
    /// The experiment's own part.
    #[serde(flatten)]
    pub own: E::Arm,
    /// Its rounds, in order of time.
    pub rounds: Vec<Round<E>>,
}

/// One round of one arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(bound = "")]
#[cfg_attr(any(test, feature = "testing"), schemars(bound = "E::Round: schemars::JsonSchema"))]
pub struct Round<E: Experiment = GuestRun> {
    /// Which round, from 0.
    #[serde(rename = "round")]
    pub index: u64,
    /// Which run of the round this was, from 0.
    #[cfg_attr(any(test, feature = "testing"), schemars(default))]
    pub position: u64,
    /// Whether what it measured is whole.
    pub complete: bool,
    /// Its start, ns after the experiment's; virtual time in a simulation.
    pub started_ns: u64,
    /// Number of the arm's guest in which it ran. Rounds of one guest are consecutive, and all arms change guests at the same
    /// rounds. Absent: a guest of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<u64>,
    /// Time of a fixed piece of work on the vCPU's CPU just before, ns: its throughput. Absent: not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<f64>,
    /// Its metrics.
    #[serde(flatten)]
    #[cfg_attr(any(test, feature = "testing"), schemars(with = "std::collections::BTreeMap<String, Option<Summary>>"))]
    pub metrics: Metrics,
    /// The experiment's own part.
    #[serde(flatten)]
    pub own: E::Round,
}

impl<E: Experiment> Arm<E> {
    /// One of its metrics.
    #[must_use]
    pub fn metric(&self, metric: &Metric) -> Option<&Summary> {
        self.metrics.get(metric.key)
    }

    /// The metric that stands for the arm, by key: the first headline metric it has, else the first of all.
    #[must_use]
    pub fn headline(&self) -> Option<(&str, &Summary)> {
        let mut headlines = metric::ALL.into_iter().filter(|metric| metric.headline);
        headlines.find_map(|metric| self.metrics.get_key_value(metric.key)).or_else(|| self.metrics.first_key_value())
    }
}

impl<E: Experiment> Round<E> {
    /// The guest in which it ran: its own number where each round had one of its own.
    #[must_use]
    pub fn guest(&self) -> u64 {
        self.guest.unwrap_or(self.index)
    }

    /// One of its metrics.
    #[must_use]
    pub fn metric(&self, metric: &Metric) -> Option<&Summary> {
        self.metrics.get(metric.key)
    }
}

impl<'de, E: Experiment> Deserialize<'de> for Arm<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        arm(Map::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de, E: Experiment> Deserialize<'de> for Round<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Value::Object(map) = Value::deserialize(deserializer)? else {
            return Err(D::Error::custom("a round is not an object"));
        };
        round(map).map_err(D::Error::custom)
    }
}

fn arm<E: Experiment>(mut map: Map<String, Value>) -> Result<Arm<E>, String> {
    let mut text = |key: &str| match map.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("an arm's {key} is {other}, not text")),
    };
    let name = match text("strategy")? {
        Some(name) => name,
        None => text("name")?.ok_or("an arm has no name (\"strategy\")")?,
    };
    let (backend, not_available) = (text("backend")?, text("not_available")?);
    let within = |why: String| format!("arm {name}: {why}");
    let Some(Value::Array(rounds)) = map.remove("rounds") else {
        return Err(within("it has no list of rounds".to_owned()));
    };
    let rounds =
        rounds.into_iter().map(|round| serde_json::from_value(round).map_err(|error| within(error.to_string())));
    let rounds = rounds.collect::<Result<_, _>>()?;
    let kind = taken(&mut map, "kind").map_err(within)?.unwrap_or(ArmKind::Strategy);
    let incomplete = taken(&mut map, "incomplete").map_err(within)?.unwrap_or_default();
    let stand_in = map.remove("stand_in").and_then(|value| value.as_bool()).unwrap_or(false);
    let (metrics, own) = own::<E, _>(map).map_err(within)?;
    Ok(Arm {
        kind,
        backend: backend.unwrap_or_default(),
        stand_in,
        not_available,
        incomplete,
        metrics,
        own,
        rounds,
        name,
    })
}

fn round<E: Experiment>(mut map: Map<String, Value>) -> Result<Round<E>, String> {
    let mut number = |key: &str| {
        map.remove(key).and_then(|n| n.as_u64()).ok_or_else(|| format!("a round's {key} is not a whole number"))
    };
    let (index, started_ns) = (number("round")?, number("started_ns")?);
    let complete = map.remove("complete").and_then(|value| value.as_bool());
    let within = |why: String| format!("round {index}: {why}");
    let position = taken(&mut map, "position").map_err(within)?.unwrap_or(0);
    let guest = taken(&mut map, "guest").map_err(within)?.flatten();
    let probe_ns = taken(&mut map, "probe_ns").map_err(within)?.flatten();
    let (metrics, own) = own::<E, _>(map).map_err(within)?;
    Ok(Round {
        index,
        position,
        complete: complete.ok_or("a round does not say if it is complete")?,
        started_ns,
        guest,
        probe_ns,
        metrics,
        own,
    })
}

/// A field that may be absent.
fn taken<T: serde::de::DeserializeOwned>(map: &mut Map<String, Value>, key: &str) -> Result<Option<T>, String> {
    map.remove(key).map(|value| serde_json::from_value(value).map_err(|error| format!("{key}: {error}"))).transpose()
}

/// Takes the metrics out of `map`; what remains is the experiment's own part.
fn own<E: Experiment, T: serde::de::DeserializeOwned>(mut map: Map<String, Value>) -> Result<(Metrics, T), String> {
    let mut metrics = nested::take(&mut map)?;
    if E::NESTED_METRICS {
        nested::find(&map, &mut metrics)?;
    }
    let own = serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())?;
    Ok((metrics, own))
}
