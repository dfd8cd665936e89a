//! A grid: values of `vpmu sim`'s options, the points that they make, and the line that a point's document leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use arch_pmu::spec::Vendor;
use fleet::hash::sha256;
use host_pmu::strategy::PRESETS;
use rayon::prelude::*;
use results::document::{Status, StrategyParameter};
use results::error::Error;
use results::sweep::{Line, SCHEMA};
use sim::model::Model;

use crate::arms::arm::sim::{DEFAULT_MODEL, check_name, check_strategies, facts};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::simulated::{SimSpec, simulate};
use crate::setting::parse::{Keys, is_toml, of_keys};
use crate::setting::strategy::{StrategyChoice, check_names, resolve};

/// Most points of a grid.
const MAX_POINTS: usize = 100_000;
/// What a point has of itself, where `sim` has many short rounds of guests that live on and show what counting costs their work.
const USUAL: &str = "workload=sampling10 samples=2000 rounds=1 warmup=0 baseline=0ms time-limit=10s";
/// Tool and revision. Another revision may simulate differently, so the revision is part of the key.
const TOOL: &str = concat!("vpmu ", env!("CARGO_PKG_VERSION"), " ", env!("VPMU_GIT_REVISION"));
/// Digits of a key: 128 bits.
const KEY_DIGITS: usize = 32;

/// A point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// `vpmu sim`'s options but the strategies.
    pub keys: Keys,
    /// Identifies the parameters, the model's constants and the tool's revision: 32 hexadecimal digits.
    pub key: String,
}

/// The strategies, which are the arms of each point.
#[derive(Clone, Debug)]
pub struct Strategies(Vec<StrategyParameter>);

impl Strategies {
    fn plan(&self, keys: &Keys) -> Result<(Plan, Model), Error> {
        let mut spec: SimSpec = of_keys(keys)?;
        spec.spec.arms.strategy = self.0.iter().cloned().map(StrategyChoice::Defined).collect();
        let model = spec.model()?;
        check_strategies(&model, Vendor::Intel, self.0.iter().map(|one| one.name.as_str()))?;
        let mut plan = spec.plan(&model)?;
        plan.simulate(&model.name);
        Ok((plan, model))
    }

    /// Makes a point.
    fn point(&self, keys: Keys) -> Result<Point, Error> {
        let (plan, model) = self.plan(&keys)?;
        let parts = (SCHEMA, TOOL, &plan.parameters, plan.seed, facts(&model).model);
        // Serialization of numbers, texts and maps with text keys cannot fail.
        let mut key = sha256(&serde_json::to_vec(&parts).unwrap_or_default());
        key.truncate(KEY_DIGITS);
        Ok(Point { keys, key })
    }

    /// Simulates a point, which is an ordinary experiment; `None` if the user stopped it.
    ///
    /// # Errors
    /// Errors of the simulation.
    pub fn line(&self, point: &Point, stop: &AtomicBool) -> Result<Option<Line>, Error> {
        let (plan, model) = self.plan(&point.keys)?;
        let document = simulate(&plan, model, stop)?;
        let whole = document.status != Status::Interrupted;
        Ok(whole.then(|| Line::of(point.keys.clone(), point.key.clone(), TOOL, &document)))
    }
}

/// Values by key: each combination is a point.
pub type Axes = BTreeMap<String, Vec<String>>;

/// Reads words `KEY=LIST`.
///
/// # Errors
/// Exit 2 with the word.
fn axes(words: &[String]) -> Result<Axes, Error> {
    let mut axes = Axes::new();
    for word in words {
        let (key, list) = word.split_once('=').unwrap_or((word, ""));
        let values: Vec<_> = list.split(',').map(str::trim).filter(|value| !value.is_empty()).collect();
        let refuse = |why: &str, remedy: String| Error::usage(format!("'{word}': {why}"), "", remedy);
        if values.is_empty() {
            return Err(refuse("it has no values", "give KEY=LIST, e.g. seed=1-5".to_owned()));
        }
        if key == "trace" {
            return Err(refuse("a trace has its own guest", "give it to vpmu advise, or vpmu sim".to_owned()));
        }
        if key == "cost" {
            return Err(refuse("each cost is an axis", "give cost.NAME=LIST, e.g. cost.open=1,10".to_owned()));
        }
        let values = if key == "seed" { of_ranges(&values)? } else { values.into_iter().map(str::to_owned).collect() };
        of_keys::<SimSpec>(&Keys::from([(key.to_owned(), values[0].clone())]))?;
        if axes.insert(key.to_owned(), values).is_some() {
            return Err(refuse(&format!("{key} is there twice"), format!("give its values in one: {key}=1,2")));
        }
    }
    Ok(axes)
}

/// Returns the points, seeds fastest, and their strategies. Values that make the same point are merged.
///
/// # Errors
/// Exit 2 for bad words, invalid values, and too many points.
pub fn points(words: &[String]) -> Result<(Vec<Point>, Strategies), Error> {
    of_axes(axes(words)?)
}

