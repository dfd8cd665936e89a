//! From axes to points.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use host_pmu::strategy::{PRESETS, Release, Strategy};
use serde::Deserialize;
use sim::model::{Costs, Model};

use super::point::{Point, hash};
use crate::arm::sim as simulated;
use crate::backend::default_period;
use crate::cli::parse;
use crate::error::Error;
use crate::strategy::{StrategyChoice, ready};
use crate::workload::Workload;

/// Most points of a grid.
pub const MAX_POINTS: u64 = 100_000;
/// Most values of an axis, but for seeds.
const MAX_VALUES: usize = 1000;
/// Most vCPUs of a simulated host.
const MAX_VCPUS: u64 = 4096;
/// Largest grid file.
const MAX_GRID: u64 = 256 << 10;
/// Most seeds.
const MAX_SEEDS: u64 = MAX_POINTS;

/// Seeds: one, or a range such as `1-8`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Seeds {
    /// One.
    One(u64),
    /// One or a range, as text.
    Text(String),
}

/// The axes and what all points share, as they were given. `None` stands for the default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Grid {
    /// Preset names or .toml files.
    pub strategy: Option<Vec<String>>,
    /// Model names or .toml files.
    pub model: Option<Vec<String>>,
    /// `EVENTS[/WORK]`.
    pub workload: Option<Vec<String>>,
    /// Factors by cost.
    pub cost: Option<BTreeMap<String, Vec<f64>>>,
    /// Turns of a vCPU on a shared CPU.
    pub slice: Option<Vec<String>>,
    /// N of `release = { slices = N }`.
    pub release_slices: Option<Vec<u64>>,
    /// vCPUs of the host.
    pub vcpus: Option<Vec<u64>>,
    /// Host CPUs they share.
    pub cpus: Option<Vec<u64>>,
    /// Seeds.
    pub seed: Option<Vec<Seeds>>,
    /// Events between two overflows.
    pub period: Option<u64>,
    /// Sampling frequency.
    pub freq: Option<u64>,
    /// The guest's tick.
    pub mux_interval: Option<String>,
    /// `periodic` or `forwarded`.
    pub timer: Option<String>,
    /// NMIs per vCPU.
    pub samples: Option<u64>,
    /// End of a measured phase.
    pub time_limit: Option<String>,
    /// Idle time after it.
    pub tail: Option<String>,
    /// Hosts of each kind.
    pub hosts: Option<u64>,
}

