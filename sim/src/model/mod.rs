//! Every constant of a simulation, read from a TOML file.
//!
//! A constant is a table of its value, in the unit its key names, and its `source`. A cost is one number of nanoseconds or
//! equally spaced quantiles of its distribution, from the smallest value to the largest. What was fitted to a published
//! figure stands apart, in `fitted`; everything else is taken from its source.

mod cost;
mod read;

use std::collections::BTreeMap;

use thiserror::Error;

pub use cost::Cost;
use read::{MAX_NS, Section};

/// Names and texts of the models that come along.
pub const EMBEDDED: [(&str, &str); 5] = [
    ("development-host", include_str!("../../models/development-host.toml")),
    ("clx-ap-watchdog-on", include_str!("../../models/clx-ap-watchdog-on.toml")),
    ("clx-ap-watchdog-off", include_str!("../../models/clx-ap-watchdog-off.toml")),
    ("icx-2021", include_str!("../../models/icx-2021.toml")),
    ("development-host-tracepoint", include_str!("../../models/development-host-tracepoint.toml")),
];

/// Binary digits of the fraction of a rate.
const RATE_SHIFT: u32 = 20;
/// Most host counters a model may have.
const MAX_COUNTERS: u64 = 64;

/// What a host event's count follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountBase {
    /// Time in guest mode, in the rings the selector names: a hardware event with `exclude_host`.
    GuestTime,
    /// Time of the vCPU thread: a clock as stand-in.
    ThreadTime,
    /// Exits of the vCPU to userspace: tracepoint `kvm:kvm_userspace_exit` as stand-in.
    Exits,
}

/// Counts per nanosecond (per exit, where those are counted), in units of 2^-20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// Whole counts in `ns`, or in so many exits.
    #[inline]
    #[must_use]
    pub const fn counts(self, ns: u64) -> u64 {
        ((ns as u128 * self.0 as u128) >> RATE_SHIFT) as u64
    }

    /// The least ns in which there are `counts`; `u64::MAX` if that never is.
    #[inline]
    #[must_use]
    pub fn ns_for(self, counts: u64) -> u64 {
        if self.0 == 0 {
            return u64::MAX;
        }
        match counts.checked_shl(RATE_SHIFT).filter(|shifted| shifted >> RATE_SHIFT == counts) {
            // The usual case, by a 64-bit division.
            Some(shifted) => shifted.div_ceil(self.0),
            None => {
                let ns = (u128::from(counts) << RATE_SHIFT).div_ceil(u128::from(self.0));
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Tasks of the host that take the vCPU's CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// From a turn's begin until one comes, ns.
    pub every: Cost,
    /// How long it stays, ns.
    pub length: Cost,
}

/// The simulated host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostModel {
    /// Hardware counters of a CPU, general-purpose and fixed together.
    pub counters: u64,
    /// Of those, counters that events of other users of the PMU hold, the NMI watchdog's among them.
    pub taken: u64,
    /// A turn of a vCPU thread on a shared CPU, ns.
    pub slice: u64,
    /// Of 1000 opens, those that fail.
    pub refused_permille: u64,
    /// The shortest period asked of a clock, ns: what `host_pmu::backend::perf` takes there.
    pub shortest_period: u64,
    /// Other tasks, if there are any.
    pub others: Option<Others>,
}

/// What things cost. ns unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An MSR access: from the guest's instruction to the vPMU, and from there back.
    pub exit: Cost,
    /// What an MSR access in the guest's tick costs beyond that.
    pub tick_exit: Cost,
    /// A port write in ring 3: from the guest's instruction to the VMM, and from there back.
    pub io: Cost,
    /// The vPMU's own work at an exit.
    pub vmm: Cost,
    /// A write to the local APIC (LVTPC, EOI), handled in the kernel.
    pub apic: Cost,
    /// From a host event's overflow in guest mode to the vPMU.
    pub signal: Cost,
    /// Handing a PMI over: LVTPC, NMI, LVTPC's mask.
    pub inject: Cost,
    /// From the entry with an interrupt to its handler's first instruction.
    pub interrupt: Cost,
    /// Picoseconds of one instruction in ring 0.
    pub instruction_ps: u64,
    /// A unit of the guest's work in ring 3.
    pub work_unit: u64,
    /// Creating the host's only event.
    pub open_first: Cost,
    /// Creating one more.
    pub open_more: Cost,
    /// Closing the host's only event.
    pub release_last: Cost,
    /// Closing another.
    pub release: Cost,
    /// Pausing.
    pub pause: Cost,
    /// Resuming.
    pub resume: Cost,
    /// And for each other event that runs on the vCPU: enabling one schedules all of them anew.
    pub resume_other: Cost,
    /// A new period.
    pub period: Cost,
    /// Reading a running event.
    pub read: Cost,
}

