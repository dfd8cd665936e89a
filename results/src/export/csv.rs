//! Comma-separated values as RFC 4180 has them: a row per arm and metric over all rounds, and one per round. An arm without
//! figures has a row that says why.

use std::fmt::Write;

use crate::read::{Arm, Metric, Record};

const HEADER: &str = "file,experiment,started_unix,git_revision,host_class,workload,backend,stand_in,arm,kind,round,metric,\
                      count,min_ns,p50_ns,p90_ns,p99_ns,p99_9_ns,max_ns,mean_ns,note\r\n";

/// A field, in quotes if it needs them. A spreadsheet would take text that begins with = + - @ for a formula.
fn field(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn row(out: &mut String, record: &Record, arm: &Arm, round: &str, metric: Option<(&str, &Metric)>, note: &str) {
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let figures = metric.map_or_else(
        || [const { String::new() }; 9],
        |(name, m)| {
            [
                field(name),
                m.count.to_string(),
                number(m.min),
                number(Some(m.p50)),
                number(m.p90),
                number(m.p99),
                number(m.p99_9),
                number(m.max),
                number(m.mean),
            ]
        },
    );
    let workload = record.parameter("workload").unwrap_or_default();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{round},{},{}\r\n",
        field(&record.path.display().to_string()),
        field(&record.experiment),
        record.started_unix,
        field(&record.tool.git_revision),
        field(&record.host.class),
        field(&workload),
        field(&arm.backend),
        arm.stand_in,
        field(&arm.name),
        field(&arm.kind),
        figures.join(","),
        field(note),
    );
}

/// The records as CSV.
#[must_use]
pub fn text(records: &[Record]) -> String {
    let mut out = HEADER.to_owned();
    for record in records {
        for arm in &record.arms {
            let mut note = arm.incomplete.join("; ");
            if arm.metrics.is_empty() {
                note = arm.not_available.clone().unwrap_or(note);
                row(&mut out, record, arm, "", None, &note);
            }
            for (name, metric) in &arm.metrics {
                row(&mut out, record, arm, "all", Some((name, metric)), &note);
                for round in &arm.rounds {
                    if let Some(metric) = round.metrics.get(name) {
                        let note = if round.complete { "" } else { "incomplete round" };
                        row(&mut out, record, arm, &round.index.to_string(), Some((name, metric)), note);
                    }
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_row_has_the_headers_columns_and_no_arm_is_left_out() {
        let (_dir, record) = fixture::written(&fixture::document(2));
        let text = text(std::slice::from_ref(&record));
        let columns = HEADER.trim_end().split(',').count();
        for line in text.trim_end().split("\r\n") {
            // The mock's host class has a comma, in quotes.
            let plain: String = line.split('"').step_by(2).collect();
            assert_eq!(plain.split(',').count(), columns, "{line}");
        }
        // Of recreate: delivery and exit path, handler; the exit path has no rounds.
        let rows = |needle: &str| text.matches(needle).count();
        assert_eq!(rows(",recreate,strategy,all,nmi_handler_ns,80,"), 1);
        assert_eq!(
            rows(",recreate,strategy,0,nmi_handler_ns,40,") + rows(",recreate,strategy,1,nmi_handler_ns,40,"),
            2
        );
        assert!(text.contains(",kvm,kvm,,,,,,,,,,,the mock has no vPMU of its own\r\n"), "{text}");
    }

    #[test]
    fn fields_are_quoted_and_are_no_formulas() {
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("=1+1"), "'=1+1");
        assert_eq!(field("reuse"), "reuse");
    }
}
