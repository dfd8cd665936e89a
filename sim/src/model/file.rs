//! A model and its file.

use std::collections::BTreeMap;

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::Spec;
use host_pmu::backend::scheduling::{Assignment, CounterMask, Processor};
use serde::Deserialize;
use thiserror::Error;
use toml::{Table, Value};

use super::cost::Cost;
use super::costs::Costs;

/// Names and texts of the embedded models.
pub const EMBEDDED: [(&str, &str); 8] = [
    ("development-host", include_str!("../../models/development-host.toml")),
    ("clx-ap-watchdog-on", include_str!("../../models/clx-ap-watchdog-on.toml")),
    ("clx-ap-watchdog-off", include_str!("../../models/clx-ap-watchdog-off.toml")),
    ("icx-2021", include_str!("../../models/icx-2021.toml")),
    ("spr-2026", include_str!("../../models/spr-2026.toml")),
    ("development-host-tracepoint", include_str!("../../models/development-host-tracepoint.toml")),
    ("clx-in-kernel", include_str!("../../models/clx-in-kernel.toml")),
    ("clx-resume-other", include_str!("../../models/clx-resume-other.toml")),
];

/// A fitted constant.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Key with its sections.
    pub constant: String,
    /// Figure of `results/published.toml` and its number, e.g. "x.mean before".
    pub figure: String,
}

/// A model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Name.
    pub name: String,
    /// Description.
    pub about: String,
    /// TSC frequency of the guest, kHz.
    pub tsc_khz: u64,
    /// Host.
    pub host: HostModel,
    /// Base of counts.
    pub base: CountBase,
    default_rate: Rate,
    rates: BTreeMap<u16, Rate>,
    /// Costs.
    pub costs: Costs,
    /// Fitted constants.
    pub fitted: Vec<Fitted>,
    /// Source of each constant, by key.
    pub sources: BTreeMap<String, String>,
    /// Least and greatest percent of what was measured that it takes, of a calibrated model.
    pub checked: Option<[u64; 2]>,
}

/// A model that cannot be used; displayed as one line with the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("model {name}: {why}")]
pub struct ModelError {
    /// Name or path of the model.
    pub name: String,
    /// Reason, with the key.
    pub why: String,
}

impl Model {
    /// Returns the embedded model `name`.
    ///
    /// # Errors
    /// No embedded model has this name.
    pub fn embedded(name: &str) -> Result<Self, ModelError> {
        embedded(name).and_then(Self::parse).map_err(|why| ModelError { name: name.to_owned(), why })
    }

