//! Figures under unique names, for formats that have one figure under one name.

use crate::document::{Any, Arm, Column, Record, Summary};
use crate::error::Error;

/// Names the subject of the measurement in a few words without white space: the experiment and the parameters that make
/// it another one.
pub(super) fn subject(record: &Record) -> String {
    let mut text = record.experiment.clone();
    for (name, unit) in [("workload", ""), ("events", "events"), ("cpus", "cpus"), ("vcpus", "vcpu")] {
        if let Some(value) = record.parameter(name).filter(|value| value.len() < 64 && !value.starts_with(['[', '{'])) {
            text.push('/');
            text.push_str(&value.replace('/', ":"));
            text.push_str(unit);
        }
    }
    if let Some(cpu) = record.other_cpu() {
        text = format!("{text}/{cpu}");
    }
    text.split_whitespace().collect::<Vec<_>>().join("-")
}

/// A row of a format that has one figure under one name.
pub(super) struct Named<'a> {
    pub(super) name: String,
    pub(super) record: &'a Record,
    pub(super) arm: &'a Arm<Any>,
    pub(super) metric: &'a Summary,
    /// Smallest and largest median of a round.
    pub(super) spread: Option<(f64, f64)>,
}

/// Lists every figure under a name of its own.
///
/// # Errors
/// Exit 2 if two documents have the same name for one.
pub(super) fn named(records: &[Record]) -> Result<Vec<Named<'_>>, Error> {
    let mut rows: Vec<Named<'_>> = Vec::new();
    for record in records {
        for arm in &record.arms {
            for (key, metric) in &arm.metrics {
                let rounds = || arm.rounds.metrics.get(key).into_iter().flat_map(Column::medians);
                let low = rounds().min_by(f64::total_cmp);
                rows.push(Named {
                    name: format!("{}/{}/{}/{key}", subject(record), arm.backend.replace('/', ":"), arm.name),
                    record,
                    arm,
                    metric,
                    spread: low.zip(rounds().max_by(f64::total_cmp)),
                });
            }
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    for row in &rows {
        if let Some(first) = seen.insert(&row.name, &row.record.path) {
            return Err(Error::usage(
                format!("{} and {} both have {}", first.display(), row.record.path.display(), row.name),
                "this format has one figure under one name",
                "give one FILE, or take csv or benchstat",
            ));
        }
    }
    Ok(rows)
}
