//! The plots of a page, each made from the table below it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::group::{self, Group, key, title};
use crate::document::{Record, Status};
use crate::error::Error;
use crate::metric;
use crate::paired::{self, Statistic};
use crate::plot::{self, Axis, DOTS};
use crate::stats::median;
use crate::table::layout::{plural, ratio, value};
use crate::table::{Cell, Table};

/// Most arms in one plot; its table has all.
const ARMS: usize = 12;
/// Most points of a line over time; neighbours beyond share one.
const POINTS: usize = 150;
/// Most places of a line for each of which an interval is computed.
const INTERVALS: usize = 20;
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
    /// Its SVG.
    pub(super) plot: String,
    pub(super) table: Option<Table>,
}

impl Figure {
    fn new(title: String, note: String, plot: Option<String>, table: Table) -> Option<Self> {
        Some(Self { title, note, plot: plot?, table: Some(table) })
    }
}

/// Returns the text with a capital letter.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Returns the sentence of a plot that does not have every arm.
fn too_many(arms: usize) -> String {
    if arms > ARMS { format!(" {ARMS} of {arms} arms are drawn; the table has all.") } else { String::new() }
}

/// Draws the p50 of every round that counts, by arm, in order of time; `None` if no arm has two of them.
pub(super) fn rounds(record: &Record) -> Option<Figure> {
    let key = record.metric()?;
    let title = format!("{} over rounds", capital(&metric::name(key)));
    let mut table = Table::new(["arm", "p50 [95 %]", "rounds"]).caption(format!("{title}: p50 of each"));
    let mut most = 0;
    for arm in &record.arms {
        let values: Vec<(f64, f64)> =
            paired::counting(arm, key, Statistic::P50).map(|(round, value)| (round.index as f64, value)).collect();
        let Some(found) = paired::level(arm, key, Statistic::P50).filter(|found| found.rounds > 1) else { continue };
        most = most.max(values.len());
        let count = values.len().to_string();
        table.add_row([arm.name.as_str().into(), Cell::level(key, Some(&found)).with_points(values), count.into()]);
    }
    let drawn = if most > DOTS { format!(" One of {} is drawn.", most.div_ceil(DOTS)) } else { String::new() };
    let note = format!(
        "A dot is a round, the first uppermost; the box has the middle half of them, the bar is p50, the median of {}.{drawn}",
        plural(most, "round"),
    );
    Figure::new(title.clone(), note, plot::strips(&title, ("p50 of a round", plot::ticks(key)), &table, 1), table)
}

/// Draws the percentile curves of a result; `None` if it has no histogram.
///
/// # Errors
/// Exit 2 for a damaged histogram.
pub(super) fn percentiles(record: &Record) -> Result<Option<Figure>, Error> {
    let Some(key) = record.metric() else { return Ok(None) };
    let title = format!("Percentiles of {}", metric::name(key));
    let head = ["arm", "values"].map(str::to_owned).into_iter();
    let mut table = Table::new(head.chain(QUANTILES.map(|share| format!("{} %", 100.0 * share)))).caption(&title);
    for arm in &record.arms {
        let Some(found) = arm.metrics.get(key) else { continue };
        let histogram = found.decode().map_err(|why| {
            let file = record.path.display();
            Error::usage(format!("cannot use {file}"), format!("{} {key}: {why}", arm.name), "restore the file")
        })?;
        let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) else { continue };
        let values = Cell::from(histogram.len().to_string()).with_points(curve(&histogram));
        let at = |share| value(key, histogram.value_at_quantile(share).clamp(histogram.min(), histogram.max()) as f64);
        table.add_row([arm.name.as_str().into(), values].into_iter().chain(QUANTILES.map(at).map(Cell::from)));
    }
    let note = format!(
        "All samples of all rounds. Each further nine takes the same room, as in HdrHistogram's plots; both axes are logarithmic.{}",
        too_many(table.rows().len())
    );
    let label = format!("{title}, by arm");
    let plot = plot::lines(&label, &table, (0, Axis::percentile), (1, "latency", plot::ticks(key)), ARMS);
    Ok(Figure::new(title, note, plot, table))
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

/// Results at one place of a parameter, with its name.
type Place<'a> = (String, Vec<&'a Record>);

