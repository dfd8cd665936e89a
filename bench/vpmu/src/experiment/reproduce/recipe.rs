//! Recipes of figures: what is simulated for one, and what is read of a result document, simulated or measured.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use results::document::warnings::{first_open_is_expensive, shares_first_event};
use results::document::{Arm, Document, Summary};
use results::metric::{self, Metric, NMI_DRIVER_OFF};
use results::paired::MIN_ROUNDS;
use results::paired::groups::groups;
use results::published::{Measured, Number, PUBLISHED};
use results::stats::interval::Interval;
use results::stats::jackknife::over_groups;
use serde::Deserialize;
use toml::{Table, Value};

use crate::setting::parse::{Keys, value_text};

/// How a figure is had: a table of `recipes` in published.toml, over that of `recipe`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Recipe {
    /// Begin of the workload of measured runs. Not of runs with a tracepoint: it is a single event.
    pub(super) workload: String,
    /// True if an event that a guest creates is the first of its kind on the host, which is what makes creating it expensive.
    pub(super) first_event: bool,
    /// The arms before and after.
    pub(super) arms: [String; 2],
    /// Metrics whose samples are taken together.
    metrics: Vec<String>,
    statistic: Statistic,
    /// What `vpmu sim` runs, by the long names of its options.
    sim: Table,
    /// What of the guest was fitted to its change.
    pub(super) fitted: Option<String>,
    /// Why the model does not explain it, and the regime that would. docs/simulator.md has the regimes that were tried.
    pub(super) not_explained: Option<String>,
    /// Description of numbers that were not published, and their keys.
    pub(super) what: Option<String>,
    #[serde(default)]
    pub(super) numbers: Vec<String>,
}

/// What is read of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Statistic {
    /// Mean of all samples.
    Mean,
    /// The least.
    Min,
    /// Host events created per NMI behind general-purpose counters.
    Creates,
    /// Host events created per NMI behind fixed counters.
    CreatesFixed,
    /// Time by which the guest's work takes longer than without counters, percent.
    SlowDown,
}

pub(super) static RECIPES: LazyLock<BTreeMap<String, Recipe>> = LazyLock::new(|| read().unwrap_or_default());

/// The published figures.
pub(super) static FIGURES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let table: Option<Table> = PUBLISHED.parse().ok();
    table.and_then(|table| table.get("figure")?.as_array().cloned()).unwrap_or_default()
});

/// Returns the figure of this id.
pub(super) fn find(id: &str) -> Option<&'static Value> {
    FIGURES.iter().find(|figure| text(figure, "id") == id)
}

/// Reads the recipes: each is a table over the usual one, and so are its keys of `vpmu sim`.
fn read() -> Option<BTreeMap<String, Recipe>> {
    let mut table: Table = PUBLISHED.parse().ok()?;
    let (usual, Value::Table(own)) = (table.remove("recipe")?, table.remove("recipes")?) else { return None };
    let merged = |(figure, own): (String, Value)| {
        let (mut all, Value::Table(own)) = (usual.as_table()?.clone(), own) else { return None };
        for (key, value) in own {
            match (all.get_mut(&key), value) {
                (Some(Value::Table(sim)), Value::Table(own)) => {
                    sim.retain(|key, _| key != "period" || !own.contains_key("freq"));
                    sim.extend(own);
                }
                (_, value) => drop(all.insert(key, value)),
            }
        }
        Some((figure, all.try_into().ok()?))
    };
    own.into_iter().map(merged).collect()
}

/// Returns a number of a TOML value.
pub(super) fn float(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

/// Returns a text of a figure.
pub(super) fn text<'a>(figure: &'a toml::Value, key: &str) -> &'a str {
    figure.get(key).and_then(toml::Value::as_str).unwrap_or_default()
}

/// Returns whether an event that a guest of this document creates is the first of its kind on the host.
///
/// # Errors
/// Returns why that is unknown or differs by guest: such a document is a counterpart of no published figure.
pub fn first_event(document: &Document) -> Result<bool, &'static str> {
    let backend = document.parameters.backend.as_str();
    match (backend, document.host.nmi_watchdog) {
        _ if backend.starts_with("sim:") => Err("a simulation is no measurement"),
        ("hardware", None) => Err("whether the host's NMI watchdog held an event is unknown"),
        ("hardware", Some(true)) => Ok(false),
        _ if first_open_is_expensive(backend) && shares_first_event(document) => {
            Err("guests of several strategies held events at the same time; take --guest-rounds 1")
        }
        _ => Ok(first_open_is_expensive(backend)),
    }
}

/// Returns the number from the first document that was measured in the regime of a figure.
pub(super) fn number(documents: &[Document], figure: &str, number: Number) -> Option<Measured> {
    let recipe = RECIPES.get(figure)?;
    documents.iter().find_map(|document| {
        let parameters = &document.parameters;
        let same = parameters.backend.starts_with("tracepoint:") || parameters.workload.starts_with(&recipe.workload);
        (first_event(document) == Ok(recipe.first_event) && same).then(|| recipe.of(document, number)).flatten()
    })
}

impl Recipe {
    /// Returns the keys of its simulation.
    pub(super) fn sim(&self) -> Keys {
        self.sim.iter().filter_map(|(key, value)| Some((key.clone(), value_text(value)?))).collect()
    }

