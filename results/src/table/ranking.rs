//! Words of a ranking: ratios, names, and what figures are of.

use super::layout;
use crate::choice::has_figures;
use crate::document::{Document, Experiment};
use crate::metric::Metric;
use crate::paired::Ratio;

/// Formats a ratio as `1.27 × the floor [1.26, 1.28]`.
pub fn times(ratio: &Ratio, what: &str) -> String {
    let text = layout::ratio_with(ratio);
    let (value, interval) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{value} × {what} {interval}").trim_end().to_owned()
}

/// Joins names as `a, b and c`.
pub fn listed(names: &[String]) -> String {
    match names {
        [many @ .., last] if !many.is_empty() => format!("{} and {last}", many.join(", ")),
        _ => names.concat(),
    }
}

/// Names the arms that have figures, and none that may be ranked; `of` says of what.
pub(super) fn unranked<E: Experiment>(document: &Document<E>, metric: &Metric, of: &str) -> Option<String> {
    let doubtful = document.arms.iter().filter(|arm| has_figures(arm, metric) && arm.doubt().is_some());
    let names: Vec<String> = doubtful.map(|arm| arm.name.clone()).collect();
    (!names.is_empty()).then(|| format!("; not whole{of}, so not ranked: {}", listed(&names)))
}

/// Says what the figures of a run are, if they are not measured on hardware events.
pub(crate) fn origin<E: Experiment>(document: &Document<E>) -> String {
    let stand_in = document.arms.iter().find(|arm| arm.stand_in);
    match stand_in {
        _ if document.is_replayed() => " (replayed on a model)".to_owned(),
        _ if document.is_simulated() => " (simulated)".to_owned(),
        Some(arm) => format!(" (stand-in {})", arm.backend),
        None => String::new(),
    }
}
