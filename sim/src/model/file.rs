//! A model and its file.

use std::collections::BTreeMap;

use thiserror::Error;

use super::costs::{Costs, costs};
use super::host::{HostModel, host};
use super::rate::{CountBase, Rate, counts};
use super::read::Section;

/// Names and texts of the embedded models.
pub const EMBEDDED: [(&str, &str); 6] = [
    ("development-host", include_str!("../../models/development-host.toml")),
    ("clx-ap-watchdog-on", include_str!("../../models/clx-ap-watchdog-on.toml")),
    ("clx-ap-watchdog-off", include_str!("../../models/clx-ap-watchdog-off.toml")),
    ("icx-2021", include_str!("../../models/icx-2021.toml")),
    ("spr-2026", include_str!("../../models/spr-2026.toml")),
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

    /// Returns the rate of an event by umask << 8 | event code.
    #[must_use]
    pub fn rate(&self, code: u16) -> Rate {
        self.rates.get(&code).copied().unwrap_or(self.default_rate)
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
