//! Strategies by two costs: latency, and host events held.

use super::figure::{Figure, Key, Table};
use super::group;
use crate::document::{ArmKind, Record};
use crate::plot::{self, Axis, Curve, Ink, Inks, duration, plain};
use crate::stats::pareto;
use crate::table::layout::{ratio, time};

/// Draws latency against host events held, and marks the strategies that are not beaten in both. `None` if events held
/// are unknown or there is only one strategy.
pub(super) fn of_result(record: &Record, inks: &Inks) -> Option<Figure> {
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
        plot,
        key: unnamed.into_iter().map(|index| Key::dot(dots[index].ink, dots[index].name.as_str())).collect(),
        table,
    }
}