    /// Returns the text of the embedded model `name`.
    pub fn text(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Parses a model; `origin` names it in errors.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse(text).map_err(|why| ModelError { name: origin.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message())
        })?;
        let mut table = whole(table)?;
        let mut sources = BTreeMap::new();
        let follow = table.get("counts").and_then(|counts| counts.get("follow")).and_then(Value::as_str);
        let per = if follow == Some("exits") { "per-exit" } else { "per-us" };
        values_of("", &mut table, per, &mut sources)?;
        complete(&mut table);
        let File { name, about, tsc, fitted, checked, host, counts, mut cost } =
            table.try_into().map_err(|error| one_line(&error))?;
        if counts.follow != CountBase::GuestTime && cost.peek.is_none() {
            cost.peek = Some(Cost::fixed(PEEK_NS));
        }
        let (counters, taken, pinned) = match &host.pmu {
            HostPmu::Of { .. } if counts.follow == CountBase::Exits => {
                return Err("host.processor: events that follow exits need no counter of it".to_owned());
            }
            HostPmu::Of { pinned, .. } => (1, 0, pinned.len() as u64),
            HostPmu::Alike { counters, taken } => (*counters, *taken, 0),
        };
        for (key, value, range) in [
            ("tsc", tsc, 1000..=100_000_000),
            ("cost.instruction", cost.instruction_ps, 1..=1_000_000_000),
            ("cost.work-unit", cost.work_unit, 1..=1_000_000_000),
            ("host.slice", host.slice, 1000..=1_000_000_000_000),
            ("host.shortest-period", host.shortest_period, 1..=1_000_000_000),
            ("host.refused", host.refused_permille, 0..=1000),
            ("host.counters", counters, 1..=MAX_COUNTERS),
            ("host.taken", taken, 0..=counters),
            ("host.pinned", pinned, 0..=MAX_COUNTERS),
            ("host.others.every", host.others.as_ref().map_or(1, |others| others.every.smallest()), 1..=u64::MAX),
            ("checked", checked.map_or(1, |[low, _]| low), 1..=100),
            ("checked", checked.map_or(100, |[_, high]| high), 100..=MAX_PERCENT),
        ] {
            if !range.contains(&value) {
                return Err(format!("{key}: {value} is not from {} to {}", range.start(), range.end()));
            }
        }
        for Fitted { constant, .. } in &fitted {
            if !sources.contains_key(constant) {
                return Err(format!("fitted: there is no constant '{constant}'"));
            }
        }
        let mut rates = BTreeMap::new();
        for (key, value) in counts.events {
            let code = key.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
            let code = code.ok_or_else(|| format!("counts.events.{key}: not an umask and event code in hex"))?;
            rates.insert(code, rate(value, counts.follow)?);
        }
        let (base, default_rate) = (counts.follow, rate(counts.default, counts.follow)?);
        Ok(Self { name, about, tsc_khz: tsc, host, base, default_rate, rates, costs: cost, fitted, sources, checked })
    }

    /// Returns its constants as text: costs, and all others; without names and sources.
    pub fn constants(&self) -> [String; 2] {
        let others = (self.tsc_khz, &self.host, self.base, self.default_rate, &self.rates);
        [format!("{:?}", self.costs), format!("{others:?}")]
    }

    /// Multiplies a cost of `[cost]` by `factor`, up to the maximum of a model. `open` and `release` scale both of their costs.
    ///
    /// # Errors
    /// The cost is unknown, or the factor is negative, not finite or above 1 000 000.
    pub fn scale(&mut self, cost: &str, factor: f64) -> Result<(), ModelError> {
        let refuse = |why| Err(ModelError { name: self.name.clone(), why });
        if !(0.0..=1e6).contains(&factor) {
            return refuse(format!("cost.{cost}: {factor} is not a factor from 0 to 1000000"));
        }
        if !self.costs.scale(cost, factor) {
            return refuse(format!("there is no cost '{cost}'; there are {}", Costs::SCALABLE.join(", ")));
        }
        Ok(())
    }

    /// Returns the counters with the events of other users alone; `None` where events need no counters.
    pub fn others(&self) -> Option<Assignment> {
        self.needs_counters().then(|| {
            let mut others = Assignment::default();
            for event in self.host.pmu.others() {
                // One that finds no counter is its user's loss.
                others.add([event]);
            }
            others
        })
    }

    /// Returns whether its events need hardware counters: stand-ins do not.
    pub fn needs_counters(&self) -> bool {
        self.base == CountBase::GuestTime || matches!(self.host.pmu, HostPmu::Of { .. })
    }

    /// Returns the rate of an event by umask << 8 | event code.
    pub fn rate(&self, code: u16) -> Rate {
        self.rates.get(&code).copied().unwrap_or(self.default_rate)
    }
}

/// The keys of a file whose constants are [values](values_of).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    about: String,
    tsc: u64,
    #[serde(default)]
    fitted: Vec<Fitted>,
    checked: Option<[u64; 2]>,
    host: HostModel,
    counts: CountKeys,
    cost: Costs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountKeys {
    follow: CountBase,
    default: f64,
    #[serde(default)]
    events: BTreeMap<String, f64>,
}

fn embedded(name: &str) -> Result<&'static str, String> {
    let known = || EMBEDDED.map(|(name, _)| name).join(", ");
    Model::text(name).ok_or_else(|| format!("no such model; there are {}, and files ending in .toml", known()))
}

/// Fills in what a file with a `base` leaves out: the constants of that embedded model. What was fitted or checked holds for its costs
/// alone.
fn whole(mut own: Table) -> Result<Table, String> {
    let Some(base) = own.remove("base") else { return Ok(own) };
    let text = embedded(base.as_str().unwrap_or_default()).map_err(|why| format!("base: {why}"))?;
    let mut table = whole(text.parse().map_err(|error| one_line(&error))?)?;
    if own.contains_key("cost") {
        table.retain(|key, _| !matches!(key, "fitted" | "checked"));
    }
    overlay(&mut table, own);
    Ok(table)
}

/// Replaces what `own` has, constant by constant.
fn overlay(table: &mut Table, own: Table) {
    for (key, value) in own {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(all)), Value::Table(some)) if !all.contains_key("source") => overlay(all, some),
            (_, value) => _ = table.insert(key, value),
        }
    }
}

