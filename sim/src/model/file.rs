//! A model and its file.

use std::collections::BTreeMap;

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::Spec;
use host_pmu::backend::scheduling::{Assignment, CounterMask, Processor};
use thiserror::Error;

use super::cost::{Cost, Section};
use super::costs::Costs;

/// Returns the text of a model with the costs of clx-ap-watchdog-on, and of its forms.
macro_rules! with_forms {
    ($name:literal) => {
        concat!(include_str!(concat!("../../models/", $name, ".toml")), include_str!("../../models/clx-forms.toml"))
    };
}

/// Names and texts of the embedded models.
pub const EMBEDDED: [(&str, &str); 6] = [
    ("development-host", include_str!("../../models/development-host.toml")),
    ("clx-ap-watchdog-on", with_forms!("clx-ap-watchdog-on")),
    ("clx-ap-watchdog-off", with_forms!("clx-ap-watchdog-off")),
    ("icx-2021", with_forms!("icx-2021")),
    ("spr-2026", with_forms!("spr-2026")),
    ("development-host-tracepoint", include_str!("../../models/development-host-tracepoint.toml")),
];

/// A fitted constant.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Its other forms.
    pub forms: Vec<Form>,
}

/// A form of a model: some of its costs are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The model, named MODEL:FORM.
    pub model: Model,
    /// Figure of `results/published.toml` and its number which does not tell it from the model itself.
    pub fits: Option<String>,
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
        let known = || EMBEDDED.map(|(name, _)| name).join(", ");
        let found = EMBEDDED.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| ModelError {
            name: name.to_owned(),
            why: format!("no such model; there are {}, and files ending in .toml", known()),
        })?;
        Self::from_toml(name, text)
    }

    /// Parses a model; `origin` names it in errors.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse(text).map_err(|why| ModelError { name: origin.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message())
        })?;
        Self::read(table)
    }

    fn read(mut table: toml::Table) -> Result<Self, String> {
        let forms = table.remove("form");
        let base = forms.is_some().then(|| table.clone());
        let mut sources = BTreeMap::new();
        let mut top = Section::new("", table, &mut sources);
        let name = top.text("name")?;
        let about = top.text("about")?;
        let tsc_khz = top.whole("tsc", "khz", 1000..=100_000_000)?;
        let fitted = fitted(&mut top)?;
        let checked = checked(&mut top)?;
        let host = top.section("host", host)?;
        let (follows, default_rate, rates) = top.section("counts", counts)?;
        let mut costs = top.section("cost", Costs::read)?;
        top.end()?;
        if follows != CountBase::GuestTime && costs.peek.is_none() {
            costs.peek = Some(Cost::fixed(PEEK_NS));
        }
        if follows == CountBase::Exits && matches!(host.pmu, HostPmu::Of { .. }) {
            return Err("host.processor: events that follow exits need no counter of it".to_owned());
        }
        for Fitted { constant, .. } in &fitted {
            if !sources.contains_key(constant) {
                return Err(format!("fitted: there is no constant '{constant}'"));
            }
        }
        let forms = base.zip(forms).map_or(Ok(Vec::new()), |(base, forms)| read_forms(&base, forms))?;
        Ok(Self {
            name,
            about,
            tsc_khz,
            host,
            base: follows,
            default_rate,
            rates,
            costs,
            fitted,
            sources,
            checked,
            forms,
        })
    }

    /// Returns the form of this name.
    ///
    /// # Errors
    /// It has none of this name: those that it has.
    pub fn form(&self, name: &str) -> Result<Self, String> {
        let full = format!("{}:{name}", self.name);
        let found = self.forms.iter().find(|form| form.model.name == full);
        let known: Vec<&str> = self.forms.iter().map(|form| form.model.name.as_str()).collect();
        let known = if known.is_empty() { "no forms".to_owned() } else { known.join(", ") };
        found.map(|form| form.model.clone()).ok_or_else(|| format!("no form '{name}'; there are {known}"))
    }

    /// Returns the forms that agree with the published figures as well as the model itself does: a figure of the model is
    /// known to the range that it and these give, and no better. `reproduce` and `sim` show that range.
    pub fn fitting_forms(&self) -> impl Iterator<Item = &Self> {
        self.forms.iter().filter(|form| form.fits.is_some()).map(|form| &form.model)
    }

    /// Returns its constants as text: costs, and all others; without names, sources and forms.
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