    /// Returns its number of a document of the regime.
    pub(super) fn of(&self, document: &Document, number: Number) -> Option<Measured> {
        let [before, after] = self.arms.each_ref().map(|name| document.arm(name));
        let (value, interval) = match number {
            Number::Before => self.level(before?, None)?,
            Number::After => self.level(after?, None)?,
            Number::Ratio => self.level(before?, Some(after?))?,
            Number::Change => {
                let change = |left: f64| 100.0 * (left - 1.0);
                let (left, interval) = self.level(after?, Some(before?))?;
                (change(left), interval.map(|Interval { low, high }| Interval { low: change(low), high: change(high) }))
            }
        };
        Some(Measured {
            value,
            interval,
            backend: document.parameters.backend.clone(),
            stand_in: document.arms.iter().any(|arm| arm.stand_in),
            host: document.host.class.clone(),
        })
    }

    /// Returns the statistic of an arm, or its ratio to another's. A quotient of sums has an interval over guests: few creations, of tens
    /// of ms, make a mean, and they come in bursts that a median would not see.
    fn level(&self, arm: &Arm, over: Option<&Arm>) -> Option<(f64, Option<Interval>)> {
        let quotient = |arm: &Arm| {
            let (sum, of) = self.of_all(arm)?;
            Some(sum / of).filter(|value| value.is_finite())
        };
        let value = quotient(arm)? / over.map_or(Some(1.0), |over| quotient(over).filter(|value| *value > 0.0))?;
        Some((value, self.interval(value, arm, over)))
    }

    /// Returns what the statistic is the quotient of, from summaries and counts of all rounds or of one: opens, those behind fixed
    /// counters, and NMIs.
    fn quotient(&self, summary: impl Fn(&Metric) -> Option<Summary>, counts: Option<[u64; 3]>) -> Option<(f64, f64)> {
        let mut all = self.metrics.iter().filter_map(|key| summary(metric::find(key)?));
        let created = |of: fn([u64; 3]) -> u64| counts.map(|counts| (of(counts) as f64, counts[2] as f64));
        match self.statistic {
            Statistic::Mean => all.try_fold((0.0, 0.0), |(sum, count), one| {
                Some((sum + one.mean? * one.count as f64, count + one.count as f64))
            }),
            Statistic::Min => all.filter_map(|one| one.min).min().map(|least| (least as f64, 1.0)),
            Statistic::Creates => created(|[opens, fixed, _]| opens.saturating_sub(fixed)),
            Statistic::CreatesFixed => created(|[_, fixed, _]| fixed),
            Statistic::SlowDown => None,
        }
    }

    /// Returns its quotient over all rounds. `None` if the document has no latencies of NMIs that re-armed nothing, and there were some.
    fn of_all(&self, arm: &Arm) -> Option<(f64, f64)> {
        let asked = self.metrics.iter().any(|key| key == NMI_DRIVER_OFF.key);
        if asked && arm.metric(&NMI_DRIVER_OFF).is_none() && arm.own.counts.nmis_driver_off > 0 {
            return None;
        }
        if self.statistic == Statistic::SlowDown {
            return arm.own.workload.map(|cost| (100.0 * (cost.slowdown - 1.0), 1.0));
        }
        let counts = [arm.own.op_count("open"), arm.own.counts.opens_fixed, arm.own.counts.nmis];
        self.quotient(|metric| arm.metric(metric).cloned(), Some(counts))
    }

    /// Returns its quotient of one round, if an interval can be made of them.
    fn of_round(&self, arm: &Arm, at: usize) -> Option<(f64, f64)> {
        let counts = &arm.rounds.counts;
        let counts = || Some([*counts.opens.get(at)?, *counts.opens_fixed.get(at)?, *counts.nmis.get(at)?]);
        let is_sum = self.statistic != Statistic::Min;
        is_sum.then(|| self.quotient(|metric| arm.rounds.metric(metric, at), counts())).flatten()
    }

    fn interval(&self, value: f64, arm: &Arm, over: Option<&Arm>) -> Option<Interval> {
        let whole = arm.rounds.iter().filter(|round| round.complete);
        let sums = whole.filter_map(|round| {
            let other = match over {
                Some(over) => {
                    let at = over.rounds.iter().find(|one| one.index == round.index && one.complete)?.at;
                    self.of_round(over, at)?
                }
                None => (1.0, 1.0),
            };
            let own = self.of_round(arm, round.at)?;
            (own.1 > 0.0 && other.1 > 0.0).then_some((round.guest, [own.0, own.1, other.0, other.1]))
        });
        let (guests, rounds): (Vec<u64>, Vec<[f64; 4]>) = sums.unzip();
        let figure = |rounds: &[[f64; 4]]| {
            let sum = |at: usize| rounds.iter().map(|round| round[at]).sum::<f64>();
            Some((sum(0) / sum(1)) / (sum(2) / sum(3))).filter(|figure| figure.is_finite())
        };
        let enough = rounds.len() >= MIN_ROUNDS;
        let found = enough.then(|| over_groups(&rounds, &groups(&guests).group, figure)).flatten()?;
        let Interval { low, high } = found.interval();
        let scaled = Interval { low: (value * low / found.value).max(0.0), high: value * high / found.value };
        (found.value > 0.0).then_some(scaled)
    }
}
