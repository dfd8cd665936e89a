//! A model under construction, as a calibration makes it: the table of its file.

use hdrhistogram::Histogram;
use host_pmu::stats::ns_histogram;
use toml::{Table, Value};

use super::file::{Model, ModelError};

/// Intervals of a distribution's quantiles.
const QUANTILES: u32 = 20;

/// The file of a model.
#[derive(Clone, Debug)]
pub struct Draft(pub Table);

impl Draft {
    /// Creates a draft without costs.
    pub fn new(name: &str, about: &str, tsc_khz: u64) -> Self {
        let mut draft = Self(Table::from_iter([("name".to_owned(), name.into()), ("about".to_owned(), about.into())]));
        draft.0.insert("fitted".to_owned(), Value::Array(Vec::new()));
        draft.set("tsc", "khz", tsc_khz.cast_signed(), "KVM_GET_TSC_KHZ");
        draft
    }

    /// Puts `value` at a path of keys.
    pub fn put(&mut self, path: &str, value: impl Into<Value>) {
        let (parents, key) = path.rsplit_once('.').unwrap_or(("", path));
        let mut table = &mut self.0;
        for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
            let entry = table.entry(parent).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = entry else { return };
            table = inner;
        }
        table.insert(key.to_owned(), value.into());
    }

    /// Puts a constant in this unit, and where it is from.
    pub fn set(&mut self, path: &str, unit: &str, value: impl Into<Value>, source: &str) {
        self.put(path, Table::from_iter([(unit.to_owned(), value.into()), ("source".to_owned(), source.into())]));
    }

    /// Puts a cost in ns.
    pub fn ns(&mut self, cost: &str, ns: f64, source: &str) {
        self.set(&format!("cost.{cost}"), "ns", whole(ns), source);
    }

    /// Puts the distribution of a cost in all guests as equally spaced quantiles, of which the last is p99, so that an outlier does not
    /// represent 5 % of the calls; `None` if it is empty.
    pub fn distribution(&mut self, cost: &str, guests: &[Histogram<u64>], source: &str) -> Option<()> {
        let mut ns = ns_histogram();
        // The bounds of all histograms are the same, so none is refused.
        for guest in guests {
            ns.add(guest).unwrap_or_default();
        }
        let at = |n| if n == QUANTILES { 0.99 } else { f64::from(n) / f64::from(QUANTILES) };
        let quantiles: Value =
            (0..=QUANTILES).map(|n| whole(ns.value_at_quantile(at(n)) as f64)).collect::<Vec<_>>().into();
        (!ns.is_empty()).then(|| self.set(&format!("cost.{cost}"), "ns", quantiles, source))
    }

    /// Returns the file's text.
    pub fn toml(&self) -> String {
        self.0.to_string()
    }

    /// Returns the model for the simulator.
    ///
    /// # Errors
    /// What of it is not valid.
    pub fn model(&self) -> Result<Model, ModelError> {
        let name = self.0.get("name").and_then(Value::as_str).unwrap_or_default();
        Model::from_toml(name, &self.toml())
    }
}

/// Rounds to the nearest whole number; 0 for negative ones.
pub fn whole(figure: f64) -> i64 {
    figure.max(0.0).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_its_median_and_drops_its_outlier() {
        let mut ns = ns_histogram();
        (0..1000).for_each(|n| ns.record(1000 + n).unwrap());
        ns.record(50_000_000).unwrap();
        let mut draft = Draft::new("x", "y \"quoted\"", 2_000_000);
        draft.distribution("pause", &[ns.clone(), ns], "measured").unwrap();
        let table: Table = draft.toml().parse().unwrap();
        assert_eq!(table, draft.0);
        let quantiles: Vec<i64> = table["cost"]["pause"]["ns"].clone().try_into().unwrap();
        assert!(
            quantiles.len() == 21 && (1480..1520).contains(&quantiles[10]) && quantiles[20] < 2100,
            "{quantiles:?}"
        );
        assert!(draft.distribution("read", &[ns_histogram()], "").is_none());
    }
}
