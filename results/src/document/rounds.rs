//! The rounds of an arm, a column a field: a default run has a thousand of them.

use std::collections::BTreeMap;

use counts::{CountColumns, column};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::summary::Summary;
use crate::metric::Metric;

/// Metrics by key, such as `nmi_handler_ns`; of a phase by path, such as `phases/open/wall_ns`.
pub type Metrics = BTreeMap<String, Summary>;

/// A column of which not every round has a value.
type Sparse<T> = Vec<Option<T>>;

fn is_bare<T>(column: &[Option<T>]) -> bool {
    column.iter().all(Option::is_none)
}

/// Writes metrics, each without 99th percentiles where they are the largest values: a round has seldom a hundred.
fn columns<S: Serializer>(metrics: &BTreeMap<String, Column>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(metrics.iter().map(|(key, column)| {
        let mut column = column.clone();
        if column.p99 == column.max && !is_bare(&column.p90) {
            column.p99.clear();
        }
        (key, column)
    }))
}

/// Reads rounds, and gives each column a value a round.
///
/// # Errors
/// Returns the errors of the columns, and a column of another length.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rounds, D::Error> {
    let mut rounds = Rounds::deserialize(deserializer)?;
    rounds.stretch().map_err(D::Error::custom)?;
    Ok(rounds)
}

