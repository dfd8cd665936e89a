//! perf's series that sets events up CPU by CPU: the published machines by [`stat_setup::model`].

use results::published::{Number, Origin};
use stat_setup::model::{Modelled, Pair, Simulated, Times, simulate};

use super::recipe::published;

/// Begin of the ids of its figures, and its model's name.
const FIGURES: &str = "perf-stat-setup.";
pub(super) const MODEL: &str = "stat_setup::model";

/// Returns a time of a pair.
fn of(pair: &Pair, part: &str, number: Number) -> f64 {
    let time = |times: &Times| match part {
        "real" => times.real,
        "user" => times.user,
        _ => times.sys,
    };
    match number {
        Number::Before => time(&pair.before),
        Number::After => time(&pair.after),
        Number::Ratio | Number::Change => time(&pair.before) / time(&pair.after),
    }
}

/// Returns the published machines as they are modelled.
pub(super) fn modelled() -> Simulated {
    let pair = |machine: &str| {
        let number = |part: &str, number| {
            let id = format!("{FIGURES}{machine}.{part}");
            published(&id).find(|row| row.number == number).and_then(|row| row.published).unwrap_or_default()
        };
        let times =
            |wanted| Times { real: number("real", wanted), user: number("user", wanted), sys: number("sys", wanted) };
        Pair { before: times(Number::Before), after: times(Number::After) }
    };
    simulate(&pair("94cpu"), &pair("4socket"))
}

/// Returns a number of a figure by the model, and its origin; `None` of a figure of something else.
pub(super) fn number(found: &Simulated, figure: &str, number: Number) -> Option<(f64, Origin)> {
    let (name, part) = figure.strip_prefix(FIGURES)?.split_once('.')?;
    let Modelled { times, calls } = if name == "94cpu" { &found.cpus94 } else { &found.sockets4 };
    if part == "calls" {
        // The list's groups were chosen by these calls.
        return Some((*calls, Origin::OfFitted));
    }
    let to = |number: Number| -> Vec<String> {
        let target = format!("{name} {} {part}", number.key());
        found.fitted.iter().filter(|fitted| fitted.to == target).map(|fitted| fitted.constant.clone()).collect()
    };
    let here = to(number);
    // Real time before the series is user and system time: what those were fitted to, it was, too.
    let sum = part == "real" && (number == Number::Before || (number, name) == (Number::Ratio, "94cpu"));
    let of_fitted = number == Number::Ratio && !(to(Number::Before).is_empty() && to(Number::After).is_empty());
    let origin = match (here.is_empty(), sum || of_fitted) {
        (false, _) => Origin::Fitted(here),
        (true, true) => Origin::OfFitted,
        (true, false) => Origin::Predicted,
    };
    Some((of(times, part, number), origin))
}
