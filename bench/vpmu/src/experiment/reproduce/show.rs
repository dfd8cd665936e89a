//! The reproduction as a report.

use std::collections::BTreeSet;

use results::error::Exit;
use results::paired::Level;
use results::published::{Fitted, Here, Measured, Number, Origin, Reproduction, Row};
use results::stats::interval::Interval;
use results::table::layout::{self, dash, level, signed};
use results::table::{Report, Table};
use results::verdict::Judged;

/// A prediction is good up to this share of the published number, and far off beyond the other.
const WITHIN: f64 = Judged::WITHIN;
const FAR: f64 = 0.3;
/// Unit of a number that is a percentage itself.
const PERCENT: &str = "percent";

fn value(row: &Row, value: f64) -> String {
    match row.number {
        Number::Change => format!("{value:.2} %"),
        Number::Ratio if value < 100.0 => format!("{value:.2} ×"),
        Number::Ratio => format!("{value:.0} ×"),
        Number::Before | Number::After if row.unit == PERCENT => format!("{value:.2} %"),
        Number::Before | Number::After if row.unit == "s" => format!("{value:.3} s"),
        Number::Before | Number::After => format!("{value:.0} {}", row.unit),
    }
}

fn error(row: &Row) -> String {
    match (row.error, row.number) {
        (None, _) => dash(),
        (Some(error), Number::Before | Number::After) if row.unit == PERCENT => format!("{} points", signed(error, 2)),
        (Some(error), Number::Change) => format!("{} points", signed(error, 2)),
        (Some(error), _) => format!("{} %", signed(error, 1)),
    }
}

fn origin(row: &Row) -> String {
    match &row.origin {
        Origin::Fitted(constants) => format!("fitted ({})", constants.join(", ")),
        Origin::OfFitted => "of fitted".to_owned(),
        Origin::Transferred(from) => format!("transferred ({from})"),
        Origin::Predicted => "predicted".to_owned(),
    }
}

/// Returns whether some figure has a measured counterpart; without one there is no column of them.
fn has_measured(reproduction: &Reproduction) -> bool {
    reproduction.rows.iter().any(|row| row.measured.is_some())
}

fn columns(reproduction: &Reproduction) -> Vec<&'static str> {
    let mut columns = vec!["figure", "number", "published"];
    if reproduction.here.is_some() {
        columns.extend(["measured", "to published", "predicted", "to predicted"]);
    } else {
        columns.extend(["simulated", "error", "origin"]);
        columns.extend(has_measured(reproduction).then_some("measured"));
    }
    columns
}

/// Formats the numbers of a range.
fn range(row: &Row, numbers: &[f64]) -> String {
    let shown: Vec<String> = numbers.iter().map(|&number| short(row, number)).collect();
    if shown.is_empty() { dash() } else { shown.join(" to ") }
}

/// Names a figure, short in a table of a run here: its other columns are wide.
fn name(row: &Row, here: bool) -> String {
    let short = row.figure.strip_prefix("vpmu-reuse.").filter(|_| here);
    short.map_or_else(|| row.figure.clone(), |short| short.replace("watchdog-", ""))
}

/// Returns the cells of a run here.
fn cells_here(row: &Row) -> Vec<String> {
    let measured = row.measured.as_ref();
    let verdict = |one: &Option<Judged>| {
        let by = |by: f64| format!("{} %", signed(100.0 * by, 1));
        one.as_ref().map_or_else(dash, |one| one.words(&one.by.map_or_else(String::new, by)))
    };
    let with_interval = |one: &Measured| {
        let to_ns = if row.unit == "s" { 1e9 } else { 1.0 };
        let scaled = |Interval { low, high }| Interval { low: low * to_ns, high: high * to_ns };
        match one.interval.filter(|interval| interval.low < interval.high) {
            Some(interval) if ["s", "ns"].contains(&row.unit.as_str()) => {
                level(&Level { ns: one.value * to_ns, interval: Some(scaled(interval)), rounds: 0, constant: false })
            }
            Some(Interval { low, high }) => {
                format!("{} [{}, {}]", short(row, one.value), layout::ratio(low), layout::ratio(high))
            }
            None => short(row, one.value),
        }
    };
    vec![
        name(row, true),
        row.number.key().to_owned(),
        row.published.map_or_else(dash, |published| short(row, published)),
        measured.map_or_else(dash, with_interval),
        verdict(&row.against_published),
        range(row, &row.predicted),
        verdict(&row.against_predicted),
    ]
}