/// Puts its value in the place of each constant, a table of a value by its unit and a source, and notes the source. Its 95 %
/// interval is for the reader.
fn values_of(path: &str, table: &mut Table, per: &str, sources: &mut BTreeMap<String, String>) -> Result<(), String> {
    for (key, value) in table.iter_mut() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let Value::Table(inner) = value else { continue };
        if inner.contains_key("follow") || inner.values().all(Value::is_table) {
            values_of(&path, inner, per, sources)?;
            continue;
        }
        let unit = match path.as_str() {
            "tsc" => "khz",
            "checked" => "percent",
            "host.processor" => "name",
            "host.pinned" => "events",
            "host.counters" | "host.taken" => "value",
            "host.refused" => "permille",
            "cost.instruction" => "ps",
            counts if counts.starts_with("counts.") => per,
            _ => "ns",
        };
        let found = inner.remove(unit).ok_or_else(|| format!("{path}.{unit}: missing"))?;
        let source = inner.remove("source").and_then(|source| source.as_str().map(str::to_owned));
        let source = source.filter(|text| !text.trim().is_empty()).ok_or_else(|| format!("{path}.source: missing"))?;
        inner.remove("interval");
        if let Some(key) = inner.keys().next() {
            return Err(format!("{path}.{key}: unknown key"));
        }
        sources.insert(path, source);
        *value = found;
    }
    Ok(())
}

/// Adds the costs that are others' where they are left out, and puts together what is one thing: the costs of a PMU that the guest
/// owns, and the host's counters.
fn complete(file: &mut Table) {
    let mut section = |name: &str, act: &dyn Fn(&mut Table)| {
        if let Some(Value::Table(table)) = file.get_mut(name) {
            act(table);
        }
    };
    let gather = |table: &mut Table, keys: &[&str]| -> Table {
        keys.iter().filter_map(|&key| Some((key.to_owned(), table.remove(key)?))).collect()
    };
    section("cost", &|costs| {
        for (key, other) in [("io", "exit"), ("period-running", "period")] {
            if let Some(cost) = costs.get(other).cloned() {
                costs.entry(key).or_insert(cost);
            }
        }
        let mediated = gather(costs, &["pmu-switch", "register"]);
        if !mediated.is_empty() {
            costs.insert("mediated".to_owned(), Value::Table(mediated));
        }
    });
    section("host", &|host| {
        let kind = if host.contains_key("processor") { "of" } else { "alike" };
        let pmu = gather(host, &["processor", "pinned", "counters", "taken"]);
        host.insert("pmu".to_owned(), Value::Table([(kind.to_owned(), Value::Table(pmu))].into_iter().collect()));
    });
}

/// Puts an error, with its key, into one line.
fn one_line(error: &toml::de::Error) -> String {
    error.to_string().trim().replace('\n', " ")
}

/// Cost of a look at a clock's count without a host call, by the vDSO, where a model has none.
const PEEK_NS: u64 = 40;
/// Most percent of what was measured that a model may take.
const MAX_PERCENT: u64 = 1_000_000;
/// Maximum number of host counters.
const MAX_COUNTERS: u64 = 64;

/// Other tasks of the host that preempt the vCPU.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// Time from the start of a slice to a preemption, ns.
    pub every: Cost,
    /// Duration of a preemption, ns.
    pub length: Cost,
}

/// Counters of a CPU of the host, and what others hold of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostPmu {
    /// A known processor has its counters, by perf's rules.
    Of {
        /// The processor.
        processor: Processor,
        /// Events that others have pinned, such as the NMI watchdog's: umask << 8 | event code.
        #[serde(default)]
        pinned: Vec<u16>,
    },
    /// So many alike: what counts on which is not known, or events need none.
    Alike {
        /// Counters.
        counters: u64,
        /// Counters in use by others.
        taken: u64,
    },
}

impl HostPmu {
    /// Returns the counters that may count an event.
    pub fn allows(&self, spec: Spec) -> CounterMask {
        match self {
            Self::Of { processor, .. } => processor.allows(spec),
            Self::Alike { counters, .. } => u64::MAX >> (64 - counters),
        }
    }

    /// Returns the counters that may count each event of others.
    pub fn others(&self) -> Vec<CounterMask> {
        match self {
            Self::Of { processor, pinned } => {
                let spec = |&code: &u16| PerfEvtSel::from_bits(ENABLED | u64::from(code)).spec();
                pinned.iter().map(|code| processor.allows(spec(code))).collect()
            }
            Self::Alike { counters, taken } => vec![u64::MAX >> (64 - counters); *taken as usize],
        }
    }
}

