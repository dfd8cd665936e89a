//! Expansion of a grid to its points.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use arch_pmu::spec::Vendor;
use host_pmu::stats::ns;
use host_pmu::strategy::{PRESETS, Pause, Release, Strategy};
use results::document::{REPLAY, StrategyParameter};
use results::error::Error;
use sim::mediated::Mediated;
use sim::model::{Costs, Model};

use super::grid::{Factors, Grid, Seeds, by_name};
use super::point::{GridPoint, hash};
use super::simulate::Hosts;
use crate::arms::arm::replay::{IN_NO_TRACE, Parts};
use crate::arms::arm::sim as simulated;
use crate::setting::backend::default_period;
use crate::setting::parse;
use crate::setting::strategy::{StrategyChoice, resolve};
use crate::setting::workload::Workload;
use trace::read::Trace;

/// Maximum number of points of a grid.
pub(super) const MAX_POINTS: u64 = 100_000;
/// Maximum number of vCPUs of a simulated host.
const MAX_VCPUS: u64 = 16_384;

impl Grid {
    /// Returns the points in the order of the axes, and their models and traces by hash.
    ///
    /// Values without effect on a point are ignored (slice without shared CPUs, release-slices for a strategy that does not
    /// release by slices), and equal points are merged.
    ///
    /// # Errors
    /// Exit 2 for invalid or duplicate values, an axis without values or without effect, and too many points.
    pub fn points(&self) -> Result<(Vec<GridPoint>, Hosts), Error> {
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
        let models = axes.models.into_iter().map(|(_, hash, model)| (hash, model)).collect();
        let traces = axes.loads.into_iter().filter_map(|load| match load {
            Load::Trace(hash, parts) => Some((hash, *parts)),
            Load::Work(_) => None,
        });
        Ok((points, Hosts { models, traces: traces.collect() }))
    }

