//! `reproduce`: every published figure about vPMUs and `perf stat`'s set-up beside the simulated and the measured one, and whether it was fitted.

mod measured;
mod show;
mod simulated;
mod stat_setup;

use crate::error::{Error, Exit};
use crate::result::Document;
use results::published::PUBLISHED;

pub use results::published::{Fitted, Measured, Number, Origin, Reproduction, Row};
pub use show::markdown;

/// Figures about the vPMU have such ids.
const PREFIX: &str = "vpmu-";

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
