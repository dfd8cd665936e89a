//! Measured counterparts of published figures, from result documents.

use results::published::{Measured, Number};

use results::document::Arm;
use results::document::Document;
use results::document::Summary;
use results::document::warnings::{first_is_dear, shares_first_event};
use results::metric::{NMI_DRIVER_OFF, NMI_HANDLER};

/// Documents in the regime of a figure, and the number to read.
struct Regime {
    /// Prefix of the workload. Not of runs with a tracepoint: it is a single event.
    events: &'static str,
    /// True if an event that a guest creates is the first of its kind on the host, which is what makes creating it expensive.
    first_event: bool,
    arms: [&'static str; 2],
    number: fn(&Arm) -> Option<f64>,
}

/// Returns the handler's summaries: of NMIs that re-armed a counter, and of those that re-armed none. The published figures are of
/// both. `None` if the document has no latencies of the second.
fn of_all_nmis(arm: &Arm) -> Option<impl Iterator<Item = &Summary> + Clone> {
    let driver_off = arm.metric(&NMI_DRIVER_OFF);
    let known = driver_off.is_some() || arm.own.counts.nmis_driver_off == 0;
    known.then(|| arm.metric(&NMI_HANDLER).into_iter().chain(driver_off))
}

/// Returns the mean of all NMIs.
fn mean(arm: &Arm) -> Option<f64> {
    let all = of_all_nmis(arm)?;
    let count: u64 = all.clone().map(|summary| summary.count).sum();
    let sum: f64 = all.map(|summary| Some(summary.mean? * summary.count as f64)).sum::<Option<f64>>()?;
    (count > 0).then(|| sum / count as f64)
}

/// Returns the minimum of all NMIs.
fn min(arm: &Arm) -> Option<f64> {
    of_all_nmis(arm)?.filter_map(|summary| summary.min).min().map(|ns| ns as f64)
}

fn regime(figure: &str) -> Option<Regime> {
    let cheap = Regime { events: "sampling10/", first_event: false, arms: ["recreate", "reuse-lazy"], number: mean };
    Some(match figure {
        "vpmu-reuse.watchdog-on.mean" | "vpmu-reuse.v1.mean" => cheap,
        "vpmu-reuse.watchdog-off.mean" => Regime { first_event: true, ..cheap },
        "vpmu-reuse.watchdog-off.min" => Regime { first_event: true, number: min, ..cheap },
        "vpmu-paused-flag.mean" => Regime { events: "sampling4/", arms: ["reuse-lazy", "paused-flag"], ..cheap },
        _ => return None,
    })
}

/// Figures with a measured counterpart.
const FIGURES: [&str; 5] = [
    "vpmu-reuse.watchdog-on.mean",
    "vpmu-reuse.v1.mean",
    "vpmu-reuse.watchdog-off.mean",
    "vpmu-reuse.watchdog-off.min",
    "vpmu-paused-flag.mean",
];

/// Returns whether some published figure has a counterpart in this document.
#[must_use]
pub fn answers(document: &Document) -> bool {
    let numbers = [Number::Before, Number::After];
    let of =
        |figure: &&str| numbers.into_iter().any(|one| number(std::slice::from_ref(document), figure, one).is_some());
    FIGURES.iter().any(of)
}

/// Returns whether an event that a guest of this document creates is the first of its kind on the host.
///
/// # Errors
/// Returns why that is unknown or differs by guest: such a document is a counterpart of no published figure.
pub fn first_event(document: &Document) -> Result<bool, &'static str> {
    let backend = document.parameters.backend.as_str();
    match (backend, document.host.nmi_watchdog) {
        _ if backend.starts_with("sim:") => Err("a simulation is no measurement"),
        ("hardware", None) => Err("whether the host's NMI watchdog held an event is unknown"),
        ("hardware", Some(true)) => Ok(false),
        _ if first_is_dear(backend) && shares_first_event(document) => {
            Err("guests of several strategies held events at the same time; take --guest-rounds 1")
        }
        _ => Ok(first_is_dear(backend)),
    }
}

/// Returns the number from the first document in the regime.
pub(super) fn number(documents: &[Document], figure: &str, number: Number) -> Option<Measured> {
    let regime = regime(figure)?;
    documents.iter().find_map(|document| {
        let parameters = &document.parameters;
        let same = parameters.backend.starts_with("tracepoint:") || parameters.workload.starts_with(regime.events);
        if first_event(document) != Ok(regime.first_event) || !same {
            return None;
        }
        let [before, after] = regime.arms.map(|name| {
            let arm: Option<&Arm> = document.arms.iter().find(|arm| arm.name == name);
            arm.and_then(regime.number)
        });
        let value = match number {
            Number::Before => before,
            Number::After => after,
            Number::Ratio => before.zip(after).filter(|&(_, after)| after > 0.0).map(|(b, a)| b / a),
            Number::Change => None,
        };
        let stand_in = document.arms.iter().any(|arm| arm.stand_in);
        value.map(|value| Measured {
            value,
            backend: parameters.backend.clone(),
            stand_in,
            host: document.host.class.clone(),
        })
    })
}
