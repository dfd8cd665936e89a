//! Recipes of figures: what is simulated or run for one, and what is read of a result document, simulated or measured.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use results::document::{Arm, ArmKind, Document, Experiment, Summary};
use results::metric::NMI_DRIVER_OFF;
use results::paired::groups::groups;
use results::paired::{self, MIN_ROUNDS};
use results::stats::interval::Interval;
use results::stats::jackknife::over_groups;
use serde::Deserialize;
use sim::model::Number;
use toml::{Table, Value};

use super::published::{Measured, Row};
use crate::setting::parse::{Keys, value_text};

/// How a figure is had: a table of `recipes` in published.toml, over that of `recipe`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Recipe {
    /// Regime of its measurement by `--run vpmu-reuse`: whether creating an event is expensive, as that of the first of its kind on the
    /// host is, and the workload.
    pub(super) regime: String,
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
    /// Why the model does not explain it, and the regime that would.
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
    what: String,
    unit: String,
    /// Numbers of a table.
    #[serde(default)]
    pub(super) rows: Vec<Value>,
    /// The place where it was published, as far as that is known.
    #[expect(dead_code, reason = "for readers of the file")]
    source: String,
    #[serde(flatten)]
    numbers: BTreeMap<Number, f64>,
}

/// The figures, and how each is had.
#[derive(Default)]
pub(super) struct Published {
    pub(super) figures: Vec<Figure>,
    pub(super) recipes: BTreeMap<String, Recipe>,
    /// Options of the guests of a regime, and where a tracepoint stands in for hardware events.
    pub(super) regimes: BTreeMap<String, String>,
}

pub(super) static ALL: LazyLock<Published> = LazyLock::new(|| read().unwrap_or_default());

/// Reads published.toml: a recipe is a table over the usual one, and so are its keys of `vpmu sim`.
fn read() -> Result<Published, toml::de::Error> {
    #[derive(Deserialize)]
    struct File {
        figure: Vec<Figure>,
        recipe: Table,
        recipes: BTreeMap<String, Table>,
        regimes: BTreeMap<String, String>,
    }
    let File { figure, recipe, recipes, regimes } =
        toml::from_str(include_str!("../../../../../results/published.toml"))?;
    let over = |(id, own): (String, Table)| {
        let mut all = recipe.clone();
        for (key, value) in own {
            match (all.get_mut(&key), value) {
                (Some(Value::Table(usual)), Value::Table(own)) => {
                    usual.retain(|key, _| key != "period" || !own.contains_key("freq"));
                    usual.extend(own);
                }
                (_, value) => drop(all.insert(key, value)),
            }
        }
        Ok((id, all.try_into()?))
    };
    Ok(Published { figures: figure, recipes: recipes.into_iter().map(over).collect::<Result<_, _>>()?, regimes })
}

/// Returns the recipe of a figure.
pub(super) fn recipe(figure: &str) -> Option<&'static Recipe> {
    ALL.recipes.get(figure)
}

pub(super) fn row(figure: &str, (what, unit): (&str, &str), number: Number, published: Option<f64>) -> Row {
    let unit = if number == Number::Ratio { "ratio" } else { unit }.to_owned();
    Row { figure: figure.to_owned(), what: what.to_owned(), number, unit, published, ..Row::default() }
}

/// Returns the numbers that were published of figures whose id begins so.
pub(super) fn published(begin: &str) -> impl Iterator<Item = Row> {
    ALL.figures.iter().filter(move |figure| figure.id.starts_with(begin)).flat_map(|figure| {
        let about = (figure.what.as_str(), figure.unit.as_str());
        figure.numbers.iter().map(move |(&number, &published)| row(&figure.id, about, number, Some(published)))
    })
}