/// Draws the p50 of each arm by the places of a parameter; `None` if no arm has a figure.
fn by(parameter: &str, about: &str, places: &[Place<'_>]) -> Option<Figure> {
    let records = || places.iter().flat_map(|(_, records)| records);
    let what = records().find_map(|record| record.metric())?;
    let title = format!("{} by {parameter}", capital(&metric::name(what)));
    let head = ["arm", parameter, "p50 [95 %]", "× floor [95 %]", "p99", "lost"];
    let mut table = Table::new(head).caption(&title).keys(2).cut();
    let mut names: Vec<&str> = Vec::new();
    for name in records().flat_map(|record| record.arms.iter().map(|arm| &*arm.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in &names {
        // The newest definition of a name is the one drawn.
        let newest = records().filter(|record| record.arm(name).is_some()).max_by_key(|record| record.started_unix)?;
        for (place, (label, records)) in (1..).zip(places) {
            let same = records.iter().filter(|record| record.defines_alike(newest, name));
            let found: Vec<_> = same.filter_map(|record| Some((record, record.arm(name)?))).collect();
            let p50s: Vec<f64> = found.iter().filter_map(|(_, arm)| paired::p50(arm, what)).collect();
            let Some(middle) = median(&p50s) else { continue };
            let [p50, over] = match found[..] {
                [(record, arm)] if places.len() <= INTERVALS => {
                    let floor = group::base(record).filter(|base| base.name != *name);
                    let over = floor.and_then(|base| paired::over_runs(record, arm, base, what, Statistic::P50));
                    let level = paired::level(arm, what, Statistic::P50);
                    [Cell::level(what, level.as_ref()), Cell::ratio(over.as_ref())]
                }
                _ => [Cell::of(Some(middle), |middle| value(what, middle)), Cell::of(None, ratio)],
            };
            let summaries = || found.iter().filter_map(|(_, arm)| arm.metrics.get(what));
            let p99 = summaries().filter_map(|summary| summary.p99).max().map(|p99| p99 as f64);
            let lost: Option<u64> = found.iter().map(|(_, arm)| arm.own.lost).sum();
            table.add_row([
                (*name).into(),
                Cell::of(Some(f64::from(place)), |_| label.clone()),
                p50,
                over,
                Cell::of(p99, |p99| value(what, p99)),
                Cell::of(lost.map(|lost| lost as f64), |lost| lost.to_string()),
            ]);
        }
    }
    let labels: Vec<String> = places.iter().map(|(label, _)| label.clone()).collect();
    let axis = |_| Axis::named(parameter, &labels);
    let plot = plot::lines(&title, &table, (1, axis), (2, "p50", plot::ticks(what)), ARMS);
    Figure::new(title, format!("{about}{}", too_many(names.len())), plot, table)
}

/// Draws the p50 of each arm over the results of the group; `None` for a single result.
pub(super) fn over_time(group: &Group<'_>) -> Option<Figure> {
    if group.records.len() < 2 {
        return None;
    }
    let every = group.records.len().div_ceil(POINTS);
    let label = |number: usize, record: &Record| match record.started_unix {
        0 => (number + 1).to_string(),
        unix => date(unix)[2..10].to_owned(),
    };
    let runs = group.records.chunks(every).enumerate();
    let places: Vec<Place<'_>> =
        runs.map(|(number, records)| (label(number, records[records.len() / 2]), records.to_vec())).collect();
    let thinned =
        format!("Thinned: each point is the median of {every} neighbours, its p99 in the table the largest of theirs.");
    by("result, in order of time", if every > 1 { &thinned } else { "" }, &places)
}

/// Parameters, and how a plot names them.
const PARAMETERS: [(&str, &str); 4] = [
    ("vcpus", "number of vCPUs"),
    ("events", "number of events"),
    ("cpus", "number of CPUs"),
    (KERNEL, "the host's kernel"),
];
const KERNEL: &str = "kernel";
/// Parameters of a set-up that follow from the number of events. Elsewhere other events are another workload.
const FOLLOWS: [&str; 4] = ["events", "events_requested", "groups", "workload"];

/// Results of one kind by the value of a parameter, in the order of its numbers.
type Family<'a> = BTreeMap<(Vec<u64>, String), Vec<&'a Record>>;

/// Returns the result that stands for those of a value.
fn place(((_, value), mut records): ((Vec<u64>, String), Vec<&Record>)) -> Option<Place<'_>> {
    records.sort_by_key(|record| record.started_unix);
    Some((short(&value), vec![group::newest(&records)?]))
}

/// Draws a plot for each kind of result that there is with several values of a parameter; at most `most`.
pub(super) fn by_parameter(records: &[Record], most: usize) -> Vec<Figure> {
    let of = |(parameter, name): (&str, &'static str)| {
        let mut families: BTreeMap<String, Family<'_>> = BTreeMap::new();
        for record in records {
            let Some((kind, value)) = kind(record, parameter).zip(parameter_of(record, parameter)) else { continue };
            families.entry(kind).or_default().entry((numbers(&value), value)).or_default().push(record);
        }
        let several = families.into_values().filter(|family| family.len() > 1);
        let figure = |family: Family<'_>| {
            let places: Vec<Place<'_>> = family.into_iter().filter_map(place).collect();
            let last = places.last()?.1[0];
            let about = format!(
                "{}; {}. Of each value the newest result that is not of few rounds beside others; hosts may differ in more than it.",
                title(last),
                last.host.class
            );
            by(name, &about, &places)
        };
        several.filter_map(figure).collect::<Vec<_>>()
    };
    PARAMETERS.into_iter().flat_map(of).take(most).collect()
}

fn parameter_of(record: &Record, parameter: &str) -> Option<String> {
    match parameter {
        KERNEL => record.host.kernel.clone().filter(|_| record.status == Status::Complete),
        size => record.size(size).map(|size| size.to_string()),
    }
}

/// Returns what results have in common that differ in this parameter alone.
fn kind(record: &Record, parameter: &str) -> Option<String> {
    match (parameter, record.experiment.as_str()) {
        // One processor: a kernel's effect is not to be a processor's.
        (KERNEL, _) => Some(format!("{}\n{:?}", key(record, &[]), record.host.cpu_signature)),
        ("events", "stat-setup") => Some(key(record, &FOLLOWS)),
        ("events", _) => None,
        _ => Some(key(record, &[parameter])),
    }
}

/// Orders 6.1.0-9 before 6.1.0-10, and 6.9 before 6.12.
fn numbers(value: &str) -> Vec<u64> {
    value.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Shortens a kernel's release to fit below a tick: 6.1.0-50 of 6.1.0-50-cloud-amd64.
fn short(value: &str) -> String {
    let end = value.find(|c: char| !c.is_ascii_digit() && !".-".contains(c)).unwrap_or(value.len());
    let text = value[..end].trim_end_matches(['-', '.']);
    if text.is_empty() { value.chars().take(12).collect() } else { text.to_owned() }
}

/// Formats a date as 2026-01-31 23:59, UTC; simulations have no date.
pub(super) fn date(unix: u64) -> String {
    if unix == 0 {
        return "no date".to_owned();
    }
    crate::write::utc(unix).replace('T', " ").chars().take(16).collect()
}
