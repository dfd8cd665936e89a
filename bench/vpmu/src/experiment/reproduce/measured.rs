//! Measured counterparts of published figures, from result documents.

use results::published::{Measured, Number};

use results::document::Arm;
use results::document::Document;
use results::document::Summary;
use results::metric::NMI_HANDLER;

/// Documents in the regime of a figure, and the number to read.
struct Regime {
    /// Prefix of the workload.
    events: Option<&'static str>,
    /// True if creating a host event is expensive there, as with tracepoints without another user.
    expensive: bool,
    arms: [&'static str; 2],
    number: fn(&Summary) -> f64,
}

fn regime(figure: &str) -> Option<Regime> {
    let mean: fn(&Summary) -> f64 = |summary| summary.mean.unwrap_or_default();
    let cheap =
        Regime { events: Some("sampling10/"), expensive: false, arms: ["recreate", "reuse-lazy"], number: mean };
    Some(match figure {
        "vpmu-reuse.watchdog-on.mean" | "vpmu-reuse.v1.mean" => cheap,
        // Runs with a tracepoint sample one event: a tracepoint is a single event.
        "vpmu-reuse.watchdog-off.mean" => Regime { events: None, expensive: true, ..cheap },
        "vpmu-reuse.watchdog-off.min" => {
            Regime { events: None, expensive: true, number: |summary| summary.min.unwrap_or_default() as f64, ..cheap }
        }
        "vpmu-paused-flag.mean" => Regime { events: Some("sampling4/"), arms: ["reuse-lazy", "paused-flag"], ..cheap },
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

/// Returns the number from the first document in the regime.
pub(super) fn number(documents: &[Document], figure: &str, number: Number) -> Option<Measured> {
    let regime = regime(figure)?;
    documents.iter().find_map(|document| {
        let parameters = &document.parameters;
        let real = !parameters.backend.starts_with("sim:");
        let expensive = parameters.backend.starts_with("tracepoint:");
        let same = regime.events.is_none_or(|events| parameters.workload.starts_with(events));
        if !real || expensive != regime.expensive || !same {
            return None;
        }
        let [before, after] = regime.arms.map(|name| {
            let arm: Option<&Arm> = document.arms.iter().find(|arm| arm.name == name);
            arm.and_then(|arm| arm.metric(&NMI_HANDLER)).map(regime.number)
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
