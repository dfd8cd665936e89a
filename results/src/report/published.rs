//! Published figures beside simulated and measured ones.

use std::collections::BTreeMap;

use super::axis::Axis;
use super::figure::{Figure, Key, Table, dash};
use super::group::is_simulated;
use super::plot::{self, Dots, Shape};
use crate::document::{Document, NMI_LATENCY, Record};
use crate::error::Error;
use crate::published::{Number, Origin, Reproduction, Row};
use crate::read;
use crate::table::layout::{ratio, time};

/// Most documents that are looked through for measured counterparts: the newest of each workload and backend.
const DOCUMENTS: usize = 32;

/// Inks of what was simulated and what was measured.
const SIMULATED: plot::Ink = 0;
const MEASURED: plot::Ink = 1;

/// The documents that may hold measured counterparts of published figures, the newest first.
///
/// # Errors
/// Exit 2, if a document is no longer what it was.
pub fn documents(records: &[Record]) -> Result<Vec<Document>, Error> {
    let mut newest: BTreeMap<(Option<String>, Option<String>), &Record> = BTreeMap::new();
    for record in records.iter().filter(|record| record.experiment == NMI_LATENCY && !is_simulated(record)) {
        let kept = newest.entry((record.parameter("workload"), record.parameter("backend"))).or_insert(record);
        if record.started_unix > kept.started_unix {
            *kept = record;
        }
    }
    let mut newest: Vec<&Record> = newest.into_values().collect();
    newest.sort_by_key(|record| std::cmp::Reverse(record.started_unix));
    newest.iter().take(DOCUMENTS).map(|record| read::document(&record.path)).collect()
}

fn value(row: &Row, value: f64) -> String {
    match row.number {
        Number::Change => format!("{value:.1} %"),
        Number::Ratio => format!("{} ×", ratio(value)),
        Number::Before | Number::After if row.unit == "ns" => time(value),
        Number::Before | Number::After if row.unit == "s" => time(value * 1e9),
        Number::Before | Number::After => format!("{value:.0} {}", row.unit),
    }
}

/// The published figures of `results/published.toml` that a simulator or a measurement answers.
pub(super) fn figure(found: &Reproduction) -> Figure {
    let (rows, table) = of(found);
    draw(&rows, table, found.seed)
}

/// Rows of the plot, ours over published, and the table.
fn of(found: &Reproduction) -> (Vec<Dots>, Table) {
    let mut table = Table::new(
        "Published figures and ours",
        &["figure", "number", "published", "simulated", "is", "measured", "measured with", "what"],
    );
    let mut rows = Vec::new();
    for row in &found.rows {
        let origin = match &row.origin {
            Origin::Fitted(constants) => format!("fitted: {}", constants.join(", ")),
            Origin::OfFitted => "of fitted".to_owned(),
            Origin::Transferred(from) => format!("transferred from {from}"),
            Origin::Predicted => "predicted".to_owned(),
        };
        let measured = row.measured.as_ref();
        let with = measured.map_or_else(
            || "not measured".to_owned(),
            |m| {
                let stand_in = if m.stand_in { ", a stand-in" } else { "" };
                format!("{}{stand_in}; {}", m.backend, m.host)
            },
        );
        table.rows.push(vec![
            row.figure.clone(),
            row.number.key().to_owned(),
            value(row, row.published),
            row.simulated.map_or_else(dash, |v| value(row, v)),
            format!("{origin} (model {})", row.model),
            measured.map_or_else(dash, |m| value(row, m.value)),
            with,
            row.what.clone(),
        ]);
        let over = |v: f64| Some(v / row.published).filter(|share| share.is_finite() && *share > 0.0);
        let simulated = row.simulated.and_then(over).map(|share| (SIMULATED, Shape::Circle, share));
        let measured = measured.and_then(|m| over(m.value)).map(|share| (MEASURED, Shape::Cross, share));
        let short = match row.origin {
            Origin::Predicted => "predicted",
            Origin::Transferred(_) => "transferred",
            Origin::Fitted(_) | Origin::OfFitted => "fitted",
        };
        rows.push(Dots {
            name: format!("{}, {} ({short})", row.figure, row.number.key()),
            dots: simulated.into_iter().chain(measured).collect(),
        });
    }
    (rows, table)
}

fn draw(rows: &[Dots], table: Table, seed: u64) -> Figure {
    let values = rows.iter().flat_map(|row| row.dots.iter().map(|(_, _, share)| *share)).chain([0.5, 2.0]);
    let x = Axis::log("ours ÷ published", values, ratio);
    Figure {
        title: "Ours over published".to_owned(),
        note: format!(
            "1 is agreement. Simulated with seed {seed}; “fitted” rows were used to choose the model's constants, so only \
             “predicted” ones are evidence. Measured figures come from the newest result of that workload among those given, on \
             the host and with the backend in the table: a stand-in's figures are not the published host's."
        ),
        svg: plot::dots("Published figures: ours over published", &x, rows, 1.0),
        key: vec![Key::dot(SIMULATED, Shape::Circle, "simulated"), Key::dot(MEASURED, Shape::Cross, "measured")],
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn fitted_and_predicted_are_told_apart_and_a_stand_in_is_called_one() {
        let figure = figure(&fixture::reproduction());
        let rows = &figure.table.rows;
        assert!(rows[0][4].starts_with("of fitted") && rows[0][6] == "cpu-clock, a stand-in; development host");
        assert!(rows[1][4].starts_with("predicted") && rows[1][6] == "not measured", "{rows:?}");
        assert!(rows[2][4].starts_with("fitted: cost.open-more"), "{rows:?}");
        assert!(figure.svg.contains("a.mean, ratio (fitted)") && figure.svg.contains("b.mean, ratio (predicted)"));
        assert!(figure.note.contains("seed 7"));
    }
}
