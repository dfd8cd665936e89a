//! Simulates the published figures by their recipes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use results::document::Document;
use results::error::Error;
use results::published::{Number, Origin, Reproduction, Row};
use stat_setup::model::{self, Modelled, Pair, Times};

use super::recipe::{Recipe, published, recipe};
use crate::arms::arm::sim;
use crate::experiment::nmi_latency::simulated::{SimSpec, simulate};
use crate::setting::parse::{Keys, of_keys};
use crate::setting::strategy::StrategyChoice;
use crate::terminal::console::internal;

/// Seed of the stored numbers, the default of `vpmu reproduce`.
pub const SEED: u64 = 1;
/// Numbers by figure, number and model, simulated with [`SEED`]: the same on any machine, and they take longer than to read a thousand
/// results. A test simulates them again.
const STORED: &str = include_str!("simulated.toml");

/// Returns the published numbers that guests are simulated for, with their recipes.
fn of_guests() -> impl Iterator<Item = (Row, &'static Recipe)> {
    let simulated = |row: &Row| recipe(&row.figure).filter(|recipe| recipe.run.is_none());
    published("").filter_map(move |row| simulated(&row).map(|recipe| (row, recipe)))
}

/// The published figures, simulated.
#[derive(Debug)]
pub struct Simulated {
    seed: u64,
    /// By [`name`].
    pub(super) numbers: BTreeMap<String, f64>,
}

/// Names a simulated number.
fn name(figure: &str, number: Number, model: &str) -> String {
    format!("{figure} {} {model}", number.key())
}

