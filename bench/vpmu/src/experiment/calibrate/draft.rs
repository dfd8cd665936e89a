//! A model under construction, and its TOML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hdrhistogram::Histogram;
use host_pmu::stats::ns_histogram;
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
    counts: String,
    checked: String,
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
        let (counts, checked) = (String::new(), String::new());
        Self { name, about, tsc_khz, host: Vec::new(), counts, checked, costs: BTreeMap::new(), few: false }
    }

    /// Says how many rounds were measured: of few ones no interval is shown.
    pub fn of_rounds(&mut self, rounds: u64) {
        self.few = rounds < MIN_ROUNDS;
    }

    /// Adds a line to section host.
    pub fn host(&mut self, line: String) {
        self.host.push(line);
    }

    /// Sets section counts.
    pub fn counts(&mut self, lines: String) {
        self.counts = lines;
    }

    /// Notes how many percent of what was measured the model takes, at least and at most.
    pub fn checked(&mut self, [low, high]: [u64; 2], source: &str) {
        let source = toml::Value::from(source);
        self.checked = format!("checked = {{ percent = [{low}, {high}], source = {source} }}\n");
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

    /// Sets a cost to the distribution measured in all guests, with the interval of its median; `None` if it is empty.
    ///
    /// The interval is Woodruff's: the quantiles up to which half of the costs may lie, as the share below the median differs
    /// between guests. So it is the value's own, which the median of the guests' medians would not be.
    pub fn distribution(&mut self, key: &'static str, guests: &[Histogram<u64>], source: &str) -> Option<()> {
        let mut ns = ns_histogram();
        let used: Vec<_> = guests.iter().filter(|guest| !guest.is_empty()).collect();
        // Histograms of the same bounds.
        for guest in &used {
            ns.add(*guest).unwrap_or_default();
        }
        if ns.is_empty() {
            return None;
        }
        let at = |n| if n == QUANTILES { 0.99 } else { f64::from(n) / f64::from(QUANTILES) };
        let quantiles: Vec<u64> = (0..=QUANTILES).map(|n| ns.value_at_quantile(at(n))).collect();
        let median = ns.value_at_quantile(0.5);
        let less = ns.lowest_equivalent(median).saturating_sub(1);
        // Those at the median are half below it.
        let below = |of: &Histogram<u64>| (of.count_between(0, less) + of.count_between(0, median)) as f64 / 2.0;
        let (all, guests) = (ns.len() as f64, used.len() as f64);
        let share = below(&ns) / all;
        let differ: f64 = used.iter().map(|guest| (below(guest) - share * guest.len() as f64).powi(2)).sum();
        // Student's 97.5 % quantile, to 2 %; one guest says nothing of others.
        let half = (2.0 + 3.0 / (guests - 1.0)) * (guests / (guests - 1.0) * differ).sqrt() / all;
        // The histogram does not tell the values of a bucket apart.
        let low = ns.lowest_equivalent(ns.value_at_quantile((0.5 - half).max(0.0)));
        let interval = [low, ns.value_at_quantile((0.5 + half).min(1.0))];
        self.set(key, Constant::Quantiles(quantiles), Some(interval), source);
        Some(())
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
        let _ = writeln!(
            out,
            "tsc = {{ khz = {}, source = \"KVM_GET_TSC_KHZ\" }}\nfitted = []\n{}",
            self.tsc_khz, self.checked
        );
        let _ = writeln!(out, "[host]\n{}\n\n[counts]\n{}\n", self.host.join("\n"), self.counts);
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
        draft.distribution("pause", &[ns.clone(), ns], "measured").unwrap();
        let text = draft.toml();
        assert!(text.contains("y \\\"quoted\\\"") || text.contains("'y \"quoted\"'"), "{text}");
        let table: toml::Table = text.parse().unwrap();
        let quantiles = table["cost"]["pause"]["ns"].as_array().unwrap();
        assert_eq!(quantiles.len(), 21);
        assert!((1480..1520).contains(&quantiles[10].as_integer().unwrap()));
        assert!(quantiles.last().unwrap().as_integer().unwrap() < 2100);
        assert!(draft.distribution("read", &[ns_histogram()], "").is_none());
        draft.fitted_ps("instruction", Estimate { value: 1_545_805.0, interval: [1_500_000.0, 1_600_000.0] }, "solved");
        let shown = draft.fitted(80);
        draft.of_rounds(3);
        let few = draft.fitted(80);
        assert!(few.contains('–') && !few.contains(" to "), "{few}");
        assert!(!draft.toml().contains("interval ="), "{}", draft.toml());
        assert!(shown.contains("1.55 µs  1.50 µs to 1.60 µs  solved") && !shown.contains(" ps"), "{shown}");
    }

    #[test]
    fn the_interval_of_a_median_holds_it_where_one_guest_did_most() {
        let of = |ns: u64, times| {
            let mut costs = ns_histogram();
            costs.record_n(ns, times).unwrap();
            costs
        };
        let mut guests: Vec<_> = (0..11).map(|guest| of(840 + 2 * guest, 10)).collect();
        guests.push(of(883, 200));
        let mut draft = Draft::new("x", "y", 2_000_000);
        draft.distribution("read", &guests, "measured").unwrap();
        let [low, high] = draft.interval_of("read").unwrap();
        assert!(low <= 860 && (883..900).contains(&high), "the median is 883: {low} to {high}");
        draft.distribution("read", &guests[..11], "measured").unwrap();
        let [low, high] = draft.interval_of("read").unwrap();
        assert!((840..850).contains(&low) && (850..=863).contains(&high), "{low} to {high}");
    }
}
