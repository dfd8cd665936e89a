//! The plots of a page, each made from the table below it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::group::{shown, title};
use crate::compare::group_key;
use crate::document::{Record, arm_names};
use crate::error::Error;
use crate::metric;
use crate::paired;
use crate::plot::{self, Axis, Plot};
use crate::table::layout::value;
use crate::table::{Cell, Table};

/// Most arms in one plot; its table has all.
const ARMS: usize = 12;
/// Most results of a line over time, the newest.
const RESULTS: usize = 100;
/// Most rounds of a line over rounds.
const POINTS: usize = 400;
/// Points of a percentile curve for each halving of the rest, as in HdrHistogram's own tools.
const PER_HALF: u32 = 5;
/// Quantiles of the table of percentiles.
const QUANTILES: [f64; 8] = [0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

/// A plot with its table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    /// Note on the subject, the source, and what was left out or thinned.
    pub(super) note: String,
    pub(super) plot: Plot,
    pub(super) table: Option<Table>,
}

/// Returns the sentence of a plot that does not have every arm.
fn too_many(arms: usize) -> String {
    if arms > ARMS { format!(" {ARMS} of {arms} arms are drawn; the table has all.") } else { String::new() }
}

/// Draws the p50 of every round that counts, by arm; `None` if no arm has two of them.
pub(super) fn rounds(record: &Record) -> Option<Figure> {
    let key = record.metric()?;
    let title = format!("{} over rounds", metric::name(key));
    let (mut table, mut most) = (Table::new(["arm", paired::heading(key), "rounds"]), 0);
    for arm in &record.arms {
        let Some(level) = paired::level(arm, key).filter(|level| level.rounds > 1) else { continue };
        let points: Vec<(f64, f64)> =
            (1..).map(f64::from).zip(paired::counting(arm, key).map(|(_, value)| value)).collect();
        most = most.max(points.len());
        let points = points.iter().copied().step_by(points.len().div_ceil(POINTS).max(1)).collect();
        table.add_row([
            arm.name.as_str().into(),
            Cell { points, ..Cell::level(key, Some(&level)) },
            level.rounds.to_string().into(),
        ]);
    }
    let every = most.div_ceil(POINTS);
    let thinned = if every > 1 { format!(" One round of {every} is drawn.") } else { String::new() };
    let note = format!("p50 of each round that counts, in order of time.{thinned}{}", too_many(table.rows.len()));
    let numbers: Vec<String> = (1..=most).map(|round| round.to_string()).collect();
    let axis = |_| Axis::named("round", &numbers);
    let plot = plot::lines(&title, &table, (0, axis), (1, "p50", plot::ticks(key)), ARMS);
    Some(Figure { plot: plot?, title, note, table: Some(table) })
}

/// Draws the percentile curves of a result; `None` if it has no histogram.
///
/// # Errors
/// Exit 2 for a damaged histogram.
pub(super) fn percentiles(record: &Record) -> Result<Option<Figure>, Error> {
    let Some(key) = record.metric() else { return Ok(None) };
    let title = format!("Percentiles of {}", metric::name(key));
    let head = ["arm", "values"].map(str::to_owned).into_iter();
    let mut table = Table::new(head.chain(QUANTILES.map(|share| format!("{} %", 100.0 * share))));
    for arm in &record.arms {
        let Some(found) = arm.metrics.get(key) else { continue };
        let histogram = found.decode().map_err(|why| {
            let file = record.path.display();
            Error::usage(format!("cannot use {file}"), format!("{} {key}: {why}", arm.name), "restore the file")
        })?;
        let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) else { continue };
        let values = Cell { points: curve(&histogram), ..histogram.len().to_string().into() };
        let at = |share| value(key, histogram.value_at_quantile(share).clamp(histogram.min(), histogram.max()) as f64);
        table.add_row([arm.name.as_str().into(), values].into_iter().chain(QUANTILES.map(at).map(Cell::from)));
    }
    let note = format!(
        "All samples of all rounds. Each further nine takes the same room, as in HdrHistogram's plots; both axes are logarithmic.{}",
        too_many(table.rows.len())
    );
    let label = format!("{title}, by arm");
    let plot = plot::lines(&label, &table, (0, Axis::percentile), (1, "latency", plot::ticks(key)), ARMS);
    Ok(plot.map(|plot| Figure { title, note, plot, table: Some(table) }))
}

/// Returns a histogram's curve over 1 / (1 − p), its largest value at the number of values.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let largest = (histogram.len() as f64).max(1.0);
    let step = |step: hdrhistogram::iterators::IterationValue<u64>| {
        let left = 1.0 - step.quantile_iterated_to();
        let x = if left > 0.0 { (1.0 / left).min(largest) } else { largest };
        (x, step.value_iterated_to().min(histogram.max()) as f64)
    };
    let mut points: Vec<(f64, f64)> = histogram.iter_quantiles(PER_HALF).map(step).collect();
    points.dedup();
    points
}

