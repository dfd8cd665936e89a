//! Recipes of figures: what is simulated or run for one, and what is read of a result document, simulated or measured.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use results::document::warnings::first_open_is_expensive;
use results::document::{Arm, ArmKind, Document, Experiment, Summary};
use results::metric::NMI_DRIVER_OFF;
use results::paired::groups::groups;
use results::paired::{self, MIN_ROUNDS};
use results::published::{Measured, Number, PUBLISHED, Row};
use results::stats::interval::{Interval, NORMAL_95};
use results::stats::jackknife::over_groups;
use serde::Deserialize;
use toml::{Table, Value};

use crate::experiment::triage::{IN_SPIN_LOCKS, SAMPLES};
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
    pub(super) metrics: Vec<String>,
    pub(super) statistic: Statistic,
    /// Factor from the unit of what is read to that of the figure.
    pub(super) scale: f64,
    /// What `vpmu sim` runs, by the long names of its options.
    pub(super) sim: Table,
    /// Words of the command of this tool that measures it, in place of a simulation.
    pub(super) run: Option<String>,
    /// Why what that measures is not what was published.
    pub(super) differs: Option<String>,
    /// What of the guest was fitted to its change.
    pub(super) fitted: Option<String>,
    /// Why the model does not explain it, and the regime that would. docs/simulator.md has the regimes that were tried.
    pub(super) not_explained: Option<String>,
    /// Description of numbers that were not published, their keys, and their unit.
    pub(super) what: Option<String>,
    #[serde(default)]
    pub(super) numbers: Vec<Number>,
    pub(super) unit: String,
}

/// What is read of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Statistic {
    /// Mean of all samples.
    Mean,
    /// The least.
    Min,
    /// The median of the rounds' medians of the first metric; of two arms by the rounds that they share.
    P50,
    /// The first metric over the second, by their sums.
    Quotient,
    /// The share of samples in a spin lock.
    Share,
    /// Host events created per NMI behind general-purpose counters.
    Creates,
    /// Host events created per NMI behind fixed counters.
    CreatesFixed,
    /// Time by which the guest's work takes longer than without counters, percent.
    SlowDown,
}

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Figure {
    pub(super) id: String,
    pub(super) what: String,
    unit: String,
    before: Option<f64>,
    after: Option<f64>,
    ratio: Option<f64>,
    change: Option<f64>,
    /// Numbers of a table.
    #[serde(default)]
    pub(super) rows: Vec<Value>,
}

impl Figure {
    /// Returns its rows, a number each.
    fn numbers(&self) -> impl Iterator<Item = Row> {
        let numbers = Number::ALL.into_iter().zip([self.before, self.after, self.ratio, self.change]);
        numbers.filter(|(_, published)| published.is_some()).map(|(number, published)| Row {
            figure: self.id.clone(),
            what: self.what.clone(),
            number,
            unit: if number == Number::Ratio { "ratio" } else { &self.unit }.to_owned(),
            published,
            ..Row::default()
        })
    }
}

pub(super) static RECIPES: LazyLock<BTreeMap<String, Recipe>> = LazyLock::new(|| read().unwrap_or_default());

/// The published figures.
pub(super) static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let table: Option<Table> = PUBLISHED.parse().ok();
    table.and_then(|mut table| table.remove("figure")?.try_into().ok()).unwrap_or_default()
});

/// Returns the numbers that were published of figures whose id begins so.
pub(super) fn published(begin: &str) -> impl Iterator<Item = Row> {
    FIGURES.iter().filter(move |figure| figure.id.starts_with(begin)).flat_map(Figure::numbers)
}

