//! `reproduce`: every published figure about vPMUs and `perf stat`'s set-up beside the simulated and the measured one, and whether it was fitted.

mod measured;
mod show;
mod simulated;
mod stat_setup;

use serde::Serialize;

use crate::error::{Error, Exit};
use crate::result::Document;

pub use show::markdown;

/// The published figures.
const PUBLISHED: &str = include_str!("../../../results/published.toml");
/// Figures about the vPMU have such ids.
const PREFIX: &str = "vpmu-";

/// One number of a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Number {
    /// Before the change.
    Before,
    /// After it.
    After,
    /// The first over the second.
    Ratio,
    /// A change in percent.
    Change,
}

impl Number {
    const ALL: [Self; 4] = [Self::Before, Self::After, Self::Ratio, Self::Change];

    /// Its key in `results/published.toml`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Ratio => "ratio",
            Self::Change => "change",
        }
    }
}

/// Where a simulated number comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// These constants, of the model or the guest, were fitted to it.
    Fitted(Vec<String>),
    /// It is made of numbers that were fitted: their ratio or sum.
    OfFitted,
    /// Nothing was fitted to it.
    Predicted,
}

/// A number, published, simulated and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The figure's id in `results/published.toml`.
    pub figure: String,
    /// What it is.
    pub what: String,
    /// Which of its numbers.
    pub number: Number,
    /// Its unit.
    pub unit: String,
    /// As published.
    pub published: f64,
    /// The model it was simulated with.
    pub model: String,
    /// As simulated.
    pub simulated: Option<f64>,
    /// Simulated against published: percent, or points where the number is itself a percentage.
    pub error: Option<f64>,
    /// Whether it was fitted.
    pub origin: Origin,
    /// As measured on some host, from a result document.
    pub measured: Option<Measured>,
}

/// A number from a result document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The number.
    pub value: f64,
    /// The backend behind the counters.
    pub backend: String,
    /// The kind of host.
    pub host: String,
}

/// Everything `reproduce` found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduction {
    /// Always "vpmu-reproduce/1".
    pub schema: &'static str,
    /// The simulations' seed.
    pub seed: u64,
    /// The rows, in the order of `results/published.toml`.
    pub rows: Vec<Row>,
    /// Constants of the set-up model that were fitted.
    pub fitted: Vec<::stat_setup::model::Fitted>,
}

/// Simulates what the published figures are about, and sets it beside them and `documents`.
///
/// # Errors
/// A bug in the figures or models that come along.
pub fn reproduce(seed: u64, documents: &[Document]) -> Result<Reproduction, Error> {
    let internal = |why: String| {
        Error::new(Exit::Inconclusive, "cannot read the published figures", why, "please report this as a bug")
    };
    let table: toml::Table = PUBLISHED.parse().map_err(|error: toml::de::Error| internal(error.to_string()))?;
    let figures = table.get("figure").and_then(toml::Value::as_array).ok_or_else(|| internal("none".to_owned()))?;
    let mut simulations = simulated::Simulations::new(seed);
    let mut rows = Vec::new();
    for figure in figures {
        let text = |key: &str| figure.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
        let id = text("id");
        if !id.starts_with(PREFIX) {
            continue;
        }
        let found = simulations.figure(&id)?.ok_or_else(|| internal(format!("{id} has no simulation")))?;
        for number in Number::ALL {
            let Some(published) = figure.get(number.key()).and_then(float) else { continue };
            let simulated = found.number(number);
            let error = simulated.map(|simulated| match number {
                Number::Change => simulated - published,
                _ => 100.0 * (simulated / published - 1.0),
            });
            rows.push(Row {
                figure: id.clone(),
                what: text("what"),
                number,
                unit: if number == Number::Ratio { "ratio".to_owned() } else { text("unit") },
                published,
                model: found.model.clone(),
                simulated,
                error,
                origin: found.origin(&id, number),
                measured: measured::number(documents, &id, number),
            });
        }
    }
    let (more, fitted) =
        stat_setup::rows(figures).ok_or_else(|| internal("perf-stat-setup is not whole".to_owned()))?;
    rows.extend(more);
    Ok(Reproduction { schema: "vpmu-reproduce/1", seed, rows, fitted })
}

fn float(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

#[cfg(test)]
mod tests;
