//! The reproduction as a report: one table, whose columns are those that a row has something for.

use std::collections::BTreeSet;

use results::error::Exit;
use results::table::layout::{self, dash, signed};
use results::table::{Report, Table};
use sim::model::Origin;

use super::published::{Here, Judged, Reproduction, Row};

/// A prediction is far off beyond this share of the published number.
const FAR: f64 = 0.3;

/// A column: its heading, and what a row has for it.
type Column = (&'static str, fn(&Row) -> Option<String>);

const COLUMNS: [Column; 9] = [
    ("figure", |row| Some(row.figure.clone())),
    ("number", |row| Some(row.number.key().to_owned())),
    ("published", |row| row.published.map(|published| value(row, published))),
    ("simulated", |row| row.simulated.map(|simulated| value(row, simulated))),
    ("error", |row| {
        let points = row.unit.starts_with("percent");
        let error = |by| if points { format!("{} points", signed(by, 2)) } else { format!("{} %", signed(by, 1)) };
        row.error.map(|by| if row.origin == Origin::Predicted { error(by) } else { "fitted".to_owned() })
    }),
    ("measured", |row| {
        let one = row.measured.as_ref()?;
        let interval = one.interval.filter(|interval| interval.low < interval.high);
        let interval = interval.map(|ends| format!(" [{}, {}]", bare(row, ends.low), bare(row, ends.high)));
        Some(value(row, one.value) + &interval.unwrap_or_default())
    }),
    ("to published", |row| row.against_published.as_ref().map(Judged::to_string)),
    ("predicted", range),
    ("to predicted", |row| row.against_predicted.as_ref().map(Judged::to_string)),
];

/// Formats a number without its unit.
fn bare(row: &Row, number: f64) -> String {
    value(row, number).split(' ').next().unwrap_or_default().to_owned()
}

/// Formats a number in the unit of the row.
fn value(row: &Row, value: f64) -> String {
    match row.unit.as_str() {
        "percent" | "percent change" => format!("{value:.2} %"),
        "ratio" if value < 100.0 => format!("{value:.2} ×"),
        "ratio" => format!("{value:.0} ×"),
        "s" => format!("{value:.3} s"),
        "ns" => {
            // All numbers of a row are in one unit.
            let measured = row.measured.as_ref().map(|one| one.value);
            let of = row.published.or(measured).or(row.predicted.first().copied()).unwrap_or(value).max(1.0);
            let (scaled, decimals, unit) = layout::unit(of);
            let shown = value * scaled / of;
            format!("{shown:.*} {unit}", if shown < 1000.0 { decimals + 1 } else { 0 })
        }
        unit => format!("{value:.0} {unit}"),
    }
}

/// Formats the range of predictions, or the one that there is.
fn range(row: &Row) -> Option<String> {
    let (first, last) = (value(row, *row.predicted.first()?), value(row, *row.predicted.last()?));
    Some(if first == last { first } else { format!("{} to {last}", bare(row, row.predicted[0])) })
}

/// Returns how far the simulated number is from the published one, as a share.
fn off(row: &Row) -> f64 {
    let judged = |value| row.number.judged(value);
    let share =
        row.simulated.zip(row.published).map(|(ours, published)| (judged(ours) / judged(published) - 1.0).abs());
    share.unwrap_or(0.0)
}

/// Says how well numbers were predicted, and what the models do not explain.
fn findings(reproduction: &Reproduction) -> Vec<String> {
    let predicted = || reproduction.rows.iter().filter(|row| row.origin == Origin::Predicted);
    let [within, far] = [Judged::WITHIN, FAR].map(|share| predicted().filter(|row| off(row) <= share).count());
    let all = predicted().count();
    let mut lines = vec![format!(
        "Of {all} predicted numbers {within} are within 10 %, and {} are off by more than 30 %: as shares of those published, of a change \
         as shares of what it leaves.",
        all - far
    )];
    for (row, why) in reproduction.rows.iter().filter_map(|row| Some((row, row.not_explained.as_ref()?))) {
        let line = format!("Not explained, {}: {why}", row.figure.trim_end_matches(".filter"));
        lines.extend((!lines.contains(&line)).then_some(line));
    }
    lines
}

/// Returns the rows after what they say, the worst prediction first and what is fitted last, and a description of their figures. What is
/// the simulation of another figure is neither: JSON has it.
pub fn report(reproduction: &Reproduction) -> Report {
    let is_shown = |row: &&Row| !matches!(row.origin, Origin::Transferred(_));
    let mut rows: Vec<&Row> = reproduction.rows.iter().filter(is_shown).collect();
    let mut report = Report::new("vpmu reproduce");
    let mut names: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| !row.what.is_empty()) {
        let model = if row.model.is_empty() { String::new() } else { format!(" (model {})", row.model) };
        names.push(format!("{}: {}{model}", row.figure, row.what));
    }
    names.dedup();
    if reproduction.here.is_none() {
        let place = |row: &Row| if row.origin == Origin::Predicted { -off(row) } else { 1.0 };
        rows.sort_by(|a, b| place(a).total_cmp(&place(b)));
        report.notes(findings(reproduction));
        report.heading(format!("Published beside simulated numbers, seed {}", reproduction.seed));
    }
    let columns: Vec<Column> =
        COLUMNS.into_iter().filter(|(_, cell)| rows.iter().any(|row| cell(row).is_some())).collect();
    let mut table = Table::new(columns.iter().map(|(heading, _)| *heading)).keys(2);
    if let Some(at) = columns.iter().position(|(heading, _)| *heading == "measured") {
        table = table.left(at);
    }
    for row in rows {
        table.add_row(columns.iter().map(|(_, cell)| cell(row).unwrap_or_else(dash)));
    }
    report.table(table);
    report.notes(names);
    let Some(here) = &reproduction.here else {
        report.note(
            "The worst prediction is first. before, after: without what was published, and with it. Error: the simulated number less the published one, as a share of it \
             or in points. fitted: a constant was, to it or to what it follows from, so that it is no evidence; --json has which.",
        );
        report.note("`vpmu show models NAME` has the constants and their sources.");
        return report;
    };
    of_run(reproduction, here, &mut report);
    report
}

/// Describes a run on this host: the host, and why numbers cannot be compared.
fn of_run(reproduction: &Reproduction, here: &Here, report: &mut Report) {
    let judged = reproduction.rows.iter().flat_map(|row| [&row.against_published, &row.against_predicted]).flatten();
    let reason = |one: &Judged| Some(format!("{}: {}", one.word(), one.why.as_ref()?));
    let reasons: BTreeSet<String> = judged.filter_map(reason).collect();
    report.heading("The host and the run:");
    report.notes(here.notes.iter().cloned().chain(reasons));
    report.note(
        "Lines are in the order of figures' names, each of the rounds above: --rounds, or as many as its command has. before, after: \
         without what was published, and with it. watchdog-on, watchdog-off: the host's NMI watchdog, or a stand-in for either: cheap and \
         expensive to create. to published, to predicted: by how much of that number the measured one is more; of changes what is left is \
         judged. They agree within 10 %. Predicted before measured, by a model of this host that no strategy's latency was fitted to. \
         Intervals are of 95 %.",
    );
    let exit = if here.whole { Exit::Done } else { Exit::Inconclusive };
    report.verdict = Some((exit, here.conclusion.clone()));
}
