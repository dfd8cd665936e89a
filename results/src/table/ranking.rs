//! Words of a ranking: ratios, names, what figures are of, and what is said of several things.

use std::collections::BTreeMap;

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
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match &names[..] {
        [many @ .., last] if !many.is_empty() => format!("{} and {last}", many.join(", ")),
        _ => names.concat(),
    }
}

/// Most things that a line names.
const MOST_NAMED: usize = 4;

/// Returns a line `WHAT: WHY` for each reason, of all that have it (what, why); without a name the reason alone. `all`: a line names
/// all that it is of.
pub fn by_reason(pairs: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>, all: bool) -> Vec<String> {
    let mut reasons: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (what, why) in pairs {
        *reasons.entry(why.into()).or_default().entry(what.into()).or_default() += 1;
    }
    let line = |(why, what): (String, BTreeMap<String, usize>)| {
        let often = |(what, times): (String, usize)| {
            if times > 1 && !what.is_empty() { format!("{what} ({times} times)") } else { what }
        };
        let what: Vec<String> = what.into_iter().map(often).collect();
        let most = if all { what.len() } else { MOST_NAMED };
        let more = what.len().saturating_sub(most);
        let more = (more > 0).then(|| format!("{more} more"));
        let names = listed(what.iter().take(most).map(String::as_str).chain(more.as_deref()));
        if names.is_empty() { why } else { format!("{names}: {why}") }
    };
    reasons.into_iter().map(line).collect()
}

/// Names the arms that have figures, and none that may be ranked; `of` says of what.
pub(super) fn unranked<E: Experiment>(document: &Document<E>, metric: &Metric, of: &str) -> Option<String> {
    let doubtful = document.arms.iter().filter(|arm| has_figures(arm, metric) && arm.doubt().is_some());
    let names = listed(doubtful.map(|arm| &*arm.name));
    (!names.is_empty()).then(|| format!("; not whole{of}, so not ranked: {names}"))
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