fn cells(row: &Row, with_measured: bool) -> Vec<String> {
    let published = row.published.map_or_else(dash, |published| value(row, published));
    let simulated = row.simulated.map_or_else(dash, |simulated| value(row, simulated));
    let range = match row.predicted[..] {
        [low, high] if short(row, low) != short(row, high) => format!(" ({})", range(row, &row.predicted)),
        _ => String::new(),
    };
    let mut cells = vec![name(row, false), row.number.key().to_owned(), published, simulated + &range];
    cells.extend([error(row), origin(row)]);
    let measured = |one: &Measured| {
        let stand_in = if one.stand_in { ", a stand-in" } else { "" };
        format!("{} ({}{stand_in}, {})", value(row, one.value), one.backend, one.host)
    };
    cells.extend(with_measured.then(|| row.measured.as_ref().map_or_else(dash, measured)));
    cells
}

/// Formats a number of a run here, in three digits.
fn short(row: &Row, number: f64) -> String {
    match (row.number, row.unit.as_str()) {
        (Number::Ratio, _) => format!("{} ×", layout::ratio(number)),
        (Number::Before | Number::After, "ns") => layout::time(number),
        (Number::Before | Number::After, "s") => layout::time(number * 1e9),
        _ => value(row, number),
    }
}

/// Describes a run on this host: the host, and why numbers cannot be compared.
fn of_run(reproduction: &Reproduction, here: &Here, report: &mut Report) {
    let judged = reproduction.rows.iter().flat_map(|row| [&row.against_published, &row.against_predicted]).flatten();
    let reason = |one: &Judged| Some(format!("{}: {}", one.words(""), one.why.as_ref()?));
    let reasons: BTreeSet<String> = judged.filter_map(reason).collect();
    report.heading("The host and the run:");
    report.notes(here.notes.iter().cloned().chain(reasons));
    report.note(
        "before, after: without what was published, and with it. on, off: the host's NMI watchdog, or a stand-in for either: cheap and \
         expensive to create. to published, to predicted: by how much of that number the measured one is more; of changes what is left is \
         judged. They agree within 10 %. Predicted before measured, by a model of this host that no strategy's latency was fitted to. \
         Intervals are of 95 %.",
    );
    let exit = if here.whole { Exit::Done } else { Exit::Inconclusive };
    report.verdict = Some((exit, here.conclusion.clone()));
}

/// Descriptions of the figures of these rows, a line each.
fn figures<'a>(rows: impl Iterator<Item = &'a Row>, with_model: bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut last = "";
    for row in rows {
        if row.figure != last {
            let model = if with_model { format!(" (model {})", row.model) } else { String::new() };
            lines.push(format!("{}: {}{model}", name(row, !with_model), row.what));
            last = &row.figure;
        }
    }
    lines
}

/// Returns how far the simulated number is from the published one, as a share.
fn off(row: &Row) -> f64 {
    let judged = |value| row.number.judged(value);
    let share =
        row.simulated.zip(row.published).map(|(ours, published)| (judged(ours) / judged(published) - 1.0).abs());
    share.unwrap_or(0.0)
}