/// Checks words as [`points`] does; with files among them, which are looked for where the sweep runs, each other value alone.
///
/// # Errors
/// As [`points`].
pub fn check(words: &[String]) -> Result<(), Error> {
    let axes = axes(words)?;
    if !axes.values().flatten().any(|value| is_toml(value)) {
        return of_axes(axes).map(drop);
    }
    for (key, values) in axes {
        for value in values.into_iter().filter(|value| !is_toml(value)) {
            let spec: SimSpec = of_keys(&Keys::from([(key.clone(), value)]))?;
            check_name(&spec.model)?;
            check_names(&spec.spec.arms.strategy)?;
        }
    }
    Ok(())
}

fn of_axes(mut axes: Axes) -> Result<(Vec<Point>, Strategies), Error> {
    for (key, value) in USUAL.split(' ').filter_map(|word| word.split_once('=')).chain([("model", DEFAULT_MODEL)]) {
        axes.entry(key.to_owned()).or_insert_with(|| vec![value.to_owned()]);
    }
    // Strategies are arms of one point, which share its floor, and no axis.
    let strategies = axes.remove("strategy").unwrap_or_else(|| PRESETS.map(str::to_owned).to_vec());
    let choices = strategies.iter().map(|name| name.parse::<StrategyChoice>());
    let choices = choices.collect::<Result<Vec<_>, _>>().map_err(|why| Error::usage("strategy", why, ""))?;
    let strategies = Strategies(resolve(&choices)?);
    // The host and its guests are in the names of scenarios first, and change slowest.
    let rank = |key: &str| match key {
        "model" => 0,
        "workload" => 1,
        "seed" => 3,
        _ => 2,
    };
    let mut axes: Vec<(String, Vec<String>)> = axes.into_iter().collect();
    axes.sort_by_key(|(key, _)| rank(key));
    let many = axes.iter().fold(1_usize, |all, (_, values)| all.saturating_mul(values.len()));
    if many > MAX_POINTS {
        let what = format!("the grid has more than {MAX_POINTS} points");
        return Err(Error::usage(what, "", "take fewer values, or several sweeps into the same folder"));
    }
    let point = |number: usize| {
        let mut rest = number;
        let mut keys = Keys::new();
        for (key, values) in axes.iter().rev() {
            keys.insert(key.clone(), values[rest % values.len()].clone());
            rest /= values.len();
        }
        strategies.point(keys)
    };
    let mut points: Vec<Point> = (0..many).into_par_iter().map(point).collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    points.retain(|point| seen.insert(point.key.clone()));
    Ok((points, strategies))
}

/// Lists numbers and ranges such as `1-8`; no more of one than a grid may have, and one.
fn of_ranges(seeds: &[&str]) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for text in seeds {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ends = first.trim().parse::<u64>().ok().zip(last.trim().parse().ok());
        let Some((first, last)) = ends.filter(|(first, last)| first <= last) else {
            let what = format!("seed: '{text}' is neither a whole number nor a range");
            return Err(Error::usage(what, "", "give e.g. 1 or 1-8"));
        };
        all.extend((first..=last).take(MAX_POINTS + 1).map(|seed| seed.to_string()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {

    use super::*;

    fn points(words: &str) -> (Vec<Point>, Strategies) {
        super::points(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn axes_multiply_and_seeds_go_fastest() {
        let found = points("workload=sampling4,io vcpus=1,2 seed=1-2,9 cost.open=0.1,1 cost.exit=1,2,3").0;
        assert_eq!(found.len(), 2 * 2 * 3 * 2 * 3);
        assert_eq!(
            found.iter().take(4).map(|point| point.keys["seed"].as_str()).collect::<Vec<_>>(),
            ["1", "2", "9", "1"]
        );
        assert_eq!((found[0].keys["cost.open"].as_str(), found[0].keys["workload"].as_str()), ("0.1", "sampling4"));
        let keys: BTreeSet<&str> = found.iter().map(|point| point.key.as_str()).collect();
        assert_eq!(keys.len(), found.len());
    }

    #[test]
    fn values_that_mean_the_same_give_one_point() {
        // Only 4 vCPUs on 1 CPU have slices.
        let found = points("vcpus=1,4 cpus=1,8 slice=1ms,5ms mux-interval=4ms,4000us,8ms").0;
        let of = |vcpus: &str, cpus: &str| {
            found
                .iter()
                .filter(|point| (point.keys["vcpus"].as_str(), point.keys["cpus"].as_str()) == (vcpus, cpus))
                .count()
        };
        assert_eq!([of("1", "1"), of("1", "8"), of("4", "1"), of("4", "8")], [2, 0, 4, 2]);
    }

    #[test]
    fn a_line_is_the_document_that_sim_would_have() {
        let words = "strategy=reuse workload=counting1 rounds=3 samples=20 time-limit=1s baseline=40ms warmup=1";
        let (points, strategies) = points(words);
        let line = strategies.line(&points[0], &AtomicBool::new(false)).unwrap().unwrap();
        let spec: SimSpec = of_keys(&line.point).unwrap();
        let model = spec.model().unwrap();
        let mut plan = spec.plan(&model).unwrap();
        plan.arms.retain(|arm| ["reuse", "floor"].contains(&arm.strategy.as_str()));
        let document = simulate(&plan, model, &AtomicBool::new(false)).unwrap();
        assert_eq!(line.arms, Line::of(Keys::new(), String::new(), TOOL, &document).arms);
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    }
}
