//! The rounds of an arm, a column a field: a default run has a thousand of them.

use std::collections::BTreeMap;

use counts::{CountColumns, column};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::summary::Summary;
use crate::metric::Metric;

/// Metrics by key, such as `nmi_handler_ns`; of a phase by path, such as `phases/open/wall_ns`.
pub type Metrics = BTreeMap<String, Summary>;

/// A column of which not every round has a value.
type Sparse<T> = Vec<Option<T>>;

fn is_bare<T>(column: &[Option<T>]) -> bool {
    column.iter().all(Option::is_none)
}

/// Reads rounds, and gives each column a value a round.
///
/// # Errors
/// Returns the errors of the columns, and a column of another length.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rounds, D::Error> {
    let mut columns = Value::deserialize(deserializer)?;
    let rounds = columns["round"].as_array().map_or(0, Vec::len);
    stretch(&mut columns, rounds).map_err(|why| D::Error::custom(why.trim_start_matches('.')))?;
    Rounds::deserialize(columns).map_err(D::Error::custom)
}

/// Stretches each column of one value to all rounds; an empty one stays so.
fn stretch(value: &mut Value, rounds: usize) -> Result<(), String> {
    match value {
        Value::Object(columns) => columns
            .iter_mut()
            .try_for_each(|(name, column)| stretch(column, rounds).map_err(|why| format!(".{name}{why}"))),
        Value::Array(column) => {
            if column.len() == 1 {
                column.resize(rounds, column[0].clone());
            }
            let found = column.len();
            let fits = found == rounds || found == 0;
            if fits { Ok(()) } else { Err(format!(" has {found} values for {rounds} rounds")) }
        }
        _ => Ok(()),
    }
}

/// The rounds of an arm, in order of time. In a document a column has a value a round, or one value that stands for all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rounds {
    /// Number of each round, from 0.
    #[serde(rename = "round", serialize_with = "column")]
    pub index: Vec<u64>,
    /// The place of each run in its round, from 0.
    #[serde(serialize_with = "column")]
    pub position: Vec<u64>,
    /// The round was measured whole.
    #[serde(serialize_with = "column")]
    pub complete: Vec<bool>,
    /// Start, µs after the experiment's; virtual time in a simulation.
    #[serde(serialize_with = "column")]
    pub started_us: Vec<u64>,
    /// Number of the arm's guest in which it ran. Rounds of one guest are consecutive, and all arms change guests at the same
    /// rounds. Absent: a guest of its own.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub guest: Sparse<u64>,
    /// Metrics by key.
    pub metrics: BTreeMap<String, Column>,
    /// NMIs delivered and not taken, or the reverse: the differences of the vCPUs, each without its sign.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub lost: Sparse<u64>,
    /// Counts of the guest's vCPUs together.
    #[serde(flatten)]
    pub counts: CountColumns,
}

/// A metric by round: what comparisons, tables and exports take of each. A round whose count is 0 has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// Number of values.
    #[serde(serialize_with = "column")]
    pub count: Vec<u64>,
    /// Median.
    #[serde(serialize_with = "column")]
    pub p50: Vec<u64>,
    /// Arithmetic mean, of metrics that are judged; a histogram has three digits, so that parts of a ns are no figures.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub mean: Sparse<u64>,
}

/// One round, without what was measured in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Its place in the columns.
    pub at: usize,
    /// The number of the round, from 0.
    pub index: u64,
    /// The guest in which it ran: its own number where each round had one of its own.
    pub guest: u64,
    /// The round was measured whole.
    pub complete: bool,
}

fn value<T: Copy>(column: &[Option<T>], at: usize) -> Option<T> {
    column.get(at).copied().flatten()
}

impl Column {
    /// Adds a round, which may lack the metric.
    #[expect(clippy::cast_sign_loss, reason = "no time is negative")]
    pub fn push(&mut self, summary: Option<&Summary>) {
        self.count.push(summary.map_or(0, |summary| summary.count));
        self.p50.push(summary.map_or(0, |summary| summary.p50));
        self.mean.push(summary.and_then(|summary| Some(summary.mean?.round() as u64)));
    }

