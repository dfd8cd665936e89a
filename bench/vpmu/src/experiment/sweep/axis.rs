//! The values of one axis, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use host_pmu::strategy::{PRESETS, Strategy};
use sim::mediated::Mediated;
use sim::model::Costs;

use super::grid::{Factors, Seeds};
use crate::setting::parse;
use crate::setting::strategy::{StrategyChoice, resolve};
use results::document::StrategyParameter;
use results::error::Error;

/// Maximum number of values of an axis other than `seed`.
const MAX_VALUES: usize = 1000;
/// Maximum number of seeds.
const MAX_SEEDS: u64 = 100_000;

/// Reads the values of an axis: at least one, no duplicates.
pub(super) fn axis<T, V>(
    name: &str,
    given: Option<&Vec<T>>,
    default: &[T],
    read: impl FnMut(&T) -> Result<V, Error>,
) -> Result<Vec<V>, Error>
where
    T: Display + PartialEq,
{
    let values = given.map_or(default, Vec::as_slice);
    if values.is_empty() {
        return Err(no_values(name));
    }
    if values.len() > MAX_VALUES {
        return Err(Error::usage(format!("{name}: more than {MAX_VALUES} values"), "", "take fewer"));
    }
    for (i, value) in values.iter().enumerate() {
        if values[..i].contains(value) {
            return Err(Error::usage(format!("{name}: duplicate value {value}"), "", "leave one out"));
        }
    }
    values.iter().map(read).collect()
}

fn no_values(name: &str) -> Error {
    Error::usage(format!("{name}: the axis has no values"), "", "give one, or leave the axis out")
}

/// Reads the values of an axis whose absence means a default decided elsewhere.
pub(super) fn optional_axis<T, V>(
    name: &str,
    given: Option<&Vec<T>>,
    read: impl FnMut(&T) -> Result<V, Error>,
) -> Result<Vec<Option<V>>, Error>
where
    T: Display + PartialEq,
{
    if given.is_none() {
        return Ok(vec![None]);
    }
    Ok(axis(name, given, &[], read)?.into_iter().map(Some).collect())
}

/// Source of the counters of a point.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// Host events.
    Events(Strategy),
    /// A PMU that the guest owns.
    Mediated(Mediated),
}

pub(super) fn strategy_axis(given: Option<&Vec<String>>) -> Result<Vec<Kept>, Error> {
    let args = axis("strategy", given, &PRESETS.map(str::to_owned), |name| {
        name.parse::<StrategyChoice>().map_err(|why| Error::usage(format!("strategy: '{name}'"), why, ""))
    })?;
    let kept = |strategy: StrategyParameter| {
        Ok(match Mediated::named(&strategy.name) {
            Some(kind) => Kept::Mediated(kind),
            None => Kept::Events(
                Strategy::named(&strategy.name, strategy.definition.as_deref())
                    .map_err(|error| Error::usage(format!("strategy {}", strategy.name), error.to_string(), ""))?,
            ),
        })
    };
    resolve(&args)?.into_iter().map(kept).collect()
}

pub(super) fn cost_axes(given: &[(String, Factors)]) -> Result<Vec<(String, Factors)>, Error> {
    let mut costs = BTreeMap::new();
    for (cost, factors) in given {
        if costs.insert(cost, factors).is_some() {
            let remedy = format!("give its factors in one: --cost {cost}=0.1,1,10");
            return Err(Error::usage(format!("duplicate --cost {cost}"), "", remedy));
        }
    }
    let named = |key: &str| given.iter().any(|(cost, _)| cost == key);
    costs
        .into_iter()
        .map(|(cost, factors)| {
            if !Costs::SCALABLE.contains(&cost.as_str()) {
                let remedy = parse::suggestion(cost, &Costs::SCALABLE, "");
                return Err(Error::usage(format!("cost: there is no '{cost}'"), "", remedy));
            }
            let both = [("open", ["open-first", "open-more"]), ("release", ["release-last", "release"])];
            for (whole, parts) in both {
                if whole != cost.as_str() && parts.contains(&cost.as_str()) && named(whole) {
                    return Err(Error::usage(format!("cost: {whole} also scales {cost}"), "", "leave one out"));
                }
            }
            let factors = axis(&format!("cost.{cost}"), Some(factors), &[], |&factor| {
                if (0.0..=1e6).contains(&factor) {
                    Ok(factor)
                } else {
                    Err(Error::usage(format!("cost.{cost}: {factor} is not a factor"), "", "give 0 to 1000000"))
                }
            })?;
            Ok((cost.clone(), factors))
        })
        .collect()
}

pub(super) fn seed_axis(given: Option<&Vec<Seeds>>) -> Result<Vec<u64>, Error> {
    let mut seeds = Vec::new();
    for entry in given.map_or(&[Seeds::One(1)][..], Vec::as_slice) {
        let (first, last) = match entry {
            Seeds::One(n) => (*n, *n),
            Seeds::Text(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let number = |text: &str| text.trim().parse::<u64>().ok();
                number(first).zip(number(last)).ok_or_else(|| {
                    Error::usage(
                        format!("seed: '{text}' is neither a whole number nor a range"),
                        "",
                        "give e.g. 1 or 1-8",
                    )
                })?
            }
        };
        if first > last {
            return Err(Error::usage(
                format!("seed: {first}-{last} is a range from high to low"),
                "",
                format!("give {last}-{first}"),
            ));
        }
        if last - first >= MAX_SEEDS || seeds.len() as u64 + (last - first) >= MAX_SEEDS {
            return Err(Error::usage("seed: too many", format!("more than {MAX_SEEDS} are refused"), "take fewer"));
        }
        seeds.extend(first..=last);
    }
    let distinct: BTreeSet<_> = seeds.iter().collect();
    if distinct.len() < seeds.len() {
        return Err(Error::usage("seed: duplicate value", "", "leave one out"));
    }
    if seeds.is_empty() {
        return Err(no_values("seed"));
    }
    Ok(seeds)
}

pub(super) fn whole(name: &str, n: u64, range: RangeInclusive<u64>) -> Result<u64, Error> {
    if range.contains(&n) {
        return Ok(n);
    }
    Err(Error::usage(format!("{name}: {n} is out of range"), "", format!("give {} to {}", range.start(), range.end())))
}

pub(super) fn time(
    name: &str,
    given: Option<&str>,
    default: &str,
    range: RangeInclusive<Duration>,
) -> Result<u64, Error> {
    let text = given.unwrap_or(default);
    let value = parse::duration(text).map_err(|why| Error::usage(format!("{name}: '{text}'"), why, ""))?;
    if !range.contains(&value) {
        let remedy = format!("give {:?} to {:?}", range.start(), range.end());
        return Err(Error::usage(format!("{name}: {text} is out of range"), "", remedy));
    }
    Ok(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
}
