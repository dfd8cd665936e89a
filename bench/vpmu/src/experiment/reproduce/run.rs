//! Simulates the published figures and finds their measured counterparts.

use results::published::{Number, PUBLISHED, Reproduction, Row};

use super::perf_stat::float;
use super::simulated::FILTER;
use super::{measured, perf_stat, simulated};
use crate::terminal::console::internal;
use results::document::Document;
use results::error::Error;

/// Prefixes of the ids of figures that are simulated.
const PREFIXES: [&str; 2] = ["vpmu-", MEDIATED];
/// Prefix of the figures of the mediated vPMU. Their `rows` have a third number: with an event filter.
const MEDIATED: &str = "mediated.";

/// Returns whether a figure is one of a simulated vPMU.
pub(super) fn is_simulated(figure: &str) -> bool {
    PREFIXES.iter().any(|prefix| figure.starts_with(prefix))
}

/// Returns the numbers of a figure: its id, which of its numbers, and the value.
fn numbers(id: &str, figure: &toml::Value) -> Vec<(String, Number, f64)> {
    let own = |number: Number| Some((id.to_owned(), number, figure.get(number.key()).and_then(float)?));
    let mut all: Vec<_> = Number::ALL.into_iter().filter_map(own).collect();
    if id.starts_with(MEDIATED) {
        let row = figure.get("rows").and_then(|rows| rows.get(0));
        let filtered = row.and_then(|row| row.get(2)).and_then(float);
        all.extend(filtered.map(|value| (format!("{id}{FILTER}"), Number::After, value)));
    }
    all
}

/// Simulates the published figures and finds their measured counterparts in `documents`.
///
/// # Errors
/// Internal error in the embedded figures or models.
pub fn reproduce(seed: u64, documents: &[Document]) -> Result<Reproduction, Error> {
    Simulated::run(seed)?.beside(documents)
}

/// The published figures, simulated.
pub struct Simulated {
    seed: u64,
    figures: Vec<toml::Value>,
    pub(super) simulations: simulated::Simulations,
}

impl Simulated {
    /// Simulates the published figures, several at a time.
    ///
    /// # Errors
    /// Internal error in the embedded figures or models.
    pub fn run(seed: u64) -> Result<Self, Error> {
        let figures = figures()?;
        let ids = figures.iter().filter(|figure| is_simulated(text(figure, "id")));
        let ids = ids.flat_map(|figure| numbers(text(figure, "id"), figure)).map(|(id, _, _)| id);
        let simulations = simulated::Simulations::run(seed, ids)?;
        Ok(Self { seed, figures, simulations })
    }

    /// Returns the result of [`Self::run`] with the default seed, without simulating.
    ///
    /// # Errors
    /// Internal error in the embedded figures or models.
    pub fn stored() -> Result<Self, Error> {
        Ok(Self { seed: simulated::SEED, figures: figures()?, simulations: simulated::Simulations::stored()? })
    }

    /// Adds measured counterparts from `documents`.
    ///
    /// # Errors
    /// Internal error in the embedded figures or models.
    pub fn beside(&self, documents: &[Document]) -> Result<Reproduction, Error> {
        rows(self, documents)
    }
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulated").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Returns the embedded figures.
fn figures() -> Result<Vec<toml::Value>, Error> {
    let table: toml::Table = PUBLISHED.parse().map_err(|error: toml::de::Error| unreadable(error.to_string()))?;
    Ok(table.get("figure").and_then(toml::Value::as_array).ok_or_else(|| unreadable("none"))?.clone())
}

fn unreadable(why: impl std::fmt::Display) -> Error {
    internal("cannot read the published figures", why)
}

fn text<'a>(figure: &'a toml::Value, key: &str) -> &'a str {
    figure.get(key).and_then(toml::Value::as_str).unwrap_or_default()
}

fn rows(Simulated { seed, figures, simulations }: &Simulated, documents: &[Document]) -> Result<Reproduction, Error> {
    let mut rows = Vec::new();
    for figure in figures {
        let text = |key: &str| text(figure, key).to_owned();
        let id = text("id");
        if !is_simulated(&id) {
            continue;
        }
        let percentage = text("unit") == "percent";
        for (id, number, published) in numbers(&id, figure) {
            let found = simulations.figure(&id)?.ok_or_else(|| unreadable(format!("{id} has no simulation")))?;
            let simulated = found.number(number);
            let error = simulated.map(|simulated| match number {
                Number::Change => simulated - published,
                Number::Before | Number::After if percentage => simulated - published,
                _ => 100.0 * (simulated / published - 1.0),
            });
            rows.push(Row {
                figure: id.clone(),
                what: text("what"),
                number,
                unit: if number == Number::Ratio { "ratio".to_owned() } else { text("unit") },
                published: Some(published),
                model: found.model.clone(),
                simulated,
                error,
                origin: found.origin(&id, number),
                measured: measured::number(documents, &id, number),
                not_explained: simulated::not_explained(&id),
                ..Row::default()
            });
        }
    }
    let (more, fitted) = perf_stat::rows(figures).ok_or_else(|| unreadable("perf-stat-setup is not whole"))?;
    rows.extend(more);
    Ok(Reproduction { schema: "vpmu-reproduce/1", seed: *seed, rows, fitted, here: None })
}
