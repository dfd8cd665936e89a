//! A model under construction, and its TOML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hdrhistogram::Histogram;
use sim::model::Model;

use super::measure::Estimate;
use results::error::{Error, Exit};
use results::paired;
use results::table::fold::Table;
use results::table::layout::{dash, time};

/// Intervals of a distribution's quantiles.
const QUANTILES: u32 = 20;

/// A constant.
#[derive(Clone, Debug)]
enum Constant {
    /// ns.
    Ns(u64),
    /// ps.
    Ps(u64),
    /// A sum of costs, ns, which the model has apart.
    Sum(u64),
    /// Equally spaced quantiles, ns. The last one is p99, so that an outlier does not represent 5 % of the calls.
    Quantiles(Vec<u64>),
}

/// A cost of the draft.
#[derive(Clone, Debug)]
struct Entry {
    constant: Constant,
    /// 95 % interval of the constant, of the median for quantiles.
    interval: Option<[u64; 2]>,
    source: String,
}

/// A model under construction.
#[derive(Clone, Debug)]
pub struct Draft {
    name: String,
    about: String,
    tsc_khz: u64,
    host: Vec<String>,
    counts: Vec<String>,
    costs: BTreeMap<&'static str, Entry>,
    /// Too few rounds were measured for intervals of 95 %.
    few: bool,
}

/// Fewest rounds with intervals, as of every experiment.
const MIN_ROUNDS: u64 = paired::MIN_ROUNDS as u64;

impl Draft {
    /// Creates a draft without costs.
    pub fn new(name: &str, about: &str, tsc_khz: u64) -> Self {
        let (name, about) = (name.to_owned(), about.to_owned());
        Self { name, about, tsc_khz, host: Vec::new(), counts: Vec::new(), costs: BTreeMap::new(), few: false }
    }

    /// Says how many rounds were measured: of few ones no interval is shown.
    pub fn of_rounds(&mut self, rounds: u64) {
        self.few = rounds < MIN_ROUNDS;
    }

    /// Adds a line to section host.
    pub fn host(&mut self, line: String) {
        self.host.push(line);
    }

    /// Adds a line to section counts.
    pub fn counts(&mut self, line: &str) {
        self.counts.push(line.to_owned());
    }

    fn set(&mut self, key: &'static str, constant: Constant, interval: Option<[u64; 2]>, source: &str) {
        self.costs.insert(key, Entry { constant, interval, source: source.to_owned() });
    }

    /// Sets a cost in ns that is not measured by itself.
    pub fn ns(&mut self, key: &'static str, ns: u64, source: &str) {
        self.set(key, Constant::Ns(ns), None, source);
    }

    /// Sets a measured or solved cost in ns.
    pub fn fitted_ns(&mut self, key: &'static str, ns: Estimate, source: &str) {
        self.set(key, Constant::Ns(rounded(ns.value)), Some(ns.interval.map(rounded)), source);
    }

    /// Notes the measured sum of costs that are not measured apart.
    pub fn sum(&mut self, keys: &'static str, ns: Estimate, source: &str) {
        self.set(keys, Constant::Sum(rounded(ns.value)), Some(ns.interval.map(rounded)), source);
    }

    /// Sets a measured cost in ps.
    pub fn fitted_ps(&mut self, key: &'static str, ps: Estimate, source: &str) {
        self.set(key, Constant::Ps(rounded(ps.value)), Some(ps.interval.map(rounded)), source);
    }

    /// Sets a cost to a measured distribution with the interval of its median; returns its median, `None` if it is empty.
    pub fn distribution(
        &mut self,
        key: &'static str,
        ns: &Histogram<u64>,
        median: Option<Estimate>,
        source: &str,
    ) -> Option<u64> {
        if ns.is_empty() {
            return None;
        }
        let at = |n| if n == QUANTILES { 0.99 } else { f64::from(n) / f64::from(QUANTILES) };
        let quantiles: Vec<u64> = (0..=QUANTILES).map(|n| ns.value_at_quantile(at(n))).collect();
        // The histogram does not tell the values of a bucket apart.
        let interval = median.map(|median| {
            let [low, high] = median.interval.map(rounded);
            [ns.lowest_equivalent(low), ns.highest_equivalent(high)]
        });
        self.set(key, Constant::Quantiles(quantiles), interval, source);
        Some(ns.value_at_quantile(0.5))
    }

    /// Sets cost `to` to cost `from`.
    pub fn copy(&mut self, from: &str, to: &'static str, source: &str) {
        if let Some(entry) = self.costs.get(from).cloned() {
            self.costs.insert(to, Entry { source: source.to_owned(), ..entry });
        }
    }

