//! Expansion of a grid to its points.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use host_pmu::strategy::{PRESETS, Release, Strategy};
use sim::model::Model;

use super::axis::{Kept, axis, cost_axes, optional_axis, seed_axis, strategy_axis, time, whole};
use super::grid::Grid;
use super::point::{GridPoint, hash};
use crate::arms::arm::sim as simulated;
use crate::setting::backend::default_period;
use crate::setting::workload::Workload;
use results::error::Error;

/// Maximum number of points of a grid.
pub(super) const MAX_POINTS: u64 = 100_000;
/// Maximum number of vCPUs of a simulated host.
const MAX_VCPUS: u64 = 16_384;

impl Grid {
    /// Returns the points in the order of the axes, and their models by hash.
    ///
    /// Values without effect on a point are ignored (slice without shared CPUs, release-slices for a strategy that does not
    /// release by slices), and equal points are merged.
    ///
    /// # Errors
    /// Exit 2 for invalid or duplicate values, an axis without values or without effect, and too many points.
    pub fn points(&self) -> Result<(Vec<GridPoint>, BTreeMap<String, Model>), Error> {
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

    /// Returns a point with the parameters of all points, and no place on any axis. Its period is 0 where the model's default holds.
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

/// Axes with checked values.
struct Axes {
    strategies: Vec<Kept>,
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
            simulated::check_strategies(model, mediated)?;
        }
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

    /// Returns all combinations. Seeds vary fastest, then strategies, so that compared points are simulated together.
    fn product<'a>(&'a self, shared: &'a GridPoint) -> impl Iterator<Item = GridPoint> + 'a {
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
        GridPoint {
            definition,
            strategy,
            release_slices,
            model: name.clone(),
            model_hash: model_hash.clone(),
            costs: costs.collect(),
            workload: self.workloads[at[1]].to_string(),
            vcpus,
            cpus,
            slice_ns: self.slices[slice].filter(|_| cpus < vcpus).unwrap_or(model.host.slice),
            seed: self.seeds[seed],
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

#[cfg(test)]
mod tests;
