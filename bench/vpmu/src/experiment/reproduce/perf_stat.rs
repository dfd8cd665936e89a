//! Set-up times of `perf stat`, published and by the model of [`stat_setup::model`].

use results::published::{Fitted, Number, Origin, Row};
use stat_setup::model::{Pair, Simulated, Times, simulate};

use super::recipe::{find, float, text};

const MACHINES: [&str; 2] = ["94cpu", "4socket"];
const MODEL: &str = "stat_setup::model";

fn published(figure: &toml::Value) -> Option<Pair> {
    let times = |key: &str| -> Option<Times> {
        let part = |part: &str| figure.get(key)?.get(part).and_then(float);
        Some(Times { real: part("real")?, user: part("user")?, sys: part("sys")? })
    };
    Some(Pair { before: times("before")?, after: times("after")? })
}

/// Returns the rows, and the model's fitted constants; `None` if the published figures are not whole.
pub(super) fn rows() -> Option<(Vec<Row>, Vec<Fitted>)> {
    let all = MACHINES.map(|name| find(&format!("perf-stat-setup.{name}")));
    let [small, large] = all.map(|figure| figure.and_then(published));
    let (small, large) = (small?, large?);
    let found = simulate(&small, &large);
    let mut rows = Vec::new();
    for (name, figure, pair, machine) in
        [(MACHINES[0], all[0]?, small, &found.cpus94), (MACHINES[1], all[1]?, large, &found.sockets4)]
    {
        let row =
            |part: &str, what: &str, number, unit: &str, (published, simulated): (Option<f64>, f64), origin| Row {
                figure: format!("perf-stat-setup.{name}.{part}"),
                what: what.to_owned(),
                number,
                unit: unit.to_owned(),
                published,
                model: MODEL.to_owned(),
                simulated: Some(simulated),
                error: published.map(|published| 100.0 * (simulated / published - 1.0)),
                origin,
                ..Row::default()
            };
        let what = text(figure, "what").split(": ").next().unwrap_or_default();
        let of = |part: &str, number: Number, pair: &Pair| {
            let time = |times: &Times| match part {
                "real" => times.real,
                "user" => times.user,
                _ => times.sys,
            };
            match number {
                Number::Before => time(&pair.before),
                Number::After => time(&pair.after),
                _ => time(&pair.before) / time(&pair.after),
            }
        };
        for part in ["real", "user", "sys"] {
            for number in [Number::Before, Number::After, Number::Ratio] {
                let unit = if number == Number::Ratio { "ratio" } else { "s" };
                let values = (Some(of(part, number, &pair)), of(part, number, &machine.times));
                let origin = origin(&found, name, part, number);
                rows.push(row(part, &format!("{what}, {part}"), number, unit, values, origin));
            }
        }
        let calls = find(&format!("perf-stat-setup.{name}.calls"));
        for number in [Number::Before, Number::After] {
            let published = calls.and_then(|calls| calls.get(number.key()).and_then(float));
            let what = "system calls on events: published time by time a call";
            // The list's groups were chosen by these calls.
            rows.push(row("calls", what, number, "calls", (published, machine.calls), Origin::OfFitted));
        }
    }
    Some((rows, found.fitted))
}

fn origin(found: &Simulated, name: &str, part: &str, number: Number) -> Origin {
    let to = |number: Number| -> Vec<String> {
        let target = format!("{name} {} {part}", number.key());
        found.fitted.iter().filter(|fitted| fitted.to == target).map(|fitted| fitted.constant.clone()).collect()
    };
    let here = to(number);
    // Real time before the series is user and system time: what those were fitted to, it was, too.
    let sum = part == "real" && (number == Number::Before || (number, name) == (Number::Ratio, "94cpu"));
    if !here.is_empty() {
        Origin::Fitted(here)
    } else if sum || (number == Number::Ratio && (!to(Number::Before).is_empty() || !to(Number::After).is_empty())) {
        Origin::OfFitted
    } else {
        Origin::Predicted
    }
}