    /// Returns the costs with an interval as a table of so many columns.
    pub fn fitted(&self, width: usize) -> String {
        let mut table = Table::new(["constant", "value", "95 % interval", "from"]).left(3);
        for (key, Entry { constant, interval, source }) in &self.costs {
            let Some([low, high]) = interval else { continue };
            let (value, ps) = match constant {
                Constant::Ns(ns) | Constant::Sum(ns) => (*ns, false),
                Constant::Ps(ps) => (*ps, true),
                Constant::Quantiles(all) => (all[all.len() / 2], false),
            };
            let shown = |value: u64| match ps {
                true if value < 10_000 => format!("{value} ps"),
                true => time(value as f64 / 1000.0),
                false => time(value as f64),
            };
            table.add_row([
                (*key).to_owned(),
                shown(value),
                if self.few { dash() } else { format!("{} to {}", shown(*low), shown(*high)) },
                source.clone(),
            ]);
        }
        table.text(width) + "\n"
    }

    /// Returns the TOML of the model.
    pub fn toml(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut out = String::new();
        let _ = writeln!(out, "name = {}\nabout = {}", quoted(&self.name), quoted(&self.about));
        let _ = writeln!(out, "tsc = {{ khz = {}, source = \"KVM_GET_TSC_KHZ\" }}\nfitted = []\n", self.tsc_khz);
        let _ = writeln!(out, "[host]\n{}\n\n[counts]\n{}\n", self.host.join("\n"), self.counts.join("\n"));
        let _ = writeln!(
            out,
            "# ns: a number, or equally spaced quantiles (the last is p99); instruction in ps. interval: 95 %, of the median for quantiles.\n[cost]"
        );
        for (key, Entry { constant, interval, source }) in &self.costs {
            let value = match constant {
                Constant::Ns(ns) => format!("ns = {ns}"),
                Constant::Ps(ps) => format!("ps = {ps}"),
                Constant::Quantiles(all) => format!("ns = {all:?}"),
                Constant::Sum(_) => continue,
            };
            let interval = interval
                .filter(|_| !self.few)
                .map_or_else(String::new, |[low, high]| format!("interval = [{low}, {high}], "));
            let _ = writeln!(out, "{key} = {{ {value}, {interval}source = {} }}", quoted(source));
        }
        out
    }

    /// Returns the model for the simulator.
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

/// Returns the line of a model's host that has the watchdog's events, so many: by rules of a known processor or as counters.
pub fn watchdog(processor_known: bool, events: u32) -> String {
    let source = "source = \"the NMI watchdog's\"";
    if processor_known {
        return format!("pinned = {{ events = [{}], {source} }}", vec!["0x3c"; events as usize].join(", "));
    }
    format!("taken = {{ value = {events}, {source} }}")
}

/// Rounds to the nearest whole number; 0 for negative ones.
#[expect(clippy::cast_sign_loss, reason = "made positive first")]
fn rounded(figure: f64) -> u64 {
    figure.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Draft {
        /// Returns the interval of a cost, if it has one.
        pub(crate) fn interval_of(&self, key: &str) -> Option<[u64; 2]> {
            self.costs.get(key)?.interval
        }
    }

    #[test]
    fn a_distribution_keeps_its_median_and_drops_its_outlier() {
        let mut ns = host_pmu::stats::ns_histogram();
        for n in 0..1000 {
            ns.record(1000 + n).unwrap();
        }
        ns.record(50_000_000).unwrap();
        let mut draft = Draft::new("x", "y \"quoted\"", 2_000_000);
        let known = Estimate { value: 1500.0, interval: [1450.4, 1550.0] };
        let median = draft.distribution("pause", &ns, Some(known), "measured").unwrap();
        assert!((1480..1520).contains(&median), "{median}");
        let text = draft.toml();
        assert!(text.contains("y \\\"quoted\\\"") || text.contains("'y \"quoted\"'"), "{text}");
        let table: toml::Table = text.parse().unwrap();
        let quantiles = table["cost"]["pause"]["ns"].as_array().unwrap();
        assert_eq!(quantiles.len(), 21);
        assert!(quantiles.last().unwrap().as_integer().unwrap() < 2100);
        assert!(draft.distribution("read", &host_pmu::stats::ns_histogram(), None, "").is_none());
        // The ends of the histogram's buckets, 8 ns each.
        assert_eq!(table["cost"]["pause"]["interval"].to_string(), "[1448, 1551]");
        draft.fitted_ps("instruction", Estimate { value: 1_545_805.0, interval: [1_500_000.0, 1_600_000.0] }, "solved");
        let shown = draft.fitted(80);
        assert!(shown.contains("1.45 µs to 1.55 µs  measured"), "{shown}");
        draft.of_rounds(3);
        let few = draft.fitted(80);
        assert!(few.contains('–') && !few.contains(" to "), "{few}");
        assert!(!draft.toml().contains("interval ="), "{}", draft.toml());
        assert!(shown.contains("1.55 µs  1.50 µs to 1.60 µs  solved") && !shown.contains(" ps"), "{shown}");
    }
}