/// Draws the p50 of each arm by the places of a parameter, of each the result that stands for it; `None` if no arm has a figure.
fn by(parameter: &str, about: &str, places: &[(String, &Record)]) -> Option<Figure> {
    let records = || places.iter().map(|(_, record)| *record);
    let what = records().find_map(Record::metric)?;
    let title = format!("{} by {parameter}", metric::name(what));
    let head = ["arm", parameter, paired::heading(what), "× floor [95 %]", "p99", "lost"];
    let mut table = Table::new(head).keys(2).cut();
    let names = arm_names(records());
    for name in &names {
        // The newest definition of a name is the one drawn.
        let newest = records().filter(|record| record.arm(name).is_some()).max_by_key(|record| record.started_unix)?;
        let alike = (1..).zip(places).filter(|(_, (_, record))| record.defines_alike(newest, name));
        for (place, (label, record)) in alike {
            let Some(arm) = record.arm(name) else { continue };
            let Some(level) = paired::level(arm, what) else { continue };
            let floor = record.base().filter(|base| base.name != *name);
            let over = floor.and_then(|base| paired::over_runs(record, arm, base, what));
            let p99 = arm.metrics.get(what).and_then(|summary| summary.p99).map(|p99| p99 as f64);
            table.add_row([
                (*name).into(),
                Cell::of(Some(f64::from(place)), |_| label.clone()),
                Cell::level(what, Some(&level)),
                Cell::ratio(over.as_ref()),
                Cell::of(p99, |p99| value(what, p99)),
                Cell::of(arm.own.lost.map(|lost| lost as f64), |lost| lost.to_string()),
            ]);
        }
    }
    // Of a time the day.
    let labels: Vec<String> = places.iter().map(|(label, _)| label.split(' ').take(1).collect()).collect();
    let axis = |_| Axis::named(parameter, &labels);
    let plot = plot::lines(&title, &table, (1, axis), (2, "p50", plot::ticks(what)), ARMS);
    Some(Figure { title, note: format!("{about}{}", too_many(names.len())), plot: plot?, table: Some(table) })
}

/// Draws the p50 of each arm over the newest results of the group; `None` for a single result.
pub(super) fn over_time(group: &[&Record]) -> Option<Figure> {
    let count = group.len();
    let label = |number: usize, record: &Record| match record.started_unix {
        0 => (number + 1).to_string(),
        unix => date(unix)[2..].to_owned(),
    };
    let newest = group.iter().enumerate().skip(count.saturating_sub(RESULTS));
    let places: Vec<(String, &Record)> = newest.map(|(number, record)| (label(number, record), *record)).collect();
    let about = if count > RESULTS { format!("The newest {RESULTS} of {count} results.") } else { String::new() };
    by("result, in order of time", &about, &places).filter(|_| count > 1)
}

/// Parameters, and how a plot names them.
const PARAMETERS: [(&str, &str); 3] =
    [("vcpus", "number of vCPUs"), ("events", "number of events"), ("cpus", "number of CPUs")];
/// Parameters of a set-up that follow from the number of events.
const FOLLOWS: [&str; 4] = ["events", "events_requested", "groups", "workload"];

/// Draws a plot for each kind of result that there is with several values of a parameter; at most `most`.
pub(super) fn by_parameter(records: &[Record], most: usize) -> Vec<Figure> {
    let of = |(parameter, name): (&'static str, &'static str)| {
        let without = if parameter == "events" { &FOLLOWS[..] } else { &[parameter] };
        let mut families = BTreeMap::<_, BTreeMap<u64, Vec<&Record>>>::new();
        // Elsewhere other events are another workload.
        for record in records.iter().filter(|record| parameter != "events" || record.experiment == "stat-setup") {
            let Some(value) = record.size(parameter) else { continue };
            let of = (&record.host.class, group_key(record, without));
            families.entry(of).or_default().entry(value).or_default().push(record);
        }
        let figure = |family: BTreeMap<u64, Vec<&Record>>| {
            let places: Vec<(String, &Record)> =
                family.into_iter().map(|(value, records)| (value.to_string(), shown(&records))).collect();
            let last = places.last()?.1;
            let about = format!(
                "{}; {}. Of each value the newest complete result; hosts may differ in more than it.",
                title(last),
                last.host.class
            );
            by(name, &about, &places)
        };
        families.into_values().filter(|family| family.len() > 1).filter_map(figure).collect::<Vec<_>>()
    };
    PARAMETERS.into_iter().flat_map(of).take(most).collect()
}

/// Formats a date as 2026-01-31 23:59, UTC; simulations have no date.
pub(super) fn date(unix: u64) -> String {
    if unix == 0 {
        return "no date".to_owned();
    }
    crate::write::utc(unix).replace('T', " ").chars().take(16).collect()
}