impl Costs {
    /// What [`Model::scale`] takes: every cost's key, and `open` and `release` for both of theirs.
    pub const SCALABLE: [&str; 20] = [
        "exit",
        "tick-exit",
        "io",
        "vmm",
        "apic",
        "signal",
        "inject",
        "interrupt",
        "instruction",
        "work-unit",
        "open",
        "open-first",
        "open-more",
        "release",
        "release-last",
        "pause",
        "resume",
        "resume-other",
        "period",
        "read",
    ];

    fn scale(&mut self, key: &str, factor: f64) -> bool {
        #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
        let whole = |value: u64| (value as f64 * factor).round().clamp(1.0, MAX_NS) as u64;
        let costs: &mut [&mut Cost] = match key {
            "instruction" => {
                self.instruction_ps = whole(self.instruction_ps);
                &mut []
            }
            "work-unit" => {
                self.work_unit = whole(self.work_unit);
                &mut []
            }
            "exit" => &mut [&mut self.exit],
            "tick-exit" => &mut [&mut self.tick_exit],
            "io" => &mut [&mut self.io],
            "vmm" => &mut [&mut self.vmm],
            "apic" => &mut [&mut self.apic],
            "signal" => &mut [&mut self.signal],
            "inject" => &mut [&mut self.inject],
            "interrupt" => &mut [&mut self.interrupt],
            "open" => &mut [&mut self.open_first, &mut self.open_more],
            "open-first" => &mut [&mut self.open_first],
            "open-more" => &mut [&mut self.open_more],
            "release" => &mut [&mut self.release_last, &mut self.release],
            "release-last" => &mut [&mut self.release_last],
            "pause" => &mut [&mut self.pause],
            "resume" => &mut [&mut self.resume],
            "resume-other" => &mut [&mut self.resume_other],
            "period" => &mut [&mut self.period],
            "read" => &mut [&mut self.read],
            _ => return false,
        };
        for cost in costs {
            **cost = cost.scaled(factor, MAX_NS);
        }
        true
    }
}

/// A constant that was fitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// Its key, with the sections before it.
    pub constant: String,
    /// The figure of `results/published.toml` it was fitted to, and which of its numbers.
    pub figure: String,
}

/// A model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What it is a model of.
    pub about: String,
    /// The guest's TSC, kHz.
    pub tsc_khz: u64,
    /// The host.
    pub host: HostModel,
    /// What counts follow.
    pub base: CountBase,
    default_rate: Rate,
    rates: BTreeMap<u16, Rate>,
    /// The costs.
    pub costs: Costs,
    /// Fitted constants.
    pub fitted: Vec<Fitted>,
    /// Where each constant comes from, by key.
    pub sources: BTreeMap<String, String>,
}

/// Why a model cannot be used: one line that names the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("model {name}: {why}")]
pub struct ModelError {
    /// The model's name or path.
    pub name: String,
    /// What is wrong, with the key.
    pub why: String,
}

impl Model {
    /// The model that comes along as `name`.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn embedded(name: &str) -> Result<Self, ModelError> {
        let known = || EMBEDDED.map(|(name, _)| name).join(", ");
        let found = EMBEDDED.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| ModelError {
            name: name.to_owned(),
            why: format!("there is no such model; known are {}, or the path of a .toml file", known()),
        })?;
        Self::from_toml(name, text)
    }

    /// A model from its text; `origin` stands in errors.
    ///
    /// # Errors
    /// What is wrong, with the key.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse(text).map_err(|why| ModelError { name: origin.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message())
        })?;
        let mut sources = BTreeMap::new();
        let mut top = Section::new("", table, &mut sources);
        let name = top.text("name")?;
        let about = top.text("about")?;
        let tsc_khz = top.whole("tsc", "khz", 1000..=100_000_000)?;
        let fitted = fitted(&mut top)?;
        let host = top.section("host", host)?;
        let (base, default_rate, rates) = top.section("counts", counts)?;
        let costs = top.section("cost", costs)?;
        top.end()?;
        for Fitted { constant, .. } in &fitted {
            if !sources.contains_key(constant) {
                return Err(format!("fitted: there is no constant '{constant}'"));
            }
        }
        Ok(Self { name, about, tsc_khz, host, base, default_rate, rates, costs, fitted, sources })
    }

    /// Makes an operation `factor` times as dear: a key of `[cost]`; `open` and `release` stand for the host's only event and for
    /// one of several alike. No cost exceeds what a model may say.
    ///
    /// # Errors
    /// There is no such cost, or the factor is negative, not finite or above 1 000 000.
    pub fn scale(&mut self, cost: &str, factor: f64) -> Result<(), ModelError> {
        let refuse = |why| Err(ModelError { name: self.name.clone(), why });
        if !(0.0..=1e6).contains(&factor) {
            return refuse(format!("cost.{cost}: {factor} is no factor from 0 to 1000000"));
        }
        if !self.costs.scale(cost, factor) {
            return refuse(format!("there is no cost '{cost}'; known are {}", Costs::SCALABLE.join(", ")));
        }
        Ok(())
    }

    /// How fast an event counts, by umask << 8 | event code.
    #[must_use]
    pub fn rate(&self, code: u16) -> Rate {
        self.rates.get(&code).copied().unwrap_or(self.default_rate)
    }
}

