//! perf's series that sets events up CPU by CPU: the published machines by [`stat_setup::model`], and what it predicts here.

use results::document::{Arm, Record};
use results::published::{Number, Origin};
use stat_setup::list::software_list;
use stat_setup::model::{EVENTS, Modelled, Pair, Shape, Simulated, Times, orders, simulate};

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

/// Lists software events, seven of ten in a weak group: the model's list. Clocks are left out: the time that a busy host takes from
/// a group's clock looks like a wrong count.
pub(super) fn events() -> String {
    let all = software_list(2 * EVENTS as usize);
    let names: Vec<&str> = all.split(',').filter(|name| !name.contains("clock")).take(EVENTS as usize).collect();
    let ten = |ten: &[&str]| {
        let (alone, group) = ten.split_at(ten.len() - Shape::PUBLISHED.grouped as usize);
        format!("{},{{{}}}:W", alone.join(","), group.join(","))
    };
    names.chunks_exact(10).map(ten).collect::<Vec<_>>().join(",")
}

/// Predicts a number of both orders on these CPUs, s, from calls that were timed in this run. What a call takes on its own CPU is
/// known from `cpu-major`; by how much more from another, and what a move takes, from the reads. `None` on one CPU.
pub(super) fn predicted(document: &Record, number: Number) -> Option<f64> {
    let (event_major, cpu_major) = (document.arm("event-major")?, document.arm("cpu-major")?);
    let (cpus, rounds) = (document.size("cpus")?, cpu_major.rounds.len() as f64);
    let here = cpus as f64;
    if cpus < 2 || rounds < 1.0 {
        return None;
    }
    let of_calls = |arm: &Arm, phase: &str| {
        let calls = arm.metrics.get(&format!("phases/{phase}/call_ns"))?;
        Some((calls.count as f64 / rounds / here, calls.mean?))
    };
    let phases: Option<Vec<_>> =
        ["open", "enable", "read", "disable", "close"].iter().map(|phase| of_calls(cpu_major, phase)).collect();
    let local = here * phases?.into_iter().map(|(calls, ns)| calls * ns).sum::<f64>();
    let (calls, own) = of_calls(cpu_major, "read")?;
    let interrupt = (of_calls(event_major, "read")?.1 - own) * here / (here - 1.0);
    let of_move = cpu_major.metrics.get("phases/read/wall_ns")?.median() / here - calls * own;
    let [interrupts, moves] = orders(document.size("events")?, document.size("groups")?, cpus);
    let [before, after] = [(interrupts, interrupt), (moves, of_move)]
        .map(|(times, ns)| (local + times as f64 * ns.max(0.0)) / 1e9)
        .map(|real| Times { real, ..Times::default() });
    Some(of(&Pair { before, after }, "real", number))
}
