//! Set-up times of `perf stat`, published and by the model of [`stat_setup::model`].

use results::published::{Fitted, Number, Origin, Row};
use stat_setup::model::{Modelled, Pair, Simulated, Times, simulate};

const FIGURES: [&str; 2] = ["94cpu", "4socket"];
type Part = (&'static str, fn(&Times) -> f64);
const PARTS: [Part; 3] = [("real", |times| times.real), ("user", |times| times.user), ("sys", |times| times.sys)];

fn published(figures: &[toml::Value], name: &str) -> Option<(Pair, String)> {
    let id = format!("perf-stat-setup.{name}");
    let figure = figures.iter().find(|figure| figure.get("id").and_then(toml::Value::as_str) == Some(&id))?;
    let times = |key: &str| -> Option<Times> {
        let part = |part: &str| figure.get(key)?.get(part).and_then(float);
        Some(Times { real: part("real")?, user: part("user")?, sys: part("sys")? })
    };
    let what = figure.get("what").and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    Some((Pair { before: times("before")?, after: times("after")? }, what))
}

/// Returns the rows, and the model's fitted constants; `None` if the published figures are not whole.
pub(super) fn rows(figures: &[toml::Value]) -> Option<(Vec<Row>, Vec<Fitted>)> {
    let known = FIGURES.map(|name| published(figures, name));
    let [Some((small, _)), Some((large, _))] = &known else { return None };
    let found = simulate(small, large);
    let mut rows = Vec::new();
    for (name, (pair, what)) in FIGURES.into_iter().zip(known.iter().flatten()) {
        let machine = if name == "94cpu" { &found.cpus94 } else { &found.sockets4 };
        let model = &machine.times;
        for (part, get) in PARTS {
            for number in [Number::Before, Number::After, Number::Ratio] {
                let side = |pair: &Pair| match number {
                    Number::Before => get(&pair.before),
                    Number::After => get(&pair.after),
                    _ => get(&pair.before) / get(&pair.after),
                };
                let (published, simulated) = (side(pair), side(model));
                rows.push(Row {
                    figure: format!("perf-stat-setup.{name}.{part}"),
                    what: what.split(": ").next().unwrap_or(what).to_owned() + ", " + part,
                    number,
                    unit: if number == Number::Ratio { "ratio".to_owned() } else { "s".to_owned() },
                    published: Some(published),
                    model: "stat_setup::model".to_owned(),
                    simulated: Some(simulated),
                    error: Some(100.0 * (simulated / published - 1.0)),
                    origin: origin(&found, name, part, number),
                    ..Row::default()
                });
            }
        }
        rows.extend(counts(figures, name, machine));
    }
    Some((rows, found.fitted))
}

/// Returns the calls and interrupts of the model, and the time that `auto` would take there.
fn counts(figures: &[toml::Value], name: &str, machine: &Modelled) -> Vec<Row> {
    let row = |part: &str, what: &str, number: Number, unit: &str| {
        let figure = format!("perf-stat-setup.{name}.{part}");
        let known = figures.iter().find(|known| known.get("id").and_then(toml::Value::as_str) == Some(&figure));
        let published = known.and_then(|known| known.get(number.key()).and_then(float));
        let (what, unit, model) = (what.to_owned(), unit.to_owned(), "stat_setup::model".to_owned());
        Row { figure, what, number, unit, published, model, ..Row::default() }
    };
    let mut rows = Vec::new();
    for (number, interrupts) in [Number::Before, Number::After].into_iter().zip(machine.interrupts) {
        let calls = row("calls", "system calls on events: published time by time a call", number, "calls");
        let error = calls.published.map(|published| 100.0 * (machine.calls / published - 1.0));
        // The list's groups were chosen by these calls.
        rows.push(Row { simulated: Some(machine.calls), error, origin: Origin::OfFitted, ..calls });
        let received = row("interrupts", "interrupts that CPUs receive, unverified", number, "interrupts");
        rows.push(Row { simulated: Some(interrupts), ..received });
    }
    rows.sort_by_key(|row| row.unit == "interrupts");
    let what =
        "auto there, unverified: a thread per CPU, that do not meet, or whose opens and closes queue on one lock";
    rows.push(Row { predicted: machine.auto.to_vec(), ..row("auto", what, Number::After, "s") });
    rows
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

/// Returns a number of a TOML value.
pub(super) fn float(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}