/// Reads the forms of the model in `base`, each a table of costs, ns, with their source.
fn read_forms(base: &toml::Table, forms: toml::Value) -> Result<Vec<Form>, String> {
    let toml::Value::Table(forms) = forms else { return Err("form: not a table".to_owned()) };
    let as_good: toml::Table = forms
        .iter()
        .filter(|(_, value)| value.get("fits").is_some())
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect();
    let read = |(name, value): (String, toml::Value)| {
        let path = format!("form.{name}");
        let toml::Value::Table(table) = value else { return Err(format!("{path}: not a table")) };
        let mut unused = BTreeMap::new();
        let mut section = Section::new(&path, table, &mut unused);
        let source = section.text("source")?;
        let fits = section.optional("fits", Section::text)?;
        let mut table = base.clone();
        let costs = section.table("cost")?;
        section.end()?;
        if fits.is_none() {
            // Another host, known no better than the model.
            table.insert("form".to_owned(), toml::Value::Table(as_good.clone()));
        }
        let whole = table.get("name").and_then(toml::Value::as_str).unwrap_or_default();
        let full = format!("{whole}:{name}");
        table.insert("name".to_owned(), full.into());
        if let Some(toml::Value::Table(all)) = table.get_mut("cost") {
            for (key, ns) in costs {
                let constant = [("ns".to_owned(), ns), ("source".to_owned(), source.clone().into())];
                all.insert(key, toml::Value::Table(constant.into_iter().collect()));
            }
        }
        let model = Model::read(table).map_err(|why| format!("{path}: {why}"))?;
        Ok(Form { model, fits })
    };
    forms.into_iter().map(read).collect()
}

/// Reads how far a model is from the runs that it was made from.
fn checked(top: &mut Section<'_>) -> Result<Option<[u64; 2]>, String> {
    let Some((path, value)) = top.optional("checked", |top, key| top.constant(key, "percent"))? else {
        return Ok(None);
    };
    let whole = |value: &toml::Value| value.as_integer().and_then(|percent| u64::try_from(percent).ok());
    let percent: Option<Vec<u64>> = value.as_array().and_then(|list| list.iter().map(whole).collect());
    match percent.as_deref() {
        Some(&[low, high]) if (1..=100).contains(&low) && (100..=MAX_PERCENT).contains(&high) => Ok(Some([low, high])),
        _ => Err(format!("{path}: not a percentage from 1 to 100 and one from 100 to {MAX_PERCENT}")),
    }
}

fn fitted(top: &mut Section<'_>) -> Result<Vec<Fitted>, String> {
    let Some(list) = top.optional_list("fitted")? else { return Ok(Vec::new()) };
    list.into_iter()
        .enumerate()
        .map(|(i, item)| {
            let toml::Value::Table(table) = item else { return Err(format!("fitted[{i}]: not a table")) };
            let mut unused = BTreeMap::new();
            let mut section = Section::new(&format!("fitted[{i}]"), table, &mut unused);
            let fitted = Fitted { constant: section.text("constant")?, figure: section.text("figure")? };
            section.end()?;
            Ok(fitted)
        })
        .collect()
}

/// Cost of a look at a clock's count without a host call, by the vDSO, where a model has none.
const PEEK_NS: u64 = 40;
/// Most percent of what was measured that a model may take.
const MAX_PERCENT: u64 = 1_000_000;
/// Maximum number of host counters.
const MAX_COUNTERS: u64 = 64;

/// Other tasks of the host that preempt the vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// Time from the start of a slice to a preemption, ns.
    pub every: Cost,
    /// Duration of a preemption, ns.
    pub length: Cost,
}

/// Counters of a CPU of the host, and what others hold of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPmu {
    /// A known processor has its counters, by perf's rules.
    Of {
        /// The processor.
        processor: Processor,
        /// Events that others have pinned, such as the NMI watchdog's: umask << 8 | event code.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostModel {
    /// Its counters.
    pub pmu: HostPmu,
    /// Sched slice of a vCPU thread on a shared CPU, ns.
    pub slice: u64,
    /// Failing opens per 1000.
    pub refused_permille: u64,
    /// Shortest period of a clock, ns, as in `host_pmu::backend::perf`.
    pub shortest_period: u64,
    /// Other tasks, if any.
    pub others: Option<Others>,
}