    /// Returns the summary of the round at a place; `None` where the round lacks the metric.
    pub fn get(&self, at: usize) -> Option<Summary> {
        let count = *self.count.get(at).filter(|count| **count > 0)?;
        let mean = value(&self.mean, at).map(|mean| mean as f64);
        Some(Summary { count, p50: *self.p50.get(at)?, mean, ..Summary::default() })
    }

    /// Returns the medians of the rounds that have the metric.
    pub fn medians(&self) -> impl Iterator<Item = f64> {
        self.count.iter().zip(&self.p50).filter(|(count, _)| **count > 0).map(|(_, p50)| *p50 as f64)
    }
}

impl Rounds {
    /// Returns the number of rounds.
    pub const fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there are no rounds.
    pub const fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Iterates over all of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Round> {
        self.index.iter().zip(&self.complete).enumerate().map(|(at, (&index, &complete))| Round {
            at,
            index,
            guest: value(&self.guest, at).unwrap_or(index),
            complete,
        })
    }

    /// Returns one of its metrics at a place.
    pub fn metric(&self, metric: &Metric, at: usize) -> Option<Summary> {
        self.metrics.get(metric.key)?.get(at)
    }

    /// Adds the metrics of a round whose number is there already.
    pub fn push_metrics(&mut self, metrics: &Metrics) {
        let before = self.len().saturating_sub(1);
        let absent = || Column { count: vec![0; before], p50: vec![0; before], mean: vec![None; before] };
        for key in metrics.keys().filter(|key| !self.metrics.contains_key(*key)).collect::<Vec<_>>() {
            self.metrics.insert(key.clone(), absent());
        }
        for (key, column) in &mut self.metrics {
            column.push(metrics.get(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_some_rounds_lack_keeps_its_places() {
        let mut rounds = Rounds::default();
        let of = |count| Summary { count, p50: 7 * count, mean: Some(9.0 * count as f64), ..Summary::default() };
        for (index, keys) in (0..).zip([&["a_ns"][..], &[], &["a_ns", "b_ns"]]) {
            rounds.index.push(index);
            rounds.position.push(1);
            rounds.complete.push(true);
            rounds.started_us.push(index);
            rounds.push_metrics(&keys.iter().map(|key| ((*key).to_owned(), of(index + 1))).collect());
        }
        let found = |key: &str| (0..3).map(|at| rounds.metrics[key].get(at)).collect::<Vec<_>>();
        assert_eq!(found("a_ns"), [Some(of(1)), None, Some(of(3))]);
        assert_eq!(found("b_ns"), [None, None, Some(of(3))]);
        assert_eq!(rounds.metrics["b_ns"].medians().collect::<Vec<_>>(), [21.0]);
        let text = serde_json::to_string(&rounds).unwrap();
        assert!(!text.contains("guest") && text.contains("\"mean\":[9,null,27]"), "{text}");
        assert!(text.contains("\"position\":[1],\"complete\":[true],\"started_us\":[0,1,2]"), "{text}");
    }

    #[test]
    fn what_is_left_out_of_columns_is_read_back() {
        let mut rounds = Rounds::default();
        for index in 0..3 {
            let summary = Summary { count: 20, p50: 6 + index, mean: Some(6.26), ..Summary::default() };
            rounds.index.push(index);
            rounds.position.push(0);
            rounds.complete.push(true);
            rounds.started_us.push(index);
            rounds.counts.opens.push(1);
            rounds.push_metrics(&Metrics::from([("a_ns".to_owned(), summary)]));
        }
        let text = serde_json::to_string(&rounds).unwrap();
        let column = r#"{"count":[20],"p50":[6,7,8],"mean":[6]}"#;
        assert!(text.contains(column), "{text}");
        let again = whole(&mut serde_json::Deserializer::from_str(&text)).unwrap();
        assert_eq!(again.metrics["a_ns"].get(2), rounds.metrics["a_ns"].get(2));
        assert_eq!((&again.counts.opens, &again.complete, again.len()), (&vec![1; 3], &vec![true; 3], 3));
        let error = whole(&mut serde_json::Deserializer::from_str(&text.replace("[6,7,8]", "[6,7]"))).unwrap_err();
        assert!(error.to_string().contains("metrics.a_ns.p50 has 2 values for 3 rounds"), "{error}");
    }
}
