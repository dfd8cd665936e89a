//! Shows the distribution of latencies, of samples and of rounds, and their changes over time.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::figure::{Figure, Table, dash};
use super::group::{self, Group, measured, thin};
use super::strategies::capital;
use crate::document::{Any, Arm, Record, decode_text};
use crate::error::Error;
use crate::metric;
use crate::paired::{self, Statistic};
use crate::plot::{self, Axis, Curve, Inks, Strip, duration};
use crate::stats::{median, nearest_rank};
use crate::table::layout::{level, plural, time};
use crate::write::time_stamp;

/// Most points of a line over time; neighbours beyond share one.
pub(super) const POINTS: usize = 150;
/// Most arms in one plot; its table has all.
pub(super) const ARMS: usize = 12;
/// Results that lie closer together than this are of one session.
const SESSION_S: u64 = 2 * 86_400;
/// Points of a percentile curve for each halving of the rest, as in HdrHistogram's own tools.
const PER_HALF: u32 = 5;

/// Returns the note for a plot that does not have every arm.
pub(super) fn too_many(arms: usize) -> String {
    if arms > ARMS { format!(" {ARMS} of {arms} arms are drawn; the table has all.") } else { String::new() }
}

/// Draws the percentile curves of a result; `None` if it has no histogram.
pub(super) fn percentiles(record: &Record, inks: &Inks) -> Result<Option<Figure>, Error> {
    let mut curves: Vec<(&Arm<Any>, Histogram<u64>)> = Vec::new();
    let mut what = "";
    for (arm, name, metric) in measured(record) {
        let Some(text) = &metric.histogram else { continue };
        let histogram = decode_text(text).map_err(|why| {
            let file = record.path.display();
            Error::usage(format!("cannot use {file}"), format!("{} {name}: {why}", arm.name), "restore the file")
        })?;
        if !histogram.is_empty() {
            what = name;
            curves.push((arm, histogram));
        }
    }
    if curves.is_empty() {
        return Ok(None);
    }
    let lines: Vec<Curve> = curves
        .iter()
        .take(ARMS)
        .map(|(arm, histogram)| Curve {
            name: arm.name.clone(),
            ink: inks.of(&arm.name),
            points: curve(histogram),
            marked: false,
        })
        .collect();
    let most = curves.iter().map(|(_, histogram)| histogram.len()).max().unwrap_or(1);
    let values = lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y));
    let y = Axis::log("latency", values, duration).of_cost();
    let title = format!("Percentiles of {}", metric::name(what));
    let mut table = Table::new(
        title.clone(),
        &["arm", "0 %", "50 %", "75 %", "90 %", "95 %", "99 %", "99.9 %", "99.99 %", "max", "values"],
    );
    for (arm, histogram) in &curves {
        let at = |q: f64| time(histogram.value_at_quantile(q) as f64);
        let mut row = vec![arm.name.clone(), time(histogram.min() as f64)];
        row.extend([0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999].map(at));
        row.extend([time(histogram.max() as f64), histogram.len().to_string()]);
        table.rows.push(row);
    }
    Ok(Some(Figure {
        note: format!(
            "All samples of all rounds. Each further nine takes the same room, as in HdrHistogram's plots; both \
             axes are logarithmic.{}",
            too_many(curves.len())
        ),
        plot: plot::lines(&format!("{title}, by arm"), &Axis::percentile(most as f64), &y, &lines),
        key: Vec::new(),
        title,
        table,
    }))
}

/// Returns a histogram's curve over 1 / (1 − p), its largest value at the number of values.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let largest = (histogram.len() as f64).max(1.0);
    let mut points: Vec<(f64, f64)> = histogram
        .iter_quantiles(PER_HALF)
        .map(|step| {
            let left = 1.0 - step.quantile_iterated_to();
            let x = if left > 0.0 { (1.0 / left).min(largest) } else { largest };
            (x, step.value_iterated_to().min(histogram.max()) as f64)
        })
        .collect();
    points.dedup();
    points
}

/// An arm's figures in one result.
struct Point {
    begun: f64,
    p50: f64,
    p99: Option<f64>,
}

