//! A model under construction, and its TOML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hdrhistogram::Histogram;
use sim::model::Model;

use results::error::{Error, Exit};

/// Intervals of a distribution's quantiles.
const QUANTILES: u32 = 20;

/// A constant.
#[derive(Clone, Debug)]
enum Constant {
    /// ns.
    Ns(u64),
    /// ps.
    Ps(u64),
    /// Equally spaced quantiles, ns. The last one is p99, so that an outlier does not represent 5 % of the calls.
    Quantiles(Vec<u64>),
}

/// A model under construction.
#[derive(Clone, Debug)]
pub struct Draft {
    name: String,
    about: String,
    tsc_khz: u64,
    host: Vec<String>,
    counts: Vec<String>,
    costs: BTreeMap<&'static str, (Constant, String)>,
}

impl Draft {
    /// A draft without costs.
    #[must_use]
    pub fn new(name: &str, about: &str, tsc_khz: u64) -> Self {
        let (name, about) = (name.to_owned(), about.to_owned());
        Self { name, about, tsc_khz, host: Vec::new(), counts: Vec::new(), costs: BTreeMap::new() }
    }

    /// Adds a line to section host.
    pub fn host(&mut self, line: String) {
        self.host.push(line);
    }

    /// Adds a line to section counts.
    pub fn counts(&mut self, line: &str) {
        self.counts.push(line.to_owned());
    }

    /// Sets a cost in ns.
    pub fn ns(&mut self, key: &'static str, ns: u64, source: &str) {
        self.costs.insert(key, (Constant::Ns(ns), source.to_owned()));
    }

    /// Sets a cost in ps.
    pub fn ps(&mut self, key: &'static str, ps: u64, source: &str) {
        self.costs.insert(key, (Constant::Ps(ps), source.to_owned()));
    }

    /// Sets a cost to a measured distribution; returns its median, `None` if it is empty.
    #[must_use]
    pub fn distribution(&mut self, key: &'static str, ns: &Histogram<u64>, source: &str) -> Option<u64> {
        if ns.is_empty() {
            return None;
        }
        let at = |n| if n == QUANTILES { 0.99 } else { f64::from(n) / f64::from(QUANTILES) };
        let quantiles: Vec<u64> = (0..=QUANTILES).map(|n| ns.value_at_quantile(at(n))).collect();
        self.costs.insert(key, (Constant::Quantiles(quantiles), source.to_owned()));
        Some(ns.value_at_quantile(0.5))
    }

    /// Sets cost `to` to cost `from`.
    pub fn copy(&mut self, from: &str, to: &'static str, source: &str) {
        if let Some((constant, _)) = self.costs.get(from).cloned() {
            self.costs.insert(to, (constant, source.to_owned()));
        }
    }

    /// TOML of the model.
    #[must_use]
    pub fn toml(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut out = String::new();
        let _ = writeln!(out, "name = {}\nabout = {}", quoted(&self.name), quoted(&self.about));
        let _ = writeln!(out, "tsc = {{ khz = {}, source = \"KVM_GET_TSC_KHZ\" }}\nfitted = []\n", self.tsc_khz);
        let _ = writeln!(out, "[host]\n{}\n\n[counts]\n{}\n", self.host.join("\n"), self.counts.join("\n"));
        let _ =
            writeln!(out, "# ns: a number, or equally spaced quantiles (the last is p99); instruction in ps.\n[cost]");
        for (key, (constant, source)) in &self.costs {
            let value = match constant {
                Constant::Ns(ns) => format!("ns = {ns}"),
                Constant::Ps(ps) => format!("ps = {ps}"),
                Constant::Quantiles(all) => format!("ns = {all:?}"),
            };
            let _ = writeln!(out, "{key} = {{ {value}, source = {} }}", quoted(source));
        }
        out
    }

    /// The model for the simulator.
    ///
    /// # Errors
    /// Exit 3 if the measurement does not make a valid model.
    pub fn model(&self) -> Result<Model, Error> {
        Model::from_toml(&self.name, &self.toml()).map_err(|error| {
            Error::new(
                Exit::Inconclusive,
                "the measurement does not make a valid model",
                error.to_string(),
                "run it again",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_its_median_and_drops_its_outlier() {
        let mut ns = host_pmu::stats::ns_histogram();
        for n in 0..1000 {
            ns.record(1000 + n).unwrap();
        }
        ns.record(50_000_000).unwrap();
        let mut draft = Draft::new("x", "y \"quoted\"", 2_000_000);
        let median = draft.distribution("pause", &ns, "measured").unwrap();
        assert!((1480..1520).contains(&median), "{median}");
        let text = draft.toml();
        assert!(text.contains("y \\\"quoted\\\"") || text.contains("'y \"quoted\"'"), "{text}");
        let table: toml::Table = text.parse().unwrap();
        let quantiles = table["cost"]["pause"]["ns"].as_array().unwrap();
        assert_eq!(quantiles.len(), 21);
        assert!(quantiles.last().unwrap().as_integer().unwrap() < 2100);
        assert!(draft.distribution("read", &host_pmu::stats::ns_histogram(), "").is_none());
    }
}