/// Says what was predicted and how well, and what the models do not explain.
fn findings(reproduction: &Reproduction) -> Vec<String> {
    let mut predicted: Vec<&Row> =
        reproduction.rows.iter().filter(|row| row.origin == Origin::Predicted && row.published.is_some()).collect();
    predicted.sort_by(|a, b| off(b).total_cmp(&off(a)));
    let within = predicted.iter().filter(|row| off(row) <= WITHIN).count();
    let far = predicted.iter().take_while(|row| off(row) > FAR);
    let by = |row: &Row| match (row.number, row.simulated, row.published) {
        (Number::Change, Some(ours), Some(published)) => {
            let [ours, published] = [ours, published].map(|value| 100.0 * row.number.judged(value));
            format!("{ours:.2} % left, published {published:.2} %")
        }
        _ => error(row),
    };
    let far: Vec<String> = far.map(|row| format!("{} {} ({})", row.figure, row.number.key(), by(row))).collect();
    let far = if far.is_empty() { String::new() } else { format!("; far off: {}", far.join(", ")) };
    let mut lines = vec![format!("Of {} predicted numbers {within} are within 10 %{far}.", predicted.len())];
    for row in &reproduction.rows {
        if let Some(why) = &row.not_explained {
            let line = format!("Not explained, {}: {why}", row.figure.trim_end_matches(".filter"));
            lines.extend((!lines.contains(&line)).then_some(line));
        }
    }
    lines
}

/// Lists rows that are no evidence, a line a figure.
fn folded<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for row in rows {
        let simulated = row.simulated.map_or_else(dash, |simulated| short(row, simulated));
        let text = format!("{} {simulated}, {}", row.number.key(), origin(row));
        match lines.last_mut() {
            Some((figure, line)) if *figure == row.figure => line.extend(["; ", &text]),
            _ => lines.push((&row.figure, text)),
        }
    }
    lines.into_iter().map(|(figure, line)| format!("{figure}: {line}")).collect()
}

/// Returns all rows, after what they say and followed by a description of the figures. With `fold` those that something was fitted
/// to, and of which nothing was measured, are a line a figure.
pub fn report(reproduction: &Reproduction, fold: bool) -> Report {
    let here = reproduction.here.as_ref();
    let is_shown = |row: &&Row| !fold || row.origin == Origin::Predicted || row.measured.is_some();
    let mut rows: Vec<&Row> = reproduction.rows.iter().filter(is_shown).collect();
    if fold {
        rows.sort_by(|a, b| off(b).total_cmp(&off(a)));
    }
    let table = Table::new(columns(reproduction)).keys(2);
    let mut table = if here.is_some() { table } else { table.left(5).left(6) };
    for row in &rows {
        table.add_row(if here.is_some() { cells_here(row) } else { cells(row, has_measured(reproduction)) });
    }
    let mut report = Report::new("vpmu reproduce");
    if here.is_none() {
        report.notes(findings(reproduction));
        report.gap();
    }
    report.table(table);
    report.gap();
    report.notes(figures(reproduction.rows.iter().filter(is_shown), here.is_none()));
    if let Some(here) = here {
        report.gap();
        of_run(reproduction, here, &mut report);
        return report;
    }
    if fold {
        report.gap();
        report.heading("Fitted, or made of fitted numbers, so no evidence:");
        report.notes(folded(reproduction.rows.iter().filter(|row| !is_shown(row))));
    } else if !reproduction.fitted.is_empty() {
        report.gap();
        report.heading("Constants fitted for perf-stat-setup:");
        let constant = |one: &Fitted| format!("{}: {:.3} {} (to {})", one.constant, one.value, one.unit, one.to);
        report.notes(reproduction.fitted.iter().map(constant));
    }
    report.gap();
    report.note(
        "before, after: without what was published, and with it. Of fitted: made of numbers of which one was fitted. Transferred: the \
         simulation of another figure, which was fitted. Predicted: nothing of it was used in fitting. Error: the simulated number less \
         the published one, as a share of it or in points.",
    );
    report.note(format!(
        "Simulated with seed {}. Constants and their sources: docs/simulator.md, docs/stat-setup.md{}.",
        reproduction.seed,
        if fold { "; --markdown and --json have every row" } else { "" }
    ));
    report
}
