//! Shows the cost: host operations per PMI, and the phases of a set-up.

use super::figure::{Figure, Key, Table, dash};
use super::group;
use super::latency::{ARMS, too_many};
use crate::document::{Any, Arm, ArmKind, Record, Summary};
use crate::plot::{self, Axis, Bar, Curve, Ink, Inks, Part, duration, plain};
use crate::stats::pareto;
use crate::table::layout::{ratio, time};

/// Returns the divisor of an arm's work: the NMIs it took, its set-ups, or its rotations.
fn samples(arm: &Arm<Any>, metric: Option<&str>) -> Option<f64> {
    let counted = metric.and_then(|key| arm.metrics.get(key)).map_or(0, |metric| metric.count);
    Some(arm.own.counts.nmis.max(counted)).filter(|&n| n > 0).map(|n| n as f64)
}

/// Draws the host operations per PMI of a result, by number and by time; `None` if it has none.
pub(super) fn host_operations(record: &Record) -> Option<Figure> {
    let mut kinds: Vec<&str> = record.arms.iter().flat_map(|arm| arm.own.host_ops.keys()).map(String::as_str).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() {
        return None;
    }
    let metric = record.metric();
    let per = match metric {
        Some("nmi_handler_ns" | "host_work_ns") => "PMI",
        Some("set_up_ns") => "set-up",
        _ => "rotation",
    };
    let title = format!("Host operations per {per}");
    let mut head = vec!["arm".to_owned(), "all".to_owned()];
    head.extend(kinds.iter().map(|kind| (*kind).to_owned()));
    head.extend(["MSR exits".to_owned(), "time in operations".to_owned()]);
    head.extend(kinds.iter().map(|kind| format!("time in {kind}")));
    let mut table = Table { caption: title.clone(), head, rows: Vec::new() };
    let (mut numbers, mut times) = (Vec::new(), Vec::new());
    for arm in &record.arms {
        let Some(samples) = samples(arm, metric) else { continue };
        // Number and time of a kind, per sample.
        let per_sample = |kind: &str| {
            let found = arm.own.host_ops.get(kind);
            found.map_or((0.0, 0.0), |op| (op.count as f64 / samples, op.total_ns as f64 / samples))
        };
        let all = kinds.iter().map(|kind| per_sample(kind)).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut row = vec![arm.name.clone(), ratio(all.0)];
        row.extend(kinds.iter().map(|kind| ratio(per_sample(kind).0)));
        let has_exits = !arm.own.msr_exits.is_empty();
        row.push(if has_exits { ratio(arm.own.all_exits() as f64 / samples) } else { dash() });
        row.push(time(all.1));
        row.extend(kinds.iter().map(|kind| time(per_sample(kind).1)));
        table.rows.push(row);
        let bar = |total: String, text: fn(f64) -> String, value: &dyn Fn(&str) -> f64| Bar {
            name: arm.name.clone(),
            total,
            parts: parts(kinds.iter().map(|kind| (*kind, value(kind))), text),
        };
        numbers.push(bar(ratio(all.0), ratio, &|kind| per_sample(kind).0));
        times.push(bar(time(all.1), time, &|kind| per_sample(kind).1));
    }
    let drawn = numbers.len();
    numbers.truncate(ARMS);
    times.truncate(ARMS);
    let (left, mut key) = stacked(&title, &format!("operations per {per}"), &numbers, plain);
    let (right, other) = stacked(&format!("{title}: time"), &format!("time in operations per {per}"), &times, duration);
    // A kind that has its name in one of the two needs no key.
    key.retain(|part| other.contains(part));
    Some(Figure {
        note: format!(
            "Operations on host events by calls to perf, whichever CPU they ran on: how many, and how long they took.{}",
            too_many(drawn)
        ),
        plots: vec![left, right],
        key: keys(key),
        title,
        table,
    })
}

/// Parts of a bar, each with its ink by its place; those of 0 are left out.
fn parts<'a>(values: impl Iterator<Item = (&'a str, f64)>, text: fn(f64) -> String) -> Vec<Part> {
    let part = |(place, (name, value)): (usize, (&str, f64))| Part {
        name: name.to_owned(),
        ink: Ink::Part(place),
        value,
        text: text(value),
    };
    values.enumerate().map(part).filter(|part| part.value > 0.0).collect()
}

fn keys(unnamed: Vec<(String, Ink)>) -> Vec<Key> {
    unnamed.into_iter().map(|(name, ink)| Key::bar(ink, name)).collect()
}

/// Returns the phases of an arm and the median of each, ns.
fn phases_of(arm: &Arm<Any>) -> Phases {
    let phase = |(key, summary): (&String, &Summary)| {
        let (name, time) = key.strip_prefix("phases/")?.split_once('/')?;
        // Rotations come later than the set-up of a guest.
        let is_part = matches!(time, "wall_ns" | "total_ns") && name != "rotate";
        is_part.then(|| (name.to_owned(), summary.median()))
    };
    arm.metrics.iter().filter_map(phase).collect()
}

/// Names of phases with their times, ns.
type Phases = Vec<(String, f64)>;