impl Grid {
    /// The grid of a file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// Exit 2, with the line or key that is wrong.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let refuse = |why: String| {
            Error::usage(format!("cannot use grid {}", path.display()), why, "docs/simulator.md has the keys")
        };
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_GRID + 1).read_to_string(&mut text))
            .map_err(|error| refuse(error.to_string()))?;
        if text.len() as u64 > MAX_GRID {
            return Err(refuse(format!("it is larger than {MAX_GRID} bytes")));
        }
        let mut grid: Self = toml::from_str(&text).map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            refuse(format!("line {line}: {}", error.message()))
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for entry in grid.strategy.iter_mut().chain(&mut grid.model).flatten() {
            if Path::new(entry).extension().is_some_and(|extension| extension == "toml") {
                *entry = folder.join(&*entry).to_string_lossy().into_owned();
            }
        }
        Ok(grid)
    }

    /// This grid, with what `other` says in place of its own.
    #[must_use]
    pub fn overridden_by(self, other: Self) -> Self {
        Self {
            strategy: other.strategy.or(self.strategy),
            model: other.model.or(self.model),
            workload: other.workload.or(self.workload),
            cost: other.cost.or(self.cost),
            slice: other.slice.or(self.slice),
            release_slices: other.release_slices.or(self.release_slices),
            vcpus: other.vcpus.or(self.vcpus),
            cpus: other.cpus.or(self.cpus),
            seed: other.seed.or(self.seed),
            // A period and a frequency exclude each other: either of the one replaces either of the other.
            period: other.period.or(if other.freq.is_some() { None } else { self.period }),
            freq: other.freq.or(if other.period.is_some() { None } else { self.freq }),
            mux_interval: other.mux_interval.or(self.mux_interval),
            timer: other.timer.or(self.timer),
            samples: other.samples.or(self.samples),
            time_limit: other.time_limit.or(self.time_limit),
            tail: other.tail.or(self.tail),
            hosts: other.hosts.or(self.hosts),
        }
    }

    /// Its points, in the order of the axes, and the models they need by their hash.
    ///
    /// A value that makes no difference to a point is left out of it (a slice where no vCPU shares a CPU, slices until release
    /// where a strategy does not release by slices), and points that are the same are one.
    ///
    /// # Errors
    /// Exit 2: values that are wrong, double, or make no difference anywhere; an axis without values; too many points.
    pub fn points(&self) -> Result<(Vec<Point>, BTreeMap<String, Model>), Error> {
        let axes = Axes::of(self)?;
        let shared = self.shared()?;
        axes.check()?;
        let (mut points, mut keys) = (Vec::new(), BTreeSet::new());
        for point in axes.product(&shared) {
            if keys.insert(point.key()) {
                points.push(point);
            }
        }
        axes.check_differences(&points)?;
        Ok((points, axes.models.into_iter().map(|(_, hash, model)| (hash, model)).collect()))
    }

    fn shared(&self) -> Result<Shared, Error> {
        if self.period.is_some() && self.freq.is_some() {
            return Err(Error::usage("period and freq exclude each other", "", "give one of them"));
        }
        let ms = Duration::from_millis;
        let shared = Shared {
            period: self.period.map(|n| whole("period", n, 2..=(1 << 47) - 1)).transpose()?,
            freq_hz: self.freq.map(|n| whole("freq", n, 1..=100_000)).transpose()?,
            mux_interval_ns: time(
                "mux-interval",
                self.mux_interval.as_deref(),
                "4ms",
                Duration::from_micros(100)..=ms(4000),
            )?,
            timer: self.timer.clone().unwrap_or_else(|| "periodic".to_owned()),
            samples: whole("samples", self.samples.unwrap_or(2000), 1..=10_000_000)?,
            time_limit_ns: time("time-limit", self.time_limit.as_deref(), "10s", ms(1)..=ms(3_600_000))?,
            tail_ns: time("tail", self.tail.as_deref(), "16ms", ms(0)..=ms(3_600_000))?,
            hosts: whole("hosts", self.hosts.unwrap_or(1), 1..=10_000)?,
        };
        if !["periodic", "forwarded"].contains(&shared.timer.as_str()) {
            return Err(Error::usage(
                format!("timer: there is no '{}'", shared.timer),
                "",
                "give periodic or forwarded",
            ));
        }
        if shared.time_limit_ns < 2 * shared.mux_interval_ns {
            return Err(Error::usage(
                format!(
                    "time-limit of {} ns is shorter than two ticks of {} ns",
                    shared.time_limit_ns, shared.mux_interval_ns
                ),
                "",
                "raise time-limit or lower mux-interval",
            ));
        }
        Ok(shared)
    }
}

/// What all points have.
struct Shared {
    period: Option<u64>,
    freq_hz: Option<u64>,
    mux_interval_ns: u64,
    timer: String,
    samples: u64,
    time_limit_ns: u64,
    tail_ns: u64,
    hosts: u64,
}

/// The axes with checked values.
struct Axes {
    strategies: Vec<Strategy>,
    models: Vec<(String, String, Model)>,
    workloads: Vec<Workload>,
    costs: Vec<(String, Vec<f64>)>,
    slices: Vec<Option<u64>>,
    release_slices: Vec<Option<u32>>,
    vcpus: Vec<u64>,
    cpus: Vec<Option<u64>>,
    seeds: Vec<u64>,
}