/// Returns the numbers of figures whose id begins so that have a recipe: those that were published, and others that recipes have.
pub(super) fn rows(begin: &str) -> Vec<(Row, Recipe)> {
    let recipes = ALL.recipes.iter().filter(|(figure, _)| figure.starts_with(begin));
    let others = recipes.flat_map(|(figure, recipe)| {
        let about = (recipe.what.as_deref().unwrap_or_default(), recipe.unit.as_str());
        recipe.numbers.iter().map(move |&number| row(figure, about, number, None))
    });
    let with_recipe = |row: Row| Some((recipe(&row.figure)?.clone(), row)).map(|(recipe, row)| (row, recipe));
    let mut rows: Vec<(Row, Recipe)> = published(begin).chain(others).filter_map(with_recipe).collect();
    rows.sort_by(|(a, _), (b, _)| (&a.figure, a.number).cmp(&(&b.figure, b.number)));
    rows
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
            interval: interval.map(|one| one.map(change)),
            backend: of_strategy.backend.clone(),
            stand_in: document.arms.iter().any(|arm| arm.stand_in),
        })
    }

    /// Returns the statistic of an arm, or its ratio to another's. A quotient of sums has an interval over guests: few creations, of tens
    /// of ms, make a mean, and they come in bursts that a median would not see.
    fn level(&self, arm: &Arm, over: Option<&Arm>) -> Option<(f64, Option<Interval>)> {
        let key = self.metrics.first()?;
        let (value, interval) = match (self.statistic, over) {
            (Statistic::P50, Some(over)) => {
                return paired::ratio(arm, over, key).map(|found| (found.ratio, found.interval));
            }
            (Statistic::P50, None) => paired::level(arm, key).map(|found| (found.ns, found.interval))?,
            _ => {
                let quotient = |arm: &Arm| {
                    let (sum, of) = self.quotient(arm, None)?;
                    Some(sum / of).filter(|value| value.is_finite())
                };
                let other = over.map_or(Some(1.0), |over| quotient(over).filter(|value| *value > 0.0))?;
                let value = quotient(arm)? / other;
                (value, self.interval(value, arm, over))
            }
        };
        let scale = if over.is_some() { 1.0 } else { self.scale };
        Some((scale * value, interval.map(|one| one.map(|end| scale * end))))
    }

    /// Returns what the statistic is the quotient of, over all rounds or, if an interval can be made of them, in the one at this place.
    /// `None` if the document has no latencies of NMIs that re-armed nothing, and there were some.
    fn quotient(&self, arm: &Arm, round: Option<usize>) -> Option<(f64, f64)> {
        let (own, columns) = (&arm.own, &arm.rounds.counts);
        let summary = |key: &String| match round {
            Some(at) => arm.rounds.metrics.get(key)?.get(at),
            None => arm.metrics.get(key).cloned(),
        };
        let count = |all: u64, column: &[u64]| round.map_or(Some(all), |at| column.get(at).copied());
        let opens = || count(own.op_count("open"), &columns.opens);
        let (fixed, nmis) =
            (count(own.counts.opens_fixed, &columns.opens_fixed), count(own.counts.nmis, &columns.nmis));
        let per_nmi = |opens: u64| Some((opens as f64, nmis? as f64));
        let asked = self.metrics.iter().any(|key| key == NMI_DRIVER_OFF.key);
        if asked && arm.metric(&NMI_DRIVER_OFF).is_none() && own.counts.nmis_driver_off > 0 {
            return None;
        }
        let mut all = self.metrics.iter().filter_map(summary);
        match self.statistic {
            Statistic::Mean => {
                all.try_fold((0.0, 0.0), |(sum, count), one| Some((sum + self::sum(&one)?, count + one.count as f64)))
            }
            Statistic::Quotient => Some((self::sum(&all.next()?)?, self::sum(&all.next()?)?)),
            Statistic::Creates => per_nmi(opens()?.saturating_sub(fixed?)),
            Statistic::CreatesFixed => per_nmi(fixed?),
            Statistic::Min if round.is_none() => all.filter_map(|one| one.min).min().map(|least| (least as f64, 1.0)),
            Statistic::SlowDown if round.is_none() => own.workload.map(|cost| (100.0 * (cost.slowdown - 1.0), 1.0)),
            Statistic::Min | Statistic::SlowDown | Statistic::P50 => None,
        }
    }

    fn interval(&self, value: f64, arm: &Arm, over: Option<&Arm>) -> Option<Interval> {
        let whole = arm.rounds.iter().filter(|round| round.complete);
        let sums = whole.filter_map(|round| {
            let other = match over {
                Some(over) => {
                    let at = over.rounds.iter().find(|one| one.index == round.index && one.complete)?.at;
                    self.quotient(over, Some(at))?
                }
                None => (1.0, 1.0),
            };
            let own = self.quotient(arm, Some(round.at))?;
            (own.1 > 0.0 && other.1 > 0.0).then_some((round.guest, [own.0, own.1, other.0, other.1]))
        });
        let (guests, rounds): (Vec<u64>, Vec<[f64; 4]>) = sums.unzip();
        let figure = |rounds: &[[f64; 4]]| {
            let sum = |at: usize| rounds.iter().map(|round| round[at]).sum::<f64>();
            Some((sum(0) / sum(1)) / (sum(2) / sum(3))).filter(|figure| figure.is_finite())
        };
        let enough = rounds.len() >= MIN_ROUNDS;
        let found = enough.then(|| over_groups(&rounds, &groups(&guests).group, figure)).flatten()?;
        let scaled = found.interval().map(|end| (value * end / found.value).max(0.0));
        (found.value > 0.0).then_some(scaled)
    }
}

fn sum(summary: &Summary) -> Option<f64> {
    Some(summary.mean? * summary.count as f64)
}