/// Draws the phases of a set-up, stacked, of a result; `None` if it has none.
pub(super) fn phases(record: &Record) -> Option<Figure> {
    // Phases have the order of an event's life; unknown ones follow.
    let order = ["program", "open", "map", "enable", "count", "read", "disable", "unmap", "close", "last-close"];
    let place = |name: &str| order.iter().position(|known| *known == name).unwrap_or(order.len());
    let arms: Vec<(&Arm<Any>, Phases)> = record.arms.iter().map(|arm| (arm, phases_of(arm))).collect();
    let mut names: Vec<&str> = arms.iter().flat_map(|(_, phases)| phases).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable_by_key(|name| (place(name), *name));
    names.dedup();
    if names.is_empty() {
        return None;
    }
    let title = "Phases of a set-up".to_owned();
    let mut head = vec!["arm".to_owned(), "all".to_owned()];
    head.extend(names.iter().map(|name| (*name).to_owned()));
    let mut table = Table { caption: format!("{title}: median of each"), head, rows: Vec::new() };
    let mut bars = Vec::new();
    for (arm, phases) in arms.iter().filter(|(_, phases)| !phases.is_empty()) {
        let phase = |name: &str| phases.iter().find(|(found, _)| found == name).map(|(_, ns)| *ns);
        let all: f64 = phases.iter().map(|(_, ns)| ns).sum();
        let mut row = vec![arm.name.clone(), time(all)];
        row.extend(names.iter().map(|name| phase(name).map_or_else(dash, time)));
        table.rows.push(row);
        let parts = parts(names.iter().map(|name| (*name, phase(name).unwrap_or(0.0))), time);
        bars.push(Bar { name: arm.name.clone(), total: time(all), parts });
    }
    let drawn = bars.len();
    bars.truncate(ARMS);
    let (plot, unnamed) = stacked(&title, "time", &bars, duration);
    Some(Figure {
        note: format!("Medians of each phase; their sum need not be the median of all.{}", too_many(drawn)),
        plots: vec![plot],
        key: keys(unnamed),
        title,
        table,
    })
}

fn stacked(title: &str, label: &str, bars: &[Bar], format: fn(f64) -> String) -> (String, Vec<(String, Ink)>) {
    let totals = bars.iter().map(|bar| bar.parts.iter().map(|part| part.value).sum());
    plot::bars(title, &Axis::linear(label, totals, format).of_cost(), bars)
}

/// Draws latency against host events held, and marks the strategies that are not beaten in both. `None` if events held
/// are unknown or there is only one strategy.
pub(super) fn pareto(record: &Record, inks: &Inks) -> Option<Figure> {
    let points: Vec<Candidate<'_>> = record
        .arms
        .iter()
        .filter(|arm| arm.kind != ArmKind::Floor)
        .filter_map(|arm| {
            let held = arm.own.events_held.time_mean.filter(|n| n.is_finite() && *n >= 0.0)?;
            Some(Candidate { name: &arm.name, ink: inks.of(&arm.name), held, latency: group::p50(record, arm)? })
        })
        .collect();
    if points.len() < 2 {
        return None;
    }
    let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    let floor = floor.and_then(|arm| group::p50(record, arm));
    Some(front("Pareto front of strategies", "", &points, floor))
}

/// A strategy by its cost and its held events.
pub(super) struct Candidate<'a> {
    pub(super) name: &'a str,
    pub(super) ink: Ink,
    /// Host events held in the mean.
    pub(super) held: f64,
    /// p50, ns.
    pub(super) latency: f64,
}

/// Draws a plot of candidates with their front.
pub(super) fn front(title: &str, note: &str, points: &[Candidate<'_>], floor: Option<f64>) -> Figure {
    let mut table = Table::new(title, &["strategy", "events held (mean over time)", "p50", "not beaten"]);
    let mut sorted: Vec<&Candidate<'_>> = points.iter().collect();
    sorted.sort_by(|a, b| a.held.total_cmp(&b.held).then(b.latency.total_cmp(&a.latency)));
    let best = pareto::front(&sorted.iter().map(|point| [point.held, point.latency]).collect::<Vec<_>>());
    for (point, &best) in sorted.iter().zip(&best) {
        let yes = if best { "yes" } else { "no" };
        table.rows.push(vec![point.name.to_owned(), ratio(point.held), time(point.latency), yes.to_owned()]);
    }
    let dots: Vec<Curve> = sorted
        .iter()
        .map(|point| Curve {
            name: point.name.to_owned(),
            ink: point.ink,
            points: vec![(point.held, point.latency)],
            marked: true,
        })
        .collect();
    let on_front = sorted.iter().zip(&best).filter(|(_, best)| **best);
    let line: Vec<(f64, f64)> = on_front.map(|(point, _)| (point.held, point.latency)).collect();
    let x = Axis::linear("host events held, mean over time", points.iter().map(|point| point.held), plain).of_cost();
    let y = Axis::log("p50", points.iter().map(|point| point.latency).chain(floor), duration).of_cost();
    let (plot, unnamed) = plot::scatter(title, &x, &y, &dots, &line, floor);
    Figure {
        title: title.to_owned(),
        note: format!("{note} The line joins those that none beats in both."),
        plots: vec![plot],
        key: unnamed.into_iter().map(|index| Key::dot(dots[index].ink, dots[index].name.as_str())).collect(),
        table,
    }
}