impl Others {
    /// Preemptions for `length` ns, `every` ns after the start of a slice.
    pub const fn new(every: Cost, length: Cost) -> Self {
        Self { every, length }
    }
}

pub(super) fn host(section: &mut Section<'_>) -> Result<HostModel, String> {
    Ok(HostModel {
        pmu: pmu(section)?,
        slice: section.whole("slice", "ns", 1000..=1_000_000_000_000)?,
        shortest_period: section
            .optional("shortest-period", |host, key| host.whole(key, "ns", 1..=1_000_000_000))?
            .unwrap_or(50_000),
        refused_permille: section.optional("refused", |host, key| host.whole(key, "permille", 0..=1000))?.unwrap_or(0),
        others: section.optional("others", |host, key| host.section(key, others))?,
    })
}

fn others(section: &mut Section<'_>) -> Result<Others, String> {
    let every = section.cost("every")?;
    if every.smallest() == 0 {
        return Err(format!("{}: 0 ns between other tasks leave the vCPU no time", section.path("every")));
    }
    Ok(Others::new(every, section.cost("length")?))
}

/// Reads the processor and the events that others have pinned there, or a number of counters and of those taken.
fn pmu(section: &mut Section<'_>) -> Result<HostPmu, String> {
    if let Some((path, name)) = section.optional("processor", |host, key| host.constant(key, "name"))? {
        let processor = name
            .as_str()
            .and_then(Processor::named)
            .ok_or_else(|| format!("{path}: {name} is none of {}", Processor::ALL.map(Processor::name).join(", ")))?;
        let (path, events) = section
            .optional("pinned", |host, key| host.constant(key, "events"))?
            .unwrap_or_else(|| (String::new(), toml::Value::Array(Vec::new())));
        let code = |event: &toml::Value| event.as_integer().and_then(|code| u16::try_from(code).ok());
        let pinned = events.as_array().map(|events| events.iter().map(code).collect::<Option<Vec<u16>>>());
        let pinned = pinned.flatten().filter(|pinned| pinned.len() as u64 <= MAX_COUNTERS);
        let pinned = pinned.ok_or_else(|| format!("{path}: not a list of at most 64 umasks and event codes"))?;
        return Ok(HostPmu::Of { processor, pinned });
    }
    let counters = section.whole("counters", "value", 1..=MAX_COUNTERS)?;
    let taken = section.whole("taken", "value", 0..=MAX_COUNTERS)?;
    if taken > counters {
        return Err(format!("host.taken: {taken} of {counters} counters cannot be taken"));
    }
    Ok(HostPmu::Alike { counters, taken })
}

/// Fractional bits of a rate.
const RATE_SHIFT: u32 = 20;
/// Base of the count of host events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Base, default rate, and rates by umask << 8 | event code.
pub(super) type Counts = (CountBase, Rate, BTreeMap<u16, Rate>);

pub(super) fn counts(section: &mut Section<'_>) -> Result<Counts, String> {
    let (base, unit, per) = match section.text("follow")?.as_str() {
        "guest-time" => (CountBase::GuestTime, "per-us", 1000.0),
        "thread-time" => (CountBase::ThreadTime, "per-us", 1000.0),
        "exits" => (CountBase::Exits, "per-exit", 1.0),
        other => return Err(format!("counts.follow: '{other}' is none of guest-time, thread-time and exits")),
    };
    let default = rate(section.number("default", unit)?, per);
    let mut rates = BTreeMap::new();
    let read = |events: &mut Section<'_>| {
        for key in events.keys() {
            let code = key.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
            let code = code.ok_or_else(|| format!("{}: not an umask and event code in hex", events.path(&key)))?;
            rates.insert(code, rate(events.number(&key, unit)?, per));
        }
        Ok(())
    };
    section.optional("events", |counts, key| counts.section(key, read))?;
    Ok((base, default, rates))
}

/// Returns the rate of `counts` per `per` ns or exits; `counts` is finite and not negative.
fn rate(counts: f64, per: f64) -> Rate {
    #[expect(clippy::cast_sign_loss, reason = "checked by the reader")]
    Rate::new((counts * f64::from(1 << RATE_SHIFT) / per).round().min(1e12) as u64)
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