fn host(section: &mut Section<'_>) -> Result<HostModel, String> {
    let model = HostModel {
        counters: section.whole("counters", "value", 1..=MAX_COUNTERS)?,
        taken: section.whole("taken", "value", 0..=MAX_COUNTERS)?,
        slice: section.whole("slice", "ns", 1000..=1_000_000_000_000)?,
        shortest_period: section.optional_whole("shortest-period", "ns", 1..=1_000_000_000)?.unwrap_or(50_000),
        refused_permille: section.optional_whole("refused", "permille", 0..=1000)?.unwrap_or(0),
        others: section.optional_section("others", |others| {
            let every = others.cost("every")?;
            if every.smallest() == 0 {
                return Err(format!("{}: 0 ns between other tasks leave the vCPU no time", others.path("every")));
            }
            Ok(Others::new(every, others.cost("length")?))
        })?,
    };
    if model.taken > model.counters {
        return Err(format!("host.taken: {} of {} counters cannot be taken", model.taken, model.counters));
    }
    Ok(model)
}

type Counts = (CountBase, Rate, BTreeMap<u16, Rate>);

fn counts(section: &mut Section<'_>) -> Result<Counts, String> {
    let (base, unit, per) = match section.text("follow")?.as_str() {
        "guest-time" => (CountBase::GuestTime, "per-us", 1000.0),
        "thread-time" => (CountBase::ThreadTime, "per-us", 1000.0),
        "exits" => (CountBase::Exits, "per-exit", 1.0),
        other => return Err(format!("counts.follow: '{other}' is none of guest-time, thread-time and exits")),
    };
    let default = rate(section.number("default", unit)?, per);
    let mut rates = BTreeMap::new();
    let events = section.optional_section("events", |events| {
        for key in events.keys() {
            let code = key.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
            let code = code.ok_or_else(|| format!("{}: not an umask and event code in hex", events.path(&key)))?;
            rates.insert(code, rate(events.number(&key, unit)?, per));
        }
        Ok(())
    });
    events?;
    Ok((base, default, rates))
}

/// `counts` in `per` ns or exits; finite and not negative.
fn rate(counts: f64, per: f64) -> Rate {
    #[expect(clippy::cast_sign_loss, reason = "checked by the reader")]
    Rate((counts * f64::from(1 << RATE_SHIFT) / per).round().min(1e12) as u64)
}

fn costs(section: &mut Section<'_>) -> Result<Costs, String> {
    let exit = section.cost("exit")?;
    Ok(Costs {
        tick_exit: section.optional_cost("tick-exit")?.unwrap_or(Cost::fixed(0)),
        io: section.optional_cost("io")?.unwrap_or_else(|| exit.clone()),
        exit,
        vmm: section.cost("vmm")?,
        apic: section.cost("apic")?,
        signal: section.cost("signal")?,
        inject: section.cost("inject")?,
        interrupt: section.cost("interrupt")?,
        instruction_ps: section.whole("instruction", "ps", 1..=1_000_000_000)?,
        work_unit: section.whole("work-unit", "ns", 1..=1_000_000_000)?,
        open_first: section.cost("open-first")?,
        open_more: section.cost("open-more")?,
        release_last: section.cost("release-last")?,
        release: section.cost("release")?,
        pause: section.cost("pause")?,
        resume: section.cost("resume")?,
        resume_other: section.cost("resume-other")?,
        period: section.cost("period")?,
        read: section.cost("read")?,
    })
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

#[cfg(test)]
mod tests;
