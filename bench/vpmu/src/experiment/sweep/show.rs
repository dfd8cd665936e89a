//! A sweep as it is shown: its Pareto fronts, also as files.

use std::path::Path;

use super::pareto::{Front, Pareto, StrategySummary};
use super::store;
use crate::terminal::console::indented;
use results::error::Error;
use results::paired::{Ratio, Statistic};
use results::table::layout::{dash, ratio, time};
use results::table::ranking::{self, Contender};
use results::table::{Report, Table};
use results::write::replace;

const LEGEND: [&str; 2] = [
    "latency: NMI handler (rotation, where the guest only counts; of a trace the host's work per PMI); held: host events of a vCPU, over time; creates: per NMI (rotation)",
    "front: ● on the Pareto front of latency and events held",
];
const NO_LATENCY: &str =
    "latency –: with some seed no handler was timed: no period passed, or the guest livelocks; on no front";
const DOUBTFUL: &str =
    "*: lost NMIs or overflows, failed opens, or a guest ended by the hard limit; sweep.jsonl has the counts";

fn columns(pareto: &Pareto) -> [String; 8] {
    let latency = if pareto.by == Statistic::P50 { "latency p50" } else { "latency mean" };
    ["strategy", latency, "range", "× floor", "held mean", "held max", "creates", "front"].map(str::to_owned)
}

fn cells(row: &StrategySummary) -> [String; 8] {
    let star = if row.doubtful > 0 { "*" } else { "" };
    [
        format!("{}{star}", row.strategy),
        row.latency_ns.map_or_else(dash, time),
        match row.latency_range_ns {
            Some([low, high]) if low < high => format!("{} … {}", time(low), time(high)),
            _ => dash(),
        },
        row.x_floor.map_or_else(dash, ratio),
        ratio(row.held_mean),
        row.held_max.to_string(),
        ratio(row.creates),
        match row.front {
            Front::LatencyAndHeld => "●".to_owned(),
            Front::Beaten => String::new(),
            Front::Unknown => dash(),
        },
    ]
}

/// Describes the order of a scenario's strategies that have a latency and no doubt.
fn fastest(rows: &[StrategySummary], by: Statistic) -> Option<String> {
    let contender = |row: &StrategySummary| {
        let over_floor = row.x_floor.filter(|_| by == Statistic::P50).map(|over| Ratio::of_means(over, row.seeds));
        Some(Contender { name: row.strategy.clone(), cost: row.latency_ns.filter(|_| row.doubtful == 0)?, over_floor })
    };
    let found: Vec<Contender> = rows.iter().filter_map(contender).collect();
    let seeds = rows.iter().map(|row| row.seeds).min().unwrap_or(0);
    let against = |one: &Contender, other: &Contender| Some(Ratio::of_means(one.cost / other.cost, seeds));
    ranking::sentence(&found, &against, (" (simulated)", "seed"))
}

/// Returns the comparison as it is shown.
pub fn report(pareto: &Pareto) -> Report {
    let mut report = Report::new("vpmu sweep");
    for scenario in &pareto.scenarios {
        let mut table = Table::new(columns(pareto));
        scenario.rows.iter().for_each(|row| table.add_row(cells(row)));
        report.heading(scenario.name.clone());
        report.table(table);
        report.notes(fastest(&scenario.rows, pareto.by));
        report.gap();
    }
    report.notes(LEGEND);
    let rows = || pareto.scenarios.iter().flat_map(|scenario| &scenario.rows);
    if rows().any(|row| row.latency_ns.is_none()) {
        report.note(NO_LATENCY);
    }
    if rows().any(|row| row.doubtful > 0) {
        report.note(DOUBTFUL);
    }
    report
}

/// The table of the fronts as Markdown, beside [`store::FRONT`].
pub const MARKDOWN: &str = "pareto.md";

/// Writes pareto.json and pareto.md; nothing, and false, if no point is done.
///
/// # Errors
/// Exit 2, with the file system's reason.
pub fn save(dir: &Path, pareto: &Pareto) -> Result<bool, Error> {
    if pareto.scenarios.iter().all(|scenario| scenario.rows.is_empty()) {
        return Ok(false);
    }
    for (name, text) in [(store::FRONT, indented(pareto)?), (MARKDOWN, report(pareto).markdown())] {
        let path = dir.join(name);
        replace(&path, text.as_bytes()).map_err(|error| {
            let what = format!("cannot write {}", path.display());
            Error::output(what, &error, "all points are kept; run the same command again once there is room")
        })?;
    }
    Ok(true)
}
