//! Simulates the published figures by their recipes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use ::sim::model::{Number, Origin};
use rayon::prelude::*;
use results::document::Document;
use results::error::Error;
use stat_setup::model::{self, Fitted, Numbers};

use super::published::{Reproduction, Row};
use super::recipe::{Recipe, published, recipe};
use crate::arms::arm::sim;
use crate::experiment::nmi_latency::simulated::{SimSpec, simulate};
use crate::setting::parse::{Keys, of_keys};
use crate::setting::strategy::StrategyChoice;

/// The key of a model.
const MODEL: &str = "model";

/// Returns the published numbers beside simulated ones. What several figures are read of is simulated once, several simulations at a time.
///
/// # Errors
/// Internal error in the embedded models.
pub fn simulated(seed: u64) -> Result<Reproduction, Error> {
    let of_guests = |row: &Row| recipe(&row.figure).filter(|recipe| recipe.run.is_none());
    let mut wanted: BTreeMap<Keys, BTreeSet<&str>> = BTreeMap::new();
    for recipe in published("").filter_map(|row| of_guests(&row)) {
        wanted.entry(recipe.sim()).or_default().extend(recipe.arms.iter().map(String::as_str));
    }
    let run = |(keys, arms): (Keys, BTreeSet<&str>)| {
        let document = document(&keys, &arms.into_iter().collect::<Vec<_>>(), seed)?;
        Ok::<_, Error>((keys, document))
    };
    let documents: BTreeMap<Keys, Document> = wanted.into_par_iter().map(run).collect::<Result<_, _>>()?;
    let (set_ups, fitted) = model::simulate(&of_set_ups);
    let mut rows = Vec::new();
    for row in published("") {
        let mut row = if let Some(recipe) = of_guests(&row) {
            let keys = recipe.sim();
            Row {
                simulated: recipe.of(&documents[&keys], row.number).map(|found| found.value),
                model: keys[MODEL].clone(),
                origin: origin(recipe, &row.figure, row.number)?,
                not_explained: recipe.not_explained.clone(),
                ..row
            }
        } else if let Some((simulated, origin)) = number_of((&set_ups, &fitted), &row.figure, row.number) {
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
    Ok(Reproduction { seed, rows, fitted, here: None })
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
    let to = |id: &str, number: Number| -> Vec<String> {
        let name = name(id, number);
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

/// Names a number as models do that are fitted to it, such as `vpmu-reuse.v1.mean ratio`.
fn name(id: &str, number: Number) -> String {
    format!("{id} {}", number.key())
}

/// Begin of the ids of the figures of perf's series that sets events up CPU by CPU, and its model's name.
const FIGURES: &str = "perf-stat-setup.";
const SET_UPS: &str = "stat_setup::model";

/// Returns the published number that its model has under this name.
fn of_set_ups(name: &str) -> f64 {
    let is_it = |row: &Row| self::name(&row.figure[FIGURES.len()..], row.number) == name;
    published(FIGURES).find(is_it).and_then(|row| row.published).unwrap_or_default()
}

/// Returns a number of a figure by the model, and its origin; `None` of a figure of something else.
fn number_of((found, fitted): (&Numbers, &[Fitted]), figure: &str, number: Number) -> Option<(f64, Origin)> {
    let id = figure.strip_prefix(FIGURES)?;
    let of = |number| found.get(&name(id, number)).copied();
    let value = match number {
        Number::Ratio | Number::Change => of(Number::Before)? / of(Number::After)?,
        number => of(number)?,
    };
    let to = |number| fitted.iter().filter(|one| one.to == name(id, number)).map(|one| one.constant.clone()).collect();
    // Real time before the series is user and system time: what those were fitted to, it was, too. The list's groups were chosen by its
    // calls.
    let (machine, part) = id.split_once('.')?;
    let sum = part == "calls"
        || part == "real" && (number == Number::Before || (number, machine) == (Number::Ratio, "94cpu"));
    Some((value, origin_of(number, &to, sum)))
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
mod tests {
    use arch_pmu::intel::IntelCaps;
    use guest::abi::EventSpec;

    use super::*;

    #[test]
    fn the_published_mean_does_not_tell_the_share_of_a_resume() {
        let recipe = recipe("vpmu-reuse.watchdog-on.mean").unwrap();
        let of = |model: &str| {
            let keys = recipe.sim().into_iter().chain([(MODEL.to_owned(), model.to_owned())]).collect();
            let document = document(&keys, &["reuse-lazy", "gate"], 1).unwrap();
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
        let ratio = off.of(&document(&keys, &["recreate", "reuse-lazy"], 1).unwrap(), Number::Ratio).unwrap().value;
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