/// Returns the numbers of figures whose id begins so: those that were published, and others that recipes have.
pub(super) fn rows(begin: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = published(begin).collect();
    for (figure, recipe) in RECIPES.iter().filter(|(figure, _)| figure.starts_with(begin)) {
        rows.extend(recipe.numbers.iter().map(|&number| Row {
            figure: figure.clone(),
            what: recipe.what.clone().unwrap_or_default(),
            number,
            unit: if number == Number::Ratio { "ratio" } else { &recipe.unit }.to_owned(),
            ..Row::default()
        }));
    }
    rows
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
    pub(super) fn of<E: Experiment>(&self, document: &Document<E>, number: Number) -> Option<Measured> {
        let [before, after] = self.arms.each_ref().map(|name| document.arm(name));
        let (value, interval) = match number {
            Number::Before => self.level(before?, None)?,
            Number::After => self.level(after?, None)?,
            Number::Ratio => self.level(before?, Some(after?))?,
            Number::Change => self.level(after?, Some(before?))?,
        };
        let arms = || [before, after].into_iter().flatten();
        // A floor beside it has nothing behind its counters.
        let of_strategy = arms().find(|arm| arm.kind == ArmKind::Strategy).or_else(|| arms().next())?;
        let change = |left: f64| if number == Number::Change { 100.0 * (left - 1.0) } else { left };
        Some(Measured {
            value: change(value),
            interval: interval.map(|Interval { low, high }| Interval { low: change(low), high: change(high) }),
            backend: of_strategy.backend.clone(),
            stand_in: document.arms.iter().any(|arm| arm.stand_in),
            host: document.host.class.clone(),
        })
    }

    /// Returns the statistic of an arm, or its ratio to another's. A quotient of sums has an interval over guests: few creations, of tens
    /// of ms, make a mean, and they come in bursts that a median would not see.
    fn level(&self, arm: &Arm, over: Option<&Arm>) -> Option<(f64, Option<Interval>)> {
        let (key, p50) = (self.metrics.first()?, paired::Statistic::P50);
        let (value, interval) = match (self.statistic, over) {
            (Statistic::P50, Some(over)) => {
                return paired::ratio(arm, over, key, p50).map(|found| (found.ratio, found.interval));
            }
            (Statistic::P50, None) => paired::level(arm, key, p50).map(|found| (found.ns, found.interval))?,
            (Statistic::Share, _) => share(arm)?,
            _ => {
                let quotient = |arm: &Arm| {
                    let (sum, of) = self.of_all(arm)?;
                    Some(sum / of).filter(|value| value.is_finite())
                };
                let other = over.map_or(Some(1.0), |over| quotient(over).filter(|value| *value > 0.0))?;
                let value = quotient(arm)? / other;
                (value, self.interval(value, arm, over))
            }
        };
        let scale = if over.is_some() { 1.0 } else { self.scale };
        let scaled = |Interval { low, high }| Interval { low: scale * low, high: scale * high };
        Some((scale * value, interval.map(scaled)))
    }

    /// Returns what the statistic is the quotient of, from summaries and counts of all rounds or of one: opens, those behind fixed
    /// counters, and NMIs.
    fn quotient(&self, summary: impl Fn(&str) -> Option<Summary>, counts: Option<[u64; 3]>) -> Option<(f64, f64)> {
        let mut all = self.metrics.iter().filter_map(|key| summary(key));
        let created = |of: fn([u64; 3]) -> u64| counts.map(|counts| (of(counts) as f64, counts[2] as f64));
        match self.statistic {
            Statistic::Mean => {
                all.try_fold((0.0, 0.0), |(sum, count), one| Some((sum + self::sum(&one)?, count + one.count as f64)))
            }
            Statistic::Quotient => Some((self::sum(&all.next()?)?, self::sum(&all.next()?)?)),
            Statistic::Min => all.filter_map(|one| one.min).min().map(|least| (least as f64, 1.0)),
            Statistic::Creates => created(|[opens, fixed, _]| opens.saturating_sub(fixed)),
            Statistic::CreatesFixed => created(|[_, fixed, _]| fixed),
            Statistic::SlowDown | Statistic::P50 | Statistic::Share => None,
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
        self.quotient(|key| arm.metrics.get(key).cloned(), Some(counts))
    }

    /// Returns its quotient of one round, if an interval can be made of them.
    fn of_round(&self, arm: &Arm, at: usize) -> Option<(f64, f64)> {
        let counts = &arm.rounds.counts;
        let counts = || Some([*counts.opens.get(at)?, *counts.opens_fixed.get(at)?, *counts.nmis.get(at)?]);
        let is_sum = self.statistic != Statistic::Min;
        is_sum.then(|| self.quotient(|key| arm.rounds.metrics.get(key)?.get(at), counts())).flatten()
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

fn sum(summary: &Summary) -> Option<f64> {
    Some(summary.mean? * summary.count as f64)
}

/// Returns the share of samples in a spin lock, with its 95 % interval by Wilson.
fn share(arm: &Arm) -> Option<(f64, Option<Interval>)> {
    let of = |key: &str| Some(arm.metrics.get(key)?.max? as f64);
    let n = of(SAMPLES).filter(|samples| *samples > 0.0)?;
    let (p, z) = (of(IN_SPIN_LOCKS)? / n, NORMAL_95);
    let (centre, scale) = (p + z * z / (2.0 * n), 1.0 + z * z / n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    Some((p, Some(Interval { low: (centre - half).max(0.0) / scale, high: (centre + half) / scale })))
}
