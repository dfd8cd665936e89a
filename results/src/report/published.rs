//! Published figures beside simulated and measured ones.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figure::{Table, dash};
use super::group::is_simulated;
use crate::document::{Document, NMI_LATENCY, Record};
use crate::error::Error;
use crate::published::{Number, Origin, Reproduction, Row};
use crate::read;
use crate::table::layout::{ratio, time};

/// Most documents that are looked through for measured counterparts: the newest of each workload and backend.
const DOCUMENTS: usize = 32;

/// The published figures beside ours.
#[derive(Debug, Serialize)]
pub(super) struct Published {
    pub(super) note: String,
    /// Rows that nothing was fitted to.
    pub(super) predicted: Table,
    /// Rows with fitted figures in them, which are no evidence.
    pub(super) fitted: Table,
}

/// Returns the documents that may hold measured counterparts of published figures, the newest first. The published
/// figures are those of Intel processors.
///
/// # Errors
/// Exit 2, if a document is no longer what it was.
pub fn documents(records: &[Record]) -> Result<Vec<Document>, Error> {
    let mut newest: BTreeMap<(Option<String>, Option<String>), &Record> = BTreeMap::new();
    for record in records
        .iter()
        .filter(|record| record.experiment == NMI_LATENCY && !is_simulated(record) && record.other_cpu().is_none())
    {
        let kept = newest.entry((record.parameter("workload"), record.parameter("backend"))).or_insert(record);
        if record.started_unix > kept.started_unix {
            *kept = record;
        }
    }
    let mut newest: Vec<&Record> = newest.into_values().collect();
    newest.sort_by_key(|record| std::cmp::Reverse(record.started_unix));
    newest.iter().take(DOCUMENTS).map(|record| read::found(&record.path)).collect()
}

fn value(row: &Row, value: f64) -> String {
    match row.number {
        Number::Change => format!("{value:.1} %"),
        Number::Ratio => format!("{} ×", ratio(value)),
        Number::Before | Number::After if row.unit == "percent" => format!("{value:.2} %"),
        Number::Before | Number::After if row.unit == "ns" => time(value),
        Number::Before | Number::After if row.unit == "s" => time(value * 1e9),
        Number::Before | Number::After => format!("{value:.0} {}", row.unit),
    }
}

/// Returns the published figures of `results/published.toml` that a simulator or a measurement answers.
pub(super) fn tables(found: &Reproduction) -> Published {
    let head =
        ["figure", "published", "simulated", "÷ published", "measured", "÷ published", "is", "measured with", "what"];
    let mut predicted = Table::new("Published figures and ours: predicted", &head);
    let mut fitted = Table::new("Published figures and ours: fitted or transferred", &head);
    for row in &found.rows {
        let (table, origin) = match &row.origin {
            Origin::Fitted(constants) => (&mut fitted, format!("fitted: {}", constants.join(", "))),
            Origin::OfFitted => (&mut fitted, "of fitted".to_owned()),
            Origin::Transferred(from) => (&mut fitted, format!("transferred from {from}")),
            Origin::Predicted => (&mut predicted, "predicted".to_owned()),
        };
        let measured = row.measured.as_ref();
        let with = measured.map_or_else(
            || "not measured".to_owned(),
            |m| {
                let stand_in = if m.stand_in { ", a stand-in" } else { "" };
                format!("{}{stand_in}; {}", m.backend, m.host)
            },
        );
        let over = |ours: Option<f64>| {
            let share = ours
                .zip(row.published)
                .map(|(ours, published)| ours / published)
                .filter(|share| share.is_finite() && *share > 0.0);
            share.map_or_else(dash, ratio)
        };
        let ours = measured.map(|m| m.value);
        table.rows.push(vec![
            format!("{}, {}", row.figure, row.number.key()),
            row.published.map_or_else(dash, |v| value(row, v)),
            row.simulated.map_or_else(dash, |v| value(row, v)),
            over(row.simulated),
            ours.map_or_else(dash, |v| value(row, v)),
            over(ours),
            format!("{origin} (model {})", row.model),
            with,
            row.what.clone(),
        ]);
    }
    Published {
        note: format!(
            "÷ is ours over published: 1 is agreement. Simulated with seed {}. Fitted rows were used to choose the model's \
             constants, so only predicted ones are evidence. Measured figures come from the newest result of that workload \
             among those given, on the host and with the backend in the table: a stand-in's figures are not the published \
             host's.",
            found.seed
        ),
        predicted,
        fitted,
    }
}
