//! Published figures and their counterparts, simulated and measured.

use serde::{Deserialize, Serialize};

use crate::host::HostFacts;
use crate::stats::interval::Interval;
use crate::verdict::Judged;

/// The published figures with their sources, as TOML.
pub const PUBLISHED: &str = include_str!("../published.toml");

/// One number of a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Number {
    /// Before the change.
    #[default]
    Before,
    /// After it.
    After,
    /// The first over the second.
    Ratio,
    /// A change in percent.
    Change,
}

impl Number {
    /// Its key in `results/published.toml`.
    pub const fn key(self) -> &'static str {
        ["before", "after", "ratio", "change"][self as usize]
    }

    /// Returns what is compared of such a number: of a change in percent the share that is left, since −99 % and −99.9 % are ten
    /// times apart.
    pub const fn judged(self, value: f64) -> f64 {
        match self {
            Self::Change => 1.0 + value / 100.0,
            Self::Before | Self::After | Self::Ratio => value,
        }
    }
}

/// Origin of a simulated number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// These constants, of the model or the guest, were fitted to it.
    Fitted(Vec<String>),
    /// It is made of numbers of which at least one was fitted: their ratio or sum.
    OfFitted,
    /// It is the simulation of this other figure, to which constants were fitted: no prediction, although nothing was
    /// fitted to its own published number.
    Transferred(String),
    /// Nothing of it was used in fitting.
    #[default]
    Predicted,
}

/// A number, published, simulated and measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The figure's id in `results/published.toml`.
    pub figure: String,
    /// Description of the figure.
    pub what: String,
    /// The number of it that is published.
    pub number: Number,
    /// Its unit.
    pub unit: String,
    /// As published; `None` of a figure that belongs to the series' workloads and has no published number.
    pub published: Option<f64>,
    /// The model it was simulated with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// As simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<f64>,
    /// Simulated against published: percent, or points where the number is itself a percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Origin of the number.
    pub origin: Origin,
    /// With `--run`, as a model of this host predicts it: the ends of the range that the model is off where it was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predicted: Vec<f64>,
    /// As measured by `--run`.
    pub measured: Option<Measured>,
    /// The measured number of `--run` against the published one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_published: Option<Judged>,
    /// The measured number of `--run` against the predicted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_predicted: Option<Judged>,
    /// Why the model does not explain it, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_explained: Option<String>,
}

/// A measured number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The number.
    pub value: f64,
    /// Its 95 % interval, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The backend behind the counters.
    pub backend: String,
    /// The backend only stands in for hardware events.
    pub stand_in: bool,
}

/// Everything `reproduce` found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduction {
    /// Always "vpmu-reproduce/4".
    pub schema: &'static str,
    /// The simulations' seed.
    pub seed: u64,
    /// The rows, in the order of `results/published.toml`.
    #[serde(rename = "answer")]
    pub rows: Vec<Row>,
    /// Constants of the set-up model that were fitted.
    pub fitted: Vec<Fitted>,
    /// The host of `--run`, and the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<Here>,
}

/// The part of a [`Reproduction`] that was measured at once, on this host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Here {
    /// The host.
    pub host: HostFacts,
    /// Facts and incidents that its figures depend on, in sentences.
    pub notes: Vec<String>,
    /// Everything that was asked for was measured.
    pub whole: bool,
    /// The whole in a sentence.
    pub conclusion: String,
}

/// A constant of the set-up model that was chosen so that a published figure comes out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// Description of the constant.
    pub constant: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The published number it was fitted to, such as "94cpu after sys".
    pub to: &'static str,
}
