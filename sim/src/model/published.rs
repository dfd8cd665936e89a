//! Numbers of published figures, which models are fitted to or predict.

use serde::{Deserialize, Serialize};

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