impl Axes {
    fn of(grid: &Grid) -> Result<Self, Error> {
        let default = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let models = axis("model", grid.model.as_ref(), &default(&[simulated::DEFAULT_MODEL]), |name| {
            let (text, model) = simulated::model_text(name)?;
            Ok((name.clone(), hash([text.as_bytes()]), model))
        })?;
        let workloads = axis("workload", grid.workload.as_ref(), &default(&["sampling10"]), |text: &String| {
            text.parse::<Workload>().map_err(|why| Error::usage(format!("workload: '{text}'"), why, ""))
        })?;
        let slices = optional_axis("slice", grid.slice.as_ref(), |text| {
            time("slice", Some(text), "", Duration::from_micros(1)..=Duration::from_secs(1000))
        })?;
        let release_slices = optional_axis("release-slices", grid.release_slices.as_ref(), |&n| {
            Ok(whole("release-slices", n, 1..=1_000_000)? as u32)
        })?;
        let vcpus = axis("vcpus", grid.vcpus.as_ref(), &[1], |&n| whole("vcpus", n, 1..=MAX_VCPUS))?;
        let cpus = optional_axis("cpus", grid.cpus.as_ref(), |&n| whole("cpus", n, 1..=MAX_VCPUS))?;
        Ok(Self {
            strategies: strategy_axis(grid.strategy.as_ref())?,
            models,
            workloads,
            costs: cost_axes(grid.cost.as_ref())?,
            slices,
            release_slices,
            vcpus,
            cpus,
            seeds: seed_axis(grid.seed.as_ref())?,
        })
    }

    /// Bounds the work before any of it is done.
    fn check(&self) -> Result<(), Error> {
        let lengths = [
            self.strategies.len(),
            self.models.len(),
            self.workloads.len(),
            self.slices.len(),
            self.release_slices.len(),
            self.vcpus.len(),
            self.cpus.len(),
            self.seeds.len(),
        ];
        let lengths = lengths.into_iter().chain(self.costs.iter().map(|(_, factors)| factors.len()));
        let points = lengths.fold(1_u128, |product, length| product.saturating_mul(length as u128));
        if points > u128::from(MAX_POINTS) {
            return Err(Error::usage(
                format!("the grid has {points} points"),
                format!("more than {MAX_POINTS} are refused"),
                "take fewer values, or several sweeps into the same folder",
            ));
        }
        if self.cpus.iter().flatten().min() > self.vcpus.iter().max() {
            return Err(Error::usage(
                "every point has more cpus than vcpus",
                "",
                "leave cpus out: each vCPU then has its own",
            ));
        }
        Ok(())
    }

    /// Every combination. Seeds go fastest and strategies next, so that what is compared is done together.
    fn product<'a>(&'a self, shared: &'a Shared) -> impl Iterator<Item = Point> + 'a {
        let mut sizes = vec![self.models.len(), self.workloads.len()];
        sizes.extend(self.costs.iter().map(|(_, factors)| factors.len()));
        sizes.extend([self.vcpus.len(), self.cpus.len(), self.slices.len()]);
        sizes.extend([self.strategies.len(), self.release_slices.len(), self.seeds.len()]);
        let total: usize = sizes.iter().product();
        (0..total).map(move |number| {
            let (mut rest, mut at) = (number, vec![0; sizes.len()]);
            for (digit, size) in at.iter_mut().zip(&sizes).rev() {
                *digit = rest % size;
                rest /= size;
            }
            self.point(&at, shared)
        })
    }

    fn point(&self, at: &[usize], shared: &Shared) -> Point {
        let (name, model_hash, model) = &self.models[at[0]];
        let costs = self.costs.iter().zip(&at[2..]).map(|((cost, factors), &at)| (cost.clone(), factors[at]));
        let &[vcpus, cpus, slice, strategy, release, seed] = &at[2 + self.costs.len()..] else {
            unreachable!("as many digits as axes")
        };
        let vcpus = self.vcpus[vcpus];
        let cpus = self.cpus[cpus].map_or(vcpus, |cpus| cpus.min(vcpus));
        let mut strategy = self.strategies[strategy].clone();
        let release_slices = self.release_slices[release].filter(|_| matches!(strategy.release, Release::Slices(_)));
        if let Some(n) = release_slices {
            strategy.release = Release::Slices(n);
        }
        let backend = simulated::chosen(model, "").backend;
        Point {
            definition: toml::to_string(&strategy).unwrap_or_default(),
            strategy: strategy.name,
            release_slices,
            model: name.clone(),
            model_hash: model_hash.clone(),
            costs: costs.collect(),
            workload: self.workloads[at[1]].to_string(),
            vcpus,
            cpus,
            slice_ns: self.slices[slice].filter(|_| cpus < vcpus).unwrap_or(model.host.slice),
            seed: self.seeds[seed],
            period: shared.period.unwrap_or_else(|| default_period(&backend)),
            freq_hz: shared.freq_hz,
            mux_interval_ns: shared.mux_interval_ns,
            timer: shared.timer.clone(),
            samples: shared.samples,
            time_limit_ns: shared.time_limit_ns,
            tail_ns: shared.tail_ns,
            hosts: shared.hosts,
        }
    }