/// Stretches a column of one value to all rounds; an absent one stays so.
fn stretch<T: Clone>(name: &str, column: &mut Vec<T>, rounds: usize) -> Result<(), String> {
    if let [value] = column.as_slice() {
        *column = vec![value.clone(); rounds];
    }
    match column.len() {
        0 => Ok(()),
        found if found == rounds => Ok(()),
        found => Err(format!("{name} has {found} values for {rounds} rounds")),
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
    #[serde(serialize_with = "columns")]
    pub metrics: BTreeMap<String, Column>,
    /// End of each run of a guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty", serialize_with = "column")]
    pub end: Vec<String>,
    /// From creating the VM to the last vCPU's end, µs.
    #[serde(default, skip_serializing_if = "Vec::is_empty", serialize_with = "column")]
    pub wall_us: Vec<u64>,
    /// From creating the VM to the first guest instruction, µs; 0 where the guest was there before the round.
    #[serde(default, skip_serializing_if = "Vec::is_empty", serialize_with = "column")]
    pub guest_start_us: Vec<u64>,
    /// NMIs delivered and not taken, or the reverse: the differences of the vCPUs, each without its sign.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub lost: Sparse<u64>,
    /// Counts of the guest's vCPUs together.
    #[serde(flatten)]
    pub counts: CountColumns,
}

/// A metric by round: the fields of a [`Summary`] without histogram. A round whose count is 0 has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// Number of values.
    #[serde(serialize_with = "column")]
    pub count: Vec<u64>,
    /// Smallest.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub min: Sparse<u64>,
    /// Median.
    #[serde(serialize_with = "column")]
    pub p50: Vec<u64>,
    /// 90th percentile.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub p90: Sparse<u64>,
    /// 99th percentile; absent where it is the largest value in every round.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub p99: Sparse<u64>,
    /// Largest.
    #[serde(default, skip_serializing_if = "is_bare", serialize_with = "column")]
    pub max: Sparse<u64>,
    /// Arithmetic mean; a histogram has three digits, so that parts of a ns are no figures.
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
    /// The columns that may be absent, with the names of their keys.
    fn sparse(&mut self) -> [(&'static str, &mut Sparse<u64>); 5] {
        let Self { min, p90, p99, max, mean, .. } = self;
        [("min", min), ("p90", p90), ("p99", p99), ("max", max), ("mean", mean)]
    }

    /// Adds a round, which may lack the metric.
    #[expect(clippy::cast_sign_loss, reason = "no time is negative")]
    pub fn push(&mut self, summary: Option<&Summary>) {
        let none = Summary::default();
        let Summary { count, min, p50, p90, p99, max, mean, .. } = summary.unwrap_or(&none);
        self.count.push(*count);
        self.p50.push(*p50);
        let values = [*min, *p90, *p99, *max, mean.map(|mean| mean.round() as u64)];
        self.sparse().into_iter().zip(values).for_each(|((_, column), value)| column.push(value));
    }

    /// Returns the summary of the round at a place; `None` where the round lacks the metric.
    pub fn get(&self, at: usize) -> Option<Summary> {
        Some(Summary {
            count: *self.count.get(at).filter(|count| **count > 0)?,
            min: value(&self.min, at),
            p50: *self.p50.get(at)?,
            p90: value(&self.p90, at),
            p99: value(&self.p99, at),
            max: value(&self.max, at),
            mean: value(&self.mean, at).map(|mean| mean as f64),
            ..Summary::default()
        })
    }

    /// Returns the medians of the rounds that have the metric.
    pub fn medians(&self) -> impl Iterator<Item = f64> {
        self.count.iter().zip(&self.p50).filter(|(count, _)| **count > 0).map(|(_, p50)| *p50 as f64)
    }

    fn stretch(&mut self, rounds: usize) -> Result<(), String> {
        stretch("count", &mut self.count, rounds)?;
        stretch("p50", &mut self.p50, rounds)?;
        self.sparse().into_iter().try_for_each(|(name, column)| stretch(name, column, rounds))?;
        if self.p99.is_empty() && !self.p90.is_empty() {
            self.p99.clone_from(&self.max);
        }
        Ok(())
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
        for key in metrics.keys() {
            if !self.metrics.contains_key(key) {
                let mut column = Column::default();
                (0..before).for_each(|_| column.push(None));
                self.metrics.insert(key.clone(), column);
            }
        }
        for (key, column) in &mut self.metrics {
            column.push(metrics.get(key));
        }
    }

    fn stretch(&mut self) -> Result<(), String> {
        let rounds = self.len();
        stretch("position", &mut self.position, rounds)?;
        stretch("complete", &mut self.complete, rounds)?;
        stretch("started_us", &mut self.started_us, rounds)?;
        stretch("guest", &mut self.guest, rounds)?;
        stretch("end", &mut self.end, rounds)?;
        stretch("lost", &mut self.lost, rounds)?;
        stretch("wall_us", &mut self.wall_us, rounds)?;
        stretch("guest_start_us", &mut self.guest_start_us, rounds)?;
        self.counts.columns().try_for_each(|(name, column)| stretch(name, column, rounds))?;
        let mut metrics = self.metrics.iter_mut();
        metrics.try_for_each(|(key, column)| column.stretch(rounds).map_err(|why| format!("{key}: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_some_rounds_lack_keeps_its_places() {
        let mut rounds = Rounds::default();
        let of = |count| Summary { count, p50: 7 * count, max: Some(9 * count), ..Summary::default() };
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
        assert!(!text.contains("mean") && !text.contains("guest") && text.contains("\"max\":[9,null,27]"), "{text}");
        assert!(text.contains("\"position\":[1],\"complete\":[true],\"started_us\":[0,1,2]"), "{text}");
    }

    #[test]
    fn what_is_left_out_of_columns_is_read_back() {
        let mut rounds = Rounds::default();
        for index in 0..3 {
            let (min, p90, max) = (Some(5), Some(7), Some(8 + index));
            let summary =
                Summary { count: 20, min, p50: 6, p90, p99: max, max, mean: Some(6.26), ..Summary::default() };
            rounds.index.push(index);
            rounds.position.push(0);
            rounds.complete.push(true);
            rounds.started_us.push(index);
            rounds.counts.opens.push(1);
            rounds.push_metrics(&Metrics::from([("a_ns".to_owned(), summary)]));
        }
        let text = serde_json::to_string(&rounds).unwrap();
        let column = r#"{"count":[20],"min":[5],"p50":[6],"p90":[7],"max":[8,9,10],"mean":[6]}"#;
        assert!(text.contains(column), "{text}");
        let again = whole(&mut serde_json::Deserializer::from_str(&text)).unwrap();
        assert_eq!(again.metrics["a_ns"].get(2), rounds.metrics["a_ns"].get(2));
        assert_eq!((&again.counts.opens, &again.complete, again.len()), (&vec![1; 3], &vec![true; 3], 3));
        let error = whole(&mut serde_json::Deserializer::from_str(&text.replace("[8,9,10]", "[8,9]"))).unwrap_err();
        assert!(error.to_string().contains("a_ns: max has 2 values for 3 rounds"), "{error}");
    }
}