/// A selector that counts in all rings.
const ENABLED: u64 = 0x53_0000;

/// Properties of the simulated host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostModel {
    /// Its counters.
    pub pmu: HostPmu,
    /// Sched slice of a vCPU thread on a shared CPU, ns.
    pub slice: u64,
    /// Failing opens per 1000.
    #[serde(rename = "refused", default)]
    pub refused_permille: u64,
    /// Shortest period of a clock, ns, as in `host_pmu::backend::perf`.
    #[serde(default = "shortest_period")]
    pub shortest_period: u64,
    /// Other tasks, if any.
    pub others: Option<Others>,
}

const fn shortest_period() -> u64 {
    50_000
}

/// Fractional bits of a rate.
const RATE_SHIFT: u32 = 20;
/// Base of the count of host events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountBase {
    /// Time in guest mode in the selected rings: a hardware event with `exclude_host`.
    GuestTime,
    /// Time of the vCPU thread: a clock as stand-in.
    ThreadTime,
    /// Exits of the vCPU to userspace: tracepoint `kvm:kvm_userspace_exit` as stand-in.
    Exits,
}

/// Counts per nanosecond (per exit, where those are counted), in units of 2^-20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    rate: u64,
    /// 2^64 / `rate`, rounded down: a product with it takes the place of a division at each period.
    reciprocal: u64,
}

impl Rate {
    /// Creates a rate in units of 2^-20.
    const fn new(rate: u64) -> Self {
        // A rate of 0 or 1 does not use the reciprocal, which would not fit.
        Self { rate, reciprocal: if rate > 1 { ((1_u128 << 64) / rate as u128) as u64 } else { 0 } }
    }

    /// Returns the counts in `ns` (or in as many exits).
    #[inline]
    pub const fn counts(self, ns: u64) -> u64 {
        ((ns as u128 * self.rate as u128) >> RATE_SHIFT) as u64
    }

    /// Returns the least ns for `counts`; `u64::MAX` at rate 0.
    #[inline]
    pub fn ns_for(self, counts: u64) -> u64 {
        if self.rate > 1 && counts <= u64::MAX >> RATE_SHIFT {
            let shifted = counts << RATE_SHIFT;
            // The reciprocal is rounded down by less than 1, so the quotient is at most 1 too small.
            let quotient = ((u128::from(shifted) * u128::from(self.reciprocal)) >> 64) as u64;
            let rest = shifted - quotient * self.rate;
            quotient + u64::from(rest > 0) + u64::from(rest > self.rate)
        } else {
            self.ns_for_many(counts)
        }
    }

    #[cold]
    fn ns_for_many(self, counts: u64) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        let ns = (u128::from(counts) << RATE_SHIFT).div_ceil(u128::from(self.rate));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Returns the rate of `counts` per µs, or per exit.
fn rate(counts: f64, follow: CountBase) -> Result<Rate, String> {
    let per = if follow == CountBase::Exits { 1.0 } else { 1000.0 };
    if !(0.0..=f64::MAX).contains(&counts) {
        return Err(format!("counts: {counts} is not a rate"));
    }
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    Ok(Rate::new((counts * f64::from(1 << RATE_SHIFT) / per).round().min(1e12) as u64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The counts are reached after the ns of `ns_for`, and not before.
        #[test]
        fn ns_for_is_the_least(rate in 1..1u64 << 34, counts in 1..1u64 << 47) {
            let rate = Rate::new(rate);
            let ns = rate.ns_for(counts);
            if ns < u64::MAX {
                prop_assert!(rate.counts(ns) >= counts);
                prop_assert!(rate.counts(ns - 1) < counts);
            }
        }

        /// The product is the division.
        #[test]
        fn ns_for_is_the_quotient(rate: u64, shift in 0..64u32, counts: u64, by in 0..64u32) {
            let (rate, counts) = (rate >> shift, counts >> by);
            let quotient = (u128::from(counts) << RATE_SHIFT).checked_div(u128::from(rate)).map(|whole| {
                whole + u128::from(whole * u128::from(rate) != u128::from(counts) << RATE_SHIFT)
            });
            let expected = quotient.map_or(u64::MAX, |ns| u64::try_from(ns).unwrap_or(u64::MAX));
            prop_assert_eq!(Rate::new(rate).ns_for(counts), expected);
        }
    }
}