    /// An axis that was given for nothing is a misunderstanding.
    fn check_differences(&self, points: &[Point]) -> Result<(), Error> {
        let useless = |what: &str, why: &str, remedy: &str| {
            Err(Error::usage(format!("{what} makes no difference to any point"), why, remedy))
        };
        if self.slices.iter().any(Option::is_some) && points.iter().all(|point| point.cpus == point.vcpus) {
            return useless("slice", "no vCPU shares a CPU", "give fewer cpus than vcpus, or leave slice out");
        }
        if self.release_slices.iter().any(Option::is_some) && points.iter().all(|point| point.release_slices.is_none())
        {
            return useless(
                "release-slices",
                "no strategy here releases by slices",
                "add one that does (reuse-lazy, paused-flag, deferred, pool), or leave it out",
            );
        }
        Ok(())
    }
}

/// The values of an axis: at least one, none twice.
fn axis<T, V>(
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
            return Err(Error::usage(format!("{name}: {value} stands twice"), "", "leave one out"));
        }
    }
    values.iter().map(read).collect()
}

fn no_values(name: &str) -> Error {
    Error::usage(format!("{name}: the axis has no values"), "", "give one, or leave the axis out")
}

/// The same, where leaving the axis out leaves the value to something else.
fn optional_axis<T, V>(
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

fn strategy_axis(given: Option<&Vec<String>>) -> Result<Vec<Strategy>, Error> {
    let args = axis("strategy", given, &PRESETS.map(str::to_owned), |name| {
        name.parse::<StrategyChoice>().map_err(|why| Error::usage(format!("strategy: '{name}'"), why, ""))
    })?;
    ready(&args)
}

fn cost_axes(given: Option<&BTreeMap<String, Vec<f64>>>) -> Result<Vec<(String, Vec<f64>)>, Error> {
    given
        .into_iter()
        .flatten()
        .map(|(cost, factors)| {
            if !Costs::SCALABLE.contains(&cost.as_str()) {
                let known = Costs::SCALABLE.join(", ");
                return Err(Error::usage(format!("cost: there is no '{cost}'"), "", format!("known are {known}")));
            }
            let both = [("open", ["open-first", "open-more"]), ("release", ["release-last", "release"])];
            for (whole, parts) in both {
                let named = |key: &str| given.is_some_and(|costs| costs.contains_key(key));
                if whole != cost.as_str() && parts.contains(&cost.as_str()) && named(whole) {
                    return Err(Error::usage(format!("cost: {whole} scales {cost}, too"), "", "leave one out"));
                }
            }
            let factors = axis(&format!("cost.{cost}"), Some(factors), &[], |&factor| {
                if (0.0..=1e6).contains(&factor) {
                    Ok(factor)
                } else {
                    Err(Error::usage(format!("cost.{cost}: {factor} is no factor"), "", "give 0 to 1000000"))
                }
            })?;
            Ok((cost.clone(), factors))
        })
        .collect()
}

fn seed_axis(given: Option<&Vec<Seeds>>) -> Result<Vec<u64>, Error> {
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
                format!("seed: {first}-{last} runs backwards"),
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
        return Err(Error::usage("seed: one stands twice", "", "leave one out"));
    }
    if seeds.is_empty() {
        return Err(no_values("seed"));
    }
    Ok(seeds)
}

fn whole(name: &str, n: u64, range: RangeInclusive<u64>) -> Result<u64, Error> {
    if range.contains(&n) {
        return Ok(n);
    }
    Err(Error::usage(format!("{name}: {n} is out of range"), "", format!("give {} to {}", range.start(), range.end())))
}

fn time(name: &str, given: Option<&str>, default: &str, range: RangeInclusive<Duration>) -> Result<u64, Error> {
    let text = given.unwrap_or(default);
    let value = parse::duration(text).map_err(|why| Error::usage(format!("{name}: '{text}'"), why, ""))?;
    if !range.contains(&value) {
        let remedy = format!("give {:?} to {:?}", range.start(), range.end());
        return Err(Error::usage(format!("{name}: {text} is out of range"), "", remedy));
    }
    Ok(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
