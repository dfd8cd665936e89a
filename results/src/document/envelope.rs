//! The document: what every experiment's has in common.

use std::fmt::Debug;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::arm::{Arm, ArmKind};
use super::guest::Answer;
use super::parameters::Parameters;
use crate::error::Error;
use crate::host::HostFacts;
use crate::metric;

/// The schema's name and version.
pub const SCHEMA: &str = "vpmu-result/4";
/// Name of the experiment that compares strategies by a guest's NMI handler.
pub const NMI_LATENCY: &str = "nmi-latency";
/// The experiment of set-ups inside a guest, with documents of the same types.
pub const GUEST_STAT: &str = "guest-stat";

/// The program that made the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// Always "vpmu".
    pub name: String,
    /// Version of the tool.
    pub version: String,
    /// git revision it was built from, "-dirty" appended if the tree was changed; "unknown" outside git.
    pub git_revision: String,
    /// cargo profile: figures of a debug build are not comparable.
    pub profile: String,
}

/// Progress of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// More rounds follow. A document with this status was left by a killed run.
    Running,
    /// Every round of every available arm ended as it should.
    Complete,
    /// Some round ended early; the arms say why.
    Incomplete,
    /// The user interrupted it; whole rounds were kept.
    Interrupted,
}

impl Status {
    /// Returns it in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Running => "still running, or killed",
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Interrupted => "interrupted: finished rounds only",
        }
    }
}

/// Parameters of an experiment, as a document has them.
pub trait Experiment: Serialize + DeserializeOwned + Clone + Debug + PartialEq {}
impl<T: Serialize + DeserializeOwned + Clone + Debug + PartialEq> Experiment for T {}

/// Parameters of whatever experiment, by name, for readers that do not care which it was.
pub type Any = Map<String, Value>;

/// A row: of runs of guests and of set-ups an `Answer`, of others their own.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "documents keep rows as values")]
enum AnswerRow {
    Guests(Answer),
    Others(Any),
}

/// A result document; without a type of its parameters, that of guest runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "E: JsonSchema")]
pub struct Document<E: Experiment = Parameters> {
    /// The file it was read from; empty for one that was not.
    #[serde(skip)]
    pub path: PathBuf,
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Place, if the experiment has several: "guest" or "host".
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The program that made it.
    pub tool: Tool,
    /// The command line, program name first.
    #[serde(default)]
    pub command_line: Vec<String>,
    /// Start of the experiment, seconds since 1970; 0 of a simulation, which has no date.
    pub started_unix: u64,
    /// From the start to the last finished round; of a simulation, the virtual time of its guests, one after another.
    pub wall_ns: u64,
    /// Progress of the run.
    pub status: Status,
    /// Seed of the order of arms.
    pub seed: u64,
    /// Parameters.
    pub parameters: E,
    /// The host.
    pub host: HostFacts,
    /// The arms, in the order of the command line, the floor and `kvm` last.
    #[schemars(length(min = 1))]
    pub arms: Vec<Arm>,
    /// Caveats for the reader of the figures.
    pub warnings: Vec<Warning>,
    /// The first table, of `ab` its rows; none while the run goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<AnswerRow>")]
    pub answer: Vec<Value>,
    /// The exit code that the document stands for; `None` while the run goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
}

/// Returns the names of the arms of documents, each once, in their order.
pub(crate) fn arm_names<'a>(documents: impl Iterator<Item = &'a Record>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for arm in documents.flat_map(|document| &document.arms) {
        if !names.contains(&&*arm.name) {
            names.push(&*arm.name);
        }
    }
    names
}

/// A document of any experiment.
pub type Record = Document<Any>;

impl<E: Experiment> Document<E> {
    /// Formats the document as files hold it: a line of JSON, as rounds are long.
    ///
    /// # Errors
    /// Exit 70; none is expected for this type.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self)
            .map(|text| text + "\n")
            .map_err(|error| Error::internal("cannot show the result", error))
    }

    /// Returns whether nothing in it was measured.
    pub fn is_simulated(&self) -> bool {
        self.host.class.starts_with("simulated")
    }

    /// Returns whether a trace was replayed on a model: its figures are the host's work.
    pub fn is_replayed(&self) -> bool {
        self.arms.iter().any(|arm| arm.metrics.contains_key(metric::HOST_WORK.key))
    }

    /// Returns the arm that the others are compared with: the floor, else the first.
    pub fn base(&self) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.kind == ArmKind::Floor).or(self.arms.first())
    }

    /// Returns the arm of that name.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}

impl Record {
    /// Returns it with the types of guest runs, if it is of one.
    pub fn as_guests(&self) -> Option<Document> {
        let of_guests = [NMI_LATENCY, GUEST_STAT].contains(&self.experiment.as_str());
        let value = of_guests.then(|| serde_json::to_value(self).ok()).flatten()?;
        Some(Document { path: self.path.clone(), ..serde_json::from_value(value).ok()? })
    }

    /// Returns a parameter as text; `None` if the experiment has none of that name.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.parameters.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Returns the key of its metric: the first headline metric that an arm has, else the first of all.
    pub fn metric(&self) -> Option<&str> {
        let key = |wanted: &str| self.arms.iter().find_map(|arm| arm.metrics.get_key_value(wanted));
        let mut headlines = metric::ALL.into_iter().filter(|metric| metric.headline);
        headlines.find_map(|metric| key(metric.key)).map(|(key, _)| key.as_str()).or_else(|| {
            // Of a comparison of builds a strategy's; the floor's says least of them.
            let keys = || self.arms.iter().flat_map(|arm| arm.metrics.keys()).map(String::as_str);
            keys().filter(|key| metric::is_main(key)).min_by_key(|key| key.starts_with("floor/")).or(keys().next())
        })
    }

    /// Returns the definition of a strategy, a text `KEY = VALUE` for each of its choices; `None` if the document has none.
    pub fn definition(&self, strategy: &str) -> Option<Vec<String>> {
        let all = self.parameters.get("strategies")?.as_array()?;
        let text = all.iter().find(|one| one["name"] == strategy)?["definition"].as_str()?;
        let mut table = String::new();
        let mut choices = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("name = ")) {
            match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(name) => table = format!("{name}."),
                None => choices.push(format!("{table}{line}")),
            }
        }
        Some(choices)
    }

    /// Returns whether a strategy is the same in both, as far as the documents say how it is defined.
    pub fn defines_alike(&self, other: &Self, strategy: &str) -> bool {
        let both = self.definition(strategy).zip(other.definition(strategy));
        both.is_none_or(|(own, theirs)| own == theirs)
    }

    /// Returns a parameter that is a number, or the length of one that is a list: how many `events`, `cpus`, `vcpus`.
    pub fn size(&self, name: &str) -> Option<u64> {
        match self.parameters.get(name)? {
            Value::Array(list) => Some(list.len() as u64),
            value => value.as_u64(),
        }
    }
}

/// A caveat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// A stable key, e.g. "lost-nmis".
    pub code: String,
    /// The arm it is about; `None`: the whole experiment.
    pub arm: Option<String>,
    /// Text of the warning, with its meaning.
    pub message: String,
    /// The command that mends it, for a setting of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Warning {
    /// Makes a warning about the whole experiment.
    pub fn of_all(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), arm: None, message: message.into(), remedy: None }
    }
}
