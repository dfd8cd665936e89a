//! The Pareto front beside the points of a sweep: as JSON and as Markdown.

use std::path::Path;

use results::error::Error;
use results::write::replace;

use super::pareto::Pareto;
use super::show;
use super::store;
use crate::terminal::console::internal;

/// The table of the fronts as Markdown, beside [`store::FRONT`].
pub const MARKDOWN: &str = "pareto.md";

/// Returns the comparison as JSON.
///
/// # Errors
/// Internal error: a value that JSON cannot represent.
pub fn json(pareto: &Pareto) -> Result<String, Error> {
    serde_json::to_string_pretty(pareto)
        .map(|text| text + "\n")
        .map_err(|error| internal("cannot show the comparison", error))
}

/// Writes pareto.json and pareto.md; nothing, and false, if no point is done.
///
/// # Errors
/// Exit 2, with the file system's reason.
pub fn save(dir: &Path, pareto: &Pareto) -> Result<bool, Error> {
    if pareto.scenarios.iter().all(|scenario| scenario.rows.is_empty()) {
        return Ok(false);
    }
    for (name, text) in [(store::FRONT, json(pareto)?), (MARKDOWN, show::markdown(pareto))] {
        let path = dir.join(name);
        replace(&path, text.as_bytes()).map_err(|error| {
            Error::usage(
                format!("cannot write {}", path.display()),
                error.to_string(),
                "all points are kept; run the same command again once there is room",
            )
        })?;
    }
    Ok(true)
}
