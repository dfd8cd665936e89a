//! Comma-separated values as RFC 4180 has them: a row per arm and metric over all rounds, and one per round. An arm without
//! figures has a row with the reason.

use serde_json::json;

use crate::document::{Arm, Record, Summary};
use crate::shown::line;
use crate::table::column::{self, Column, Figures, Place};

/// Columns before the figures.
const KEYS: &str =
    "file,experiment,started_unix,git_revision,host_class,workload,guest_cpu,backend,stand_in,arm,kind,round,metric";

/// A text of one line that no spreadsheet takes for a formula: they do so where it starts with = + - @.
fn plain(text: &str) -> String {
    let text = line(text);
    if text.trim_start().starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text }
}

fn row(record: &Record, arm: &Arm, round: &str, metric: Option<(&str, &Summary)>, note: &str) -> Vec<String> {
    let parameter = |name| record.parameter(name).unwrap_or_default();
    let keys = [
        record.path.display().to_string(),
        record.experiment.clone(),
        record.started_unix.to_string(),
        record.tool.git_revision.clone(),
        record.host.class.clone(),
        parameter("workload"),
        parameter("cpu"),
        arm.backend.clone(),
        arm.stand_in.to_string(),
        arm.name.clone(),
        json!(arm.kind).as_str().unwrap_or_default().to_owned(),
        round.to_owned(),
        metric.map_or("", |(key, _)| key).to_owned(),
    ];
    let figures = Figures::new(arm, metric.map(|(_, summary)| summary));
    let value = |column: &Column| (column.value)(&figures).map(|value| value.to_string()).unwrap_or_default();
    let values = column::columns(Place::Csv).map(value);
    keys.iter().map(|key| plain(key)).chain(values).chain([plain(note)]).collect()
}

/// Formats rows as CSV: fields are quoted where they need it, lines end in CR LF.
fn table(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let quoted = |field: String| {
        let needs = field.contains([',', '"', '\r', '\n']);
        if needs { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
    };
    rows.into_iter().map(|row| row.into_iter().map(quoted).collect::<Vec<_>>().join(",") + "\r\n").collect()
}

/// Formats the records as CSV.
pub(super) fn text(records: &[Record]) -> String {
    let figures = column::columns(Place::Csv).map(|column| column.key);
    let mut rows = vec![KEYS.split(',').chain(figures).chain(["note"]).map(str::to_owned).collect()];
    for record in records {
        for arm in &record.arms {
            let mut note = arm.incomplete.join("; ");
            if arm.metrics.is_empty() {
                note = arm.not_available.clone().unwrap_or(note);
                rows.push(row(record, arm, "", None, &note));
            }
            for (key, summary) in &arm.metrics {
                rows.push(row(record, arm, "all", Some((key, summary)), &note));
                let Some(column) = arm.rounds.metrics.get(key) else { continue };
                for round in arm.rounds.iter() {
                    if let Some(summary) = column.get(round.at) {
                        let note = if round.complete { "" } else { "left out" };
                        rows.push(row(record, arm, &round.index.to_string(), Some((key, &summary)), note));
                    }
                }
            }
        }
    }
    table(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_are_no_formulas() {
        let text = |field: &str| table([vec![plain(field), "x".to_owned()]]);
        assert_eq!(text("a,\"b\""), "\"a,\"\"b\"\"\",x\r\n");
        assert_eq!(text("=1+1"), "'=1+1,x\r\n");
        assert_eq!(text("\t=1+1"), "' =1+1,x\r\n");
        assert_eq!(text("a\r\n=1+1"), "a  =1+1,x\r\n");
        assert_eq!(text("reuse"), "reuse,x\r\n");
    }
}