/// What is wanted of a simulation: its arms, and numbers by their recipes, with their names.
type Wanted<'a> = (BTreeSet<&'a str>, Vec<(String, Number, &'a Recipe)>);

/// The key of a model.
const MODEL: &str = "model";

impl Simulated {
    /// Simulates the published figures, several at a time.
    ///
    /// # Errors
    /// Internal error in the embedded models.
    pub fn run(seed: u64) -> Result<Self, Error> {
        let mut wanted: BTreeMap<Keys, Wanted<'_>> = BTreeMap::new();
        for (Row { figure, number, .. }, recipe) in of_guests() {
            let keys = recipe.sim();
            let name = name(&figure, number, &keys[MODEL]);
            let (arms, numbers) = wanted.entry(keys).or_default();
            arms.extend(recipe.arms.iter().map(String::as_str));
            numbers.push((name, number, recipe));
        }
        let run = |(keys, (arms, numbers)): (Keys, Wanted<'_>)| {
            let document = document(&keys, &arms.into_iter().collect::<Vec<_>>(), seed)?;
            let of =
                |(name, number, recipe): (String, Number, &Recipe)| Some((name, recipe.of(&document, number)?.value));
            Ok(numbers.into_iter().filter_map(of).collect::<Vec<_>>())
        };
        let numbers: Result<Vec<_>, Error> = wanted.into_par_iter().map(run).collect();
        Ok(Self { seed, numbers: numbers?.into_iter().flatten().collect() })
    }

    /// Returns the result of [`Self::run`] with the default seed, without simulating.
    ///
    /// # Errors
    /// Internal error in the embedded models.
    pub fn stored() -> Result<Self, Error> {
        let numbers = toml::from_str(STORED).map_err(|error| internal("cannot read the simulated figures", error))?;
        Ok(Self { seed: SEED, numbers })
    }

    /// Returns the published numbers beside simulated ones.
    ///
    /// # Errors
    /// Internal error in the embedded models.
    pub fn beside(&self) -> Result<Reproduction, Error> {
        let (set_ups, mut rows) = (modelled(), Vec::new());
        for row in published("") {
            let (id, number) = (&row.figure, row.number);
            let mut row = if let Some(recipe) = recipe(id).filter(|recipe| recipe.run.is_none()) {
                let model = recipe.sim()[MODEL].clone();
                Row {
                    simulated: self.numbers.get(&name(id, number, &model)).copied(),
                    model,
                    origin: origin(recipe, id, number)?,
                    not_explained: recipe.not_explained.clone(),
                    ..row
                }
            } else if let Some((simulated, origin)) = number_of(&set_ups, id, number) {
                Row { model: SET_UPS.to_owned(), simulated: Some(simulated), origin, ..row }
            } else {
                continue;
            };
            let points = row.unit.starts_with("percent");
            let error = |(ours, published): (f64, f64)| {
                if points { ours - published } else { 100.0 * (ours / published - 1.0) }
            };
            row.error = row.simulated.zip(row.published).map(error);
            rows.push(row);
        }
        Ok(Reproduction { schema: "vpmu-reproduce/2", seed: self.seed, rows, fitted: set_ups.fitted, here: None })
    }
}

/// Simulates arms of a recipe.
fn document(keys: &Keys, arms: &[&str], seed: u64) -> Result<Document, Error> {
    let mut spec: SimSpec = of_keys(keys)?;
    (spec.spec.arms.strategy, spec.spec.arms.seed.seed) = (StrategyChoice::presets(arms), seed);
    let model = spec.model()?;
    simulate(&spec.plan(&model)?, model, &AtomicBool::new(false))
}

/// Returns what was fitted of a number: constants of the recipe's model or of its guest.
fn origin(recipe: &Recipe, id: &str, number: Number) -> Result<Origin, Error> {
    let of_model = sim::model(&recipe.sim()[MODEL])?.fitted;
    // Names such as `vpmu-reuse.v1.mean ratio`.
    let to = |id: &str, number: Number| -> Vec<String> {
        let name = format!("{id} {}", number.key());
        let constants = of_model.iter().filter(|one| one.figure == name).map(|one| one.constant.clone());
        let of_guest = self::recipe(id).filter(|_| number == Number::Change).and_then(|recipe| recipe.fitted.clone());
        constants.chain(of_guest).collect()
    };
    let of = |id: &str| origin_of(number, &|number| to(id, number), false);
    let own = of(id);
    // Constants fitted to another figure that is the same number of the same simulation.
    let mut figures = of_model.iter().filter_map(|one| one.figure.split(' ').next());
    let same = |other: &&str| of(other) != Origin::Predicted && self::recipe(other) == Some(recipe);
    let from = if own == Origin::Predicted { figures.find(same) } else { None };
    Ok(from.map_or(own, |from| Origin::Transferred(from.to_owned())))
}

/// Begin of the ids of the figures of perf's series that sets events up CPU by CPU, and its model's name.
const FIGURES: &str = "perf-stat-setup.";
const SET_UPS: &str = "stat_setup::model";

/// Returns a time of a pair.
fn of(pair: &Pair, part: &str, number: Number) -> f64 {
    let time = |times: &Times| match part {
        "real" => times.real,
        "user" => times.user,
        _ => times.sys,
    };
    match number {
        Number::Before => time(&pair.before),
        Number::After => time(&pair.after),
        Number::Ratio | Number::Change => time(&pair.before) / time(&pair.after),
    }
}

/// Returns the published machines as they are modelled.
fn modelled() -> model::Simulated {
    let pair = |machine: &str| {
        let number = |part: &str, number| {
            let id = format!("{FIGURES}{machine}.{part}");
            published(&id).find(|row| row.number == number).and_then(|row| row.published).unwrap_or_default()
        };
        let times =
            |wanted| Times { real: number("real", wanted), user: number("user", wanted), sys: number("sys", wanted) };
        Pair { before: times(Number::Before), after: times(Number::After) }
    };
    model::simulate(&pair("94cpu"), &pair("4socket"))
}

/// Returns a number of a figure by the model, and its origin; `None` of a figure of something else.
fn number_of(found: &model::Simulated, figure: &str, number: Number) -> Option<(f64, Origin)> {
    let (name, part) = figure.strip_prefix(FIGURES)?.split_once('.')?;
    let Modelled { times, calls } = if name == "94cpu" { &found.cpus94 } else { &found.sockets4 };
    if part == "calls" {
        // The list's groups were chosen by these calls.
        return Some((*calls, Origin::OfFitted));
    }
    let to = |number: Number| -> Vec<String> {
        let target = format!("{name} {} {part}", number.key());
        found.fitted.iter().filter(|fitted| fitted.to == target).map(|fitted| fitted.constant.clone()).collect()
    };
    // Real time before the series is user and system time: what those were fitted to, it was, too.
    let sum = part == "real" && (number == Number::Before || (number, name) == (Number::Ratio, "94cpu"));
    Some((of(times, part, number), origin_of(number, &to, sum)))
}

/// Returns the origin of a number; `to` has the constants that were fitted to each number of its figure, `sum`: it is made of others.
fn origin_of(number: Number, to: &dyn Fn(Number) -> Vec<String>, sum: bool) -> Origin {
    let (here, whole) = (to(number), matches!(number, Number::Ratio | Number::Change));
    if !here.is_empty() {
        Origin::Fitted(here)
    } else if sum || whole && [Number::Before, Number::After].into_iter().any(|number| !to(number).is_empty()) {
        Origin::OfFitted
    } else {
        Origin::Predicted
    }
}

#[cfg(test)]
pub(super) mod tests {
    use arch_pmu::intel::IntelCaps;
    use guest::abi::EventSpec;

    use super::*;

    /// Returns the text of [`STORED`].
    pub(in super::super) fn to_text(numbers: &BTreeMap<String, f64>) -> String {
        let lines = numbers.iter().map(|(name, number)| format!("{name:?} = {number:?}"));
        lines.chain([String::new()]).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_published_mean_does_not_tell_the_share_of_a_resume() {
        let recipe = recipe("vpmu-reuse.watchdog-on.mean").unwrap();
        let of = |model: &str| {
            let keys = recipe.sim().into_iter().chain([(MODEL.to_owned(), model.to_owned())]).collect();
            let document = document(&keys, &["reuse-lazy", "gate"], SEED).unwrap();
            ["reuse-lazy", "gate"].map(|name| document.arm(name).unwrap().metrics["nmi_handler_ns"].mean.unwrap())
        };
        let [[fitted, gate], [mean, other]] = ["clx-ap-watchdog-on", "clx-resume-other"].map(of);
        assert!((mean / fitted - 1.0).abs() < 0.001, "{mean} {fitted}");
        assert!(other / gate > 1.05, "{other} {gate}: another figure tells them apart");
    }

    /// Checks what recipes say of what is not explained.
    #[test]
    fn the_regimes_that_would_explain_a_figure_give_it() {
        let off = recipe("vpmu-reuse.watchdog-off.mean").unwrap();
        let mut keys = off.sim();
        let close = sim::model(&keys[MODEL]).unwrap().costs.release_last.smallest() as f64;
        keys.insert("cost.release-last".to_owned(), (17.5e6 / close).to_string());
        let ratio = off.of(&document(&keys, &["recreate", "reuse-lazy"], SEED).unwrap(), Number::Ratio).unwrap().value;
        assert!((ratio / 786.0 - 1.0).abs() < 0.01, "{ratio}");

        let ten = recipe("mediated.10-events").unwrap();
        let mut spec: SimSpec = of_keys(&ten.sim()).unwrap();
        spec.spec.arms.strategy = StrategyChoice::presets(&[&ten.arms[0]]);
        let model = spec.model().unwrap();
        let mut plan = spec.plan(&model).unwrap();
        plan.guest.machine.pmu = IntelCaps { gp: 8, ..IntelCaps::default() }.into();
        for (code, event) in (0xc4..).zip(&mut plan.guest.boot.events[..10]) {
            *event = EventSpec { selector: event.selector & !0xffff | code, fixed: 0, ..*event };
        }
        let document = simulate(&plan, model, &AtomicBool::new(false)).unwrap();
        let slow_down = ten.of(&document, Number::Before).unwrap().value;
        assert!((slow_down - 83.5).abs() < 1.0, "{slow_down}");
    }
}