/// Draws the p50 of each arm over the results of the group; `None` for a single result.
pub(super) fn over_time(group: &Group<'_>, inks: &Inks) -> Option<Figure> {
    let latest = group.latest();
    // Results of one session are numbered: a time axis would have them in one place.
    let first = group.records[0].started_unix;
    let dated = first > 0 && latest.started_unix.saturating_sub(first) > SESSION_S;
    let what = latest.metric()?;
    let mut series: Vec<(&Arm<Any>, Vec<Point>)> = Vec::new();
    // An arm that only older results have is drawn, too.
    for arm in group.records.iter().rev().flat_map(|record| &record.arms) {
        if series.iter().any(|(known, _)| known.name == arm.name) {
            continue;
        }
        // The newest definition of a name is the one drawn.
        let newest = group.records.iter().rev().find(|record| record.arm(&arm.name).is_some());
        let is_same = |record: &&&Record| newest.is_some_and(|newest| record.defines_alike(newest, &arm.name));
        let same = group.records.iter().filter(is_same);
        let points: Vec<Point> = same.filter_map(|record| of_record(record, &arm.name, what)).collect();
        if points.len() > 1 {
            series.push((arm, points));
        }
    }
    let most = series.iter().map(|(_, points)| points.len()).max().filter(|&most| most > 1)?;
    let per_point = most.div_ceil(POINTS);
    let mut table = Table::new("p50 over results", &["arm", "begun (UTC)", "of", "p50", "p99"]);
    let mut lines = Vec::new();
    for (arm, points) in &series {
        let mut line =
            Curve { name: arm.name.clone(), ink: inks.of(&arm.name), points: Vec::new(), marked: most <= 40 };
        for run in thin(points, POINTS) {
            let middle = &run[run.len() / 2];
            let p50 = median(&run.iter().map(|point| point.p50).collect::<Vec<_>>()).unwrap_or_default();
            let p99 = run.iter().filter_map(|point| point.p99).max_by(f64::total_cmp);
            let number = line.points.len() as f64 + 1.0;
            line.points.push((if dated { middle.begun } else { number }, p50));
            let results = run.len().to_string();
            table.rows.push(vec![
                arm.name.clone(),
                date(middle.begun),
                results,
                time(p50),
                p99.map_or_else(dash, time),
            ]);
        }
        lines.push(line);
    }
    lines.truncate(ARMS);
    let all = || lines.iter().flat_map(|line| &line.points);
    let x = if dated {
        Axis::span("begun, UTC", all().map(|(x, _)| *x), short_date).with_few_ticks()
    } else {
        Axis::span("result, in order of time", all().map(|(x, _)| *x), |n| format!("{n:.0}")).whole()
    };
    let y = Axis::log("p50", all().map(|(_, y)| *y), duration).of_cost();
    let title = format!("{} over results", capital(&metric::name(what)));
    let thinned = if per_point > 1 {
        format!(
            " Thinned: each point is the median of {per_point} neighbours, its p99 in the table the largest of theirs."
        )
    } else {
        String::new()
    };
    Some(Figure {
        note: format!("{}{}", thinned.trim_start(), too_many(series.len())),
        plot: plot::lines(&title, &x, &y, &lines),
        key: Vec::new(),
        title,
        table,
    })
}

fn of_record(record: &Record, arm: &str, metric: &str) -> Option<Point> {
    let arm = record.arm(arm)?;
    let p99 = arm.metrics.get(metric)?.p99.map(|ns| ns as f64);
    Some(Point { begun: record.started_unix as f64, p50: paired::p50(arm, metric)?, p99 })
}

/// Formats a date as 2026-01-31 23:59, UTC; simulations have no date.
pub(super) fn date(unix: f64) -> String {
    if unix == 0.0 {
        return "no date".to_owned();
    }
    let stamp = time_stamp(Duration::try_from_secs_f64(unix).unwrap_or_default().as_secs());
    match (stamp.get(..4), stamp.get(4..6), stamp.get(6..8), stamp.get(9..11), stamp.get(11..13)) {
        (Some(year), Some(month), Some(day), Some(hour), Some(minute)) => {
            format!("{year}-{month}-{day} {hour}:{minute}")
        }
        _ => stamp,
    }
}

/// Formats a date as 26-01-31: room is scarce below a plot.
fn short_date(unix: f64) -> String {
    date(unix).chars().skip(2).take(8).collect()
}

/// Most rounds of an arm that are drawn.
const DOTS: usize = 400;

/// Draws the p50 of every round that counts, by arm, in order of time; `None` if no arm has two of them.
pub(super) fn rounds(record: &Record, inks: &Inks) -> Option<Figure> {
    let key = record.metric()?;
    let title = format!("{} over rounds", capital(&metric::name(key)));
    let mut table =
        Table::new(format!("{title}: p50 of each"), &["arm", "rounds", "lowest", "25 %", "p50", "75 %", "highest"]);
    let mut strips = Vec::new();
    let mut most = 0;
    for (arm, ..) in group::measured(record) {
        let values: Vec<f64> = paired::counting(arm, key, Statistic::P50).map(|(_, value)| value).collect();
        let Some(found) = paired::level(arm, key, Statistic::P50).filter(|found| found.rounds > 1) else { continue };
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| nearest_rank(&sorted, q);
        let cell = |value: Option<f64>| value.map_or_else(dash, time);
        table.rows.push(vec![
            arm.name.clone(),
            values.len().to_string(),
            cell(sorted.first().copied()),
            cell(at(0.25)),
            level(&found),
            cell(at(0.75)),
            cell(sorted.last().copied()),
        ]);
        most = most.max(values.len());
        strips.push(Strip {
            name: arm.name.clone(),
            ink: inks.of(&arm.name),
            quartiles: [at(0.25).unwrap_or(found.ns), found.ns, at(0.75).unwrap_or(found.ns)],
            values: values.into_iter().step_by(found.rounds.div_ceil(DOTS)).collect(),
            text: level(&found),
        });
    }
    if strips.is_empty() {
        return None;
    }
    let arms = strips.len();
    strips.truncate(ARMS);
    let drawn = if most > DOTS { format!(" One of {} is drawn.", most.div_ceil(DOTS)) } else { String::new() };
    let x =
        Axis::log("p50 of a round", strips.iter().flat_map(|strip| strip.values.iter().copied()), duration).of_cost();
    Some(Figure {
        note: format!(
            "A dot is a round, the first uppermost; the box has the middle half of them, the bar is p50, the \
             median of {}.{drawn}{}",
            plural(most, "round"),
            too_many(arms)
        ),
        plot: plot::strips(&title, &x, &strips),
        key: Vec::new(),
        title,
        table,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_rises_to_the_largest_value_at_its_own_count() {
        let mut histogram = crate::document::latency_histogram();
        for ns in 1..=1000 {
            histogram.record(ns).unwrap();
        }
        let curve = curve(&histogram);
        assert!(curve.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1), "{curve:?}");
        assert_eq!(curve.last().copied(), Some((1000.0, 1000.0)));
        assert!(curve.iter().any(|&(x, y)| (x - 2.0).abs() < 0.01 && (y - 500.0).abs() < 1.0), "{curve:?}");
    }
}