    /// Returns the traces. What a trace has of its own is no axis and no parameter of its points.
    fn traces(&self) -> Result<Vec<Load>, Error> {
        let others = [
            ("workload", self.workload.is_some()),
            ("vcpus", self.vcpus.is_some()),
            ("cpus", self.cpus.is_some()),
            ("slice", self.slice.is_some()),
            ("period", self.period.is_some()),
            ("freq", self.freq.is_some()),
            ("mux-interval", self.mux_interval.is_some()),
            ("timer", self.timer.is_some()),
            ("samples", self.samples.is_some()),
            ("time-limit", self.time_limit.is_some()),
            ("tail", self.tail.is_some()),
            ("hosts", self.hosts.is_some()),
        ];
        if let Some((name, _)) = others.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Error::usage(
                format!("trace and {name} exclude each other"),
                "a trace has its own",
                "leave one out",
            ));
        }
        let mut names = BTreeSet::new();
        axis("trace", self.trace.as_ref(), &[], |folder: &String| {
            let trace = Trace::open(folder.as_ref())?;
            if !names.insert(trace.name()) {
                let what = format!("trace: two are called {}", trace.name());
                return Err(Error::usage(
                    what,
                    "its name stands for it in tables and results",
                    "rename one of the folders",
                ));
            }
            let parts = Parts::of(&trace, 1)?;
            if let Some(why) = parts.tells_nothing(false) {
                return Err(Error::usage(format!("trace: {folder} tells nothing"), why, "leave it out"));
            }
            let meta = serde_json::to_vec(&trace.meta).unwrap_or_default();
            Ok(Load::Trace(hash([&meta, &trace.bytes().to_le_bytes()]), Box::new(parts)))
        })
    }

    /// Returns a point with the parameters of all points, and no place on any axis. Its period is 0 where the model's
    /// default holds.
    fn shared(&self) -> Result<GridPoint, Error> {
        if self.period.is_some() && self.freq.is_some() {
            return Err(Error::usage("period and freq exclude each other", "", "give one of them"));
        }
        let ms = Duration::from_millis;
        let shared = GridPoint {
            period: self.period.map_or(Ok(0), |n| whole("period", n, 2..=(1 << 47) - 1))?,
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
            ..GridPoint::default()
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

/// The guests of a point do one of these.
#[derive(Debug)]
enum Load {
    /// The payload's drivers and work.
    Work(Workload),
    /// The accesses of a trace, which its hash names.
    Trace(String, Box<Parts>),
}

/// Axes with checked values.
struct Axes {
    strategies: Vec<Kept>,
    models: Vec<(String, String, Model)>,
    loads: Vec<Load>,
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
        let loads = match &grid.trace {
            None => axis("workload", grid.workload.as_ref(), &default(&["sampling10"]), |text: &String| {
                let work = text.parse::<Workload>();
                work.map(Load::Work).map_err(|why| Error::usage(format!("workload: '{text}'"), why, ""))
            })?,
            Some(_) => grid.traces()?,
        };
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
            loads,
            costs: cost_axes(&grid.cost)?,
            slices,
            release_slices,
            vcpus,
            cpus,
            seeds: seed_axis(grid.seed.as_ref())?,
        })
    }

    /// Checks the size of the grid, and that its hosts can have its strategies.
    fn check(&self) -> Result<(), Error> {
        for (_, _, model) in &self.models {
            let mediated = self.strategies.iter().filter_map(|kept| match kept {
                Kept::Mediated(kind) => Some(kind.name),
                Kept::Events(_) => None,
            });
            simulated::check_strategies(model, Vendor::Intel, mediated)?;
        }
        let not_in_traces = self.strategies.iter().find_map(|kept| match kept {
            Kept::Mediated(kind) => Some((kind.name, "no access of a PMU that the guest owns is in a trace")),
            Kept::Events(strategy) => (strategy.pause == Pause::Virtual).then_some((&*strategy.name, IN_NO_TRACE)),
        });
        if let (Some((name, why)), Some(Load::Trace(..))) = (not_in_traces, self.loads.first()) {
            return Err(Error::usage(
                format!("strategy {name} cannot be replayed"),
                why,
                "name the others by strategy",
            ));
        }
        let lengths = [
            self.strategies.len(),
            self.models.len(),
            self.loads.len(),
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

    /// Returns all combinations. Seeds vary fastest, then strategies, so that compared points are simulated together.
    fn product<'a>(&'a self, shared: &'a GridPoint) -> impl Iterator<Item = GridPoint> + 'a {
        let mut sizes = vec![self.models.len(), self.loads.len()];
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

    fn point(&self, at: &[usize], shared: &GridPoint) -> GridPoint {
        let (name, model_hash, model) = &self.models[at[0]];
        let costs = self.costs.iter().zip(&at[2..]).map(|((cost, factors), &at)| (cost.clone(), factors[at]));
        let &[vcpus, cpus, slice, strategy, release, seed] = &at[2 + self.costs.len()..] else {
            unreachable!("as many digits as axes")
        };
        let vcpus = self.vcpus[vcpus];
        let cpus = self.cpus[cpus].map_or(vcpus, |cpus| cpus.min(vcpus));
        let (strategy, definition, release_slices) = match self.strategies[strategy].clone() {
            Kept::Mediated(kind) => (kind.name.to_owned(), String::new(), None),
            Kept::Events(mut strategy) => {
                let by_slices = matches!(strategy.release, Release::Slices(_));
                let slices = self.release_slices[release].filter(|_| by_slices);
                if let Some(n) = slices {
                    strategy.release = Release::Slices(n);
                }
                let definition = toml::to_string(&strategy).unwrap_or_default();
                (strategy.name, definition, slices)
            }
        };
        let backend = simulated::chosen(model, "").backend;
        let shared = &GridPoint {
            definition,
            strategy,
            release_slices,
            model: name.clone(),
            model_hash: model_hash.clone(),
            costs: costs.collect(),
            seed: self.seeds[seed],
            ..shared.clone()
        };
        let work = match &self.loads[at[1]] {
            Load::Work(work) => work,
            // Its guests' pace, vCPUs and periods are the trace's.
            Load::Trace(hash, parts) => {
                let vcpus = parts.trace.meta.vcpus as u64;
                let (workload, trace_hash) = (format!("{REPLAY}{}", parts.trace.name()), Some(hash.clone()));
                return GridPoint {
                    workload,
                    trace_hash,
                    vcpus,
                    cpus: vcpus,
                    samples: parts.samples,
                    ..shared.clone()
                };
            }
        };
        GridPoint {
            workload: work.to_string(),
            vcpus,
            cpus,
            slice_ns: self.slices[slice].filter(|_| cpus < vcpus).unwrap_or(model.host.slice),
            period: if shared.period > 0 { shared.period } else { default_period(&backend) },
            ..shared.clone()
        }
    }

    /// Refuses an axis without effect on any point.
    fn check_differences(&self, points: &[GridPoint]) -> Result<(), Error> {
        let useless = |what: &str, why: &str, remedy: &str| {
            Err(Error::usage(format!("{what} makes no difference to any point"), why, remedy))
        };
        if self.slices.iter().any(Option::is_some) && points.iter().all(|point| point.cpus == point.vcpus) {
            return useless("slice", "no vCPU shares a CPU", "give fewer cpus than vcpus, or leave slice out");
        }
        if self.release_slices.iter().any(Option::is_some) && points.iter().all(|point| point.release_slices.is_none())
        {
            let by_slices =
                |name: &&str| matches!(Strategy::preset(name), Ok(Strategy { release: Release::Slices(_), .. }));
            let presets: Vec<&str> = PRESETS.into_iter().filter(by_slices).collect();
            return useless(
                "release-slices",
                "no strategy here releases by slices",
                &format!("add one that does ({}), or leave it out", presets.join(", ")),
            );
        }
        Ok(())
    }
}

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
    let named = |key: &str| given.iter().any(|(cost, _)| cost == key);
    by_name(given)?
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
    Ok(ns(value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::super::grid::Seeds;

    use super::*;

    fn grid(toml: &str) -> Grid {
        toml::from_str(toml).unwrap()
    }

    fn points(toml: &str) -> Vec<GridPoint> {
        grid(toml).points().unwrap().0
    }

    #[test]
    fn axes_multiply_and_seeds_go_fastest() {
        let points = points(
            "strategy = ['reuse', 'pool']\nworkload = ['sampling4', 'io']\nvcpus = [1, 2]\nseed = ['1-2', 9]\n\
         cost.open = [0.1, 1]\ncost.exit = [1, 2, 3]",
        );
        assert_eq!(points.len(), 2 * 2 * 2 * 3 * 2 * 3);
        assert_eq!(points.iter().take(4).map(|p| p.seed).collect::<Vec<_>>(), [1, 2, 9, 1]);
        assert_eq!(points[3].strategy, "pool");
        assert_eq!(points[0].costs, BTreeMap::from([("exit".to_owned(), 1.0), ("open".to_owned(), 0.1)]));
        let keys: BTreeSet<String> = points.iter().map(GridPoint::key).collect();
        assert_eq!(keys.len(), points.len());
    }

    #[test]
    fn values_that_mean_the_same_give_one_point() {
        // Only 4 vCPUs on 1 CPU have slices; only reuse-lazy counts them.
        let points = points(
            "strategy = ['reuse', 'reuse-lazy']\nvcpus = [1, 4]\ncpus = [1, 8]\nslice = ['1ms', '5ms']\nrelease-slices = [1, 3]",
        );
        let points_of = |strategy: &str, vcpus, cpus| {
            points.iter().filter(|p| (p.strategy.as_str(), p.vcpus, p.cpus) == (strategy, vcpus, cpus)).count()
        };
        assert_eq!([points_of("reuse", 1, 1), points_of("reuse", 4, 1), points_of("reuse", 4, 4)], [1, 2, 1]);
        assert_eq!(
            [points_of("reuse-lazy", 1, 1), points_of("reuse-lazy", 4, 1), points_of("reuse-lazy", 4, 4)],
            [2, 4, 2]
        );
        let lazy = points.iter().find(|p| p.release_slices == Some(3)).unwrap();
        assert_eq!(lazy.arm(), "reuse-lazy slices=3");
        assert!(lazy.definition.contains("slices = 3"));
    }

    #[test]
    fn bad_grids_are_refused_with_the_axis() {
        for (toml, needle) in [
            ("strategy = []", "strategy: the axis has no values"),
            ("strategy = ['mediated']", "model development-host cannot have strategy mediated"),
            ("strategy = ['mediated']\nmodel = ['development-host-tracepoint']", "its events count exits"),
            ("strategy = ['reuse', 'reuse']", "strategy: duplicate value reuse"),
            ("strategy = ['floor']", "always part of a comparison"),
            ("vcpus = [0]", "vcpus: 0 is out of range; give 1 to 16384"),
            ("vcpus = [1]\ncpus = [2]", "more cpus than vcpus"),
            ("slice = ['1ms', '2ms']", "slice makes no difference"),
            ("slice = ['1']", "slice: '1': a duration needs its unit"),
            ("slice = ['0ns']\nvcpus = [2]\ncpus = [1]", "slice: 0ns is out of range"),
            ("release-slices = [1, 2]\nstrategy = ['reuse']", "release-slices makes no difference"),
            ("cost.opne = [1]", "cost: there is no 'opne'"),
            ("cost.open = [-1.0]", "cost.open: -1 is not a factor"),
            ("cost.open = [2]\ncost.open-first = [2]", "open also scales open-first"),
            ("seed = ['3-1']", "seed: 3-1 is a range from high to low"),
            ("seed = ['0-99999999999']", "seed: too many"),
            ("seed = ['1-4', 2]", "seed: duplicate value"),
            ("strategy = ['reuse']\nseed = ['1-99999']\nvcpus = [1, 2]", "the grid has 199998 points"),
            ("period = 100\nfreq = 100", "period and freq exclude"),
            ("timer = 'late'", "timer: there is no 'late'"),
            ("time-limit = '5ms'", "shorter than two ticks"),
        ] {
            let error = grid(toml).points().unwrap_err();
            assert_eq!(error.exit.code(), 2);
            let line = error.to_string();
            assert!(line.contains(needle) && !line.contains('\n'), "{toml}: {line:?} lacks {needle:?}");
        }
    }

    #[test]
    fn a_grid_file_is_read_from_its_folder_and_what_is_wrong_has_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        write("mine.toml", b"reuse = 'last'\nrelease = 'never'\napply = 'at-once'");
        let path = write("grid.toml", b"strategy = ['mine.toml', 'reuse']\nseed = [1, 2]\nperiod = 1000");
        let grid = Grid::from_file(&path).unwrap();
        let command_line = Grid { seed: Some(vec![Seeds::Text("5".to_owned())]), freq: Some(99), ..Grid::default() };
        let (points, _) = grid.overridden_by(&command_line).unwrap().points().unwrap();
        assert_eq!(
            points.iter().map(|p| (p.strategy.as_str(), p.seed)).collect::<Vec<_>>(),
            [("mine", 5), ("reuse", 5)]
        );
        assert_eq!(points[0].freq_hz, Some(99), "a frequency replaces a period");
        for (text, needle) in [
            (&b"\nstrategies = ['reuse']"[..], "line 2: unknown field `strategies`"),
            (b"vcpus = ['two']", "line 1"),
            (b"\xff", "UTF-8"),
            (&vec![b'#'; 300_000], "larger"),
        ] {
            let error = Grid::from_file(&write("bad.toml", text)).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            let line = error.to_string();
            assert!(line.contains(needle) && !line.contains('\n'), "{line:?} lacks {needle:?}");
        }
        assert!(Grid::from_file(Path::new("/nonexistent")).unwrap_err().to_string().contains("No such file"));
    }

    proptest::proptest! {
        /// Any text is a grid or refused in one line.
        #[test]
        fn any_text_is_a_grid_or_refused(text in "[a-z.=\\[\\]{}\n'0-9, -]{0,120}") {
            if let Ok(grid) = toml::from_str::<Grid>(&text) {
                let _ = grid.points();
            }
        }
    }
}
