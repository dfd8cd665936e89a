//! Simulates the published figures and finds their measured counterparts.

use results::published::{Number, PUBLISHED, Reproduction, Row};

use super::perf_stat::float;
use super::{measured, perf_stat, simulated};
use crate::console::internal;
use results::document::Document;
use results::error::Error;

/// Prefix of the ids of figures on vPMUs.
pub(super) const PREFIX: &str = "vpmu-";

/// Simulates the published figures and finds their measured counterparts in `documents`.
///
/// # Errors
/// Internal error in the embedded figures or models.
pub fn reproduce(seed: u64, documents: &[Document]) -> Result<Reproduction, Error> {
    let internal = |why: String| internal("cannot read the published figures", why);
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
    let (more, fitted) = perf_stat::rows(figures).ok_or_else(|| internal("perf-stat-setup is not whole".to_owned()))?;
    rows.extend(more);
    Ok(Reproduction { schema: "vpmu-reproduce/1", seed, rows, fitted })
}
