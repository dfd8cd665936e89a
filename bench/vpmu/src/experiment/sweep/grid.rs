//! The axes and options of a sweep, from a file or the command line.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Table;

use crate::setting::parse::number_in;
use results::error::Error;
use results::open;

/// Largest grid file, bytes.
const MAX_GRID: u64 = 256 << 10;
/// Largest number that TOML has.
const MOST: u64 = i64::MAX as u64;

/// The factors of one `--cost`.
pub type Factors = Vec<f64>;

/// A seed, or a range such as `1-8`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seeds {
    /// One seed.
    One(u64),
    /// A seed or a range, as text.
    Text(String),
}

impl FromStr for Seeds {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::Text(text.to_owned()))
    }
}

/// One number of a list.
fn each(text: &str) -> Result<u64, String> {
    number_in(0..=MOST)(text).map_err(|why| format!("{why}; several are a list, e.g. 1,10,100"))
}

/// Axes, and parameters of all points, whose values are checked by [`Grid::points`]. A file has them by their long names.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Grid {
    /// Strategies: preset names or .toml files [default: every preset]
    ///
    /// With a model of a host that can give its PMU away, such as spr-2026, also mediated and mediated-filter.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub strategy: Option<Vec<String>>,

    /// Models of hosts: names of `vpmu show models` or .toml files [default: development-host]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub model: Option<Vec<String>>,

    /// Workload of the guests: EVENTS[/WORK], see vpmu nmi-latency --help [default: sampling10]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workload: Option<Vec<String>>,

    /// Traces that are replayed whole in place of workloads, each a folder of vpmu trace; the figure is the host's work per PMI
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all =
          ["workload", "vcpus", "cpus", "slice", "period", "freq", "mux_interval", "timer", "samples", "time_limit", "tail", "hosts"])]
    pub trace: Option<Vec<String>>,

    /// Multiply a cost of the model by each of these, e.g. open=0.1,1,10; an axis for each --cost
    ///
    /// exit, tick-exit, io, vmm, apic, signal, inject, interrupt, instruction, work-unit, open (open-first and open-more), release
    /// (release-last and release), pause, resume, resume-other, period, period-running, read, peek, expiry, switch, switch-held, switch-running,
    /// pmu-switch, register; or a part of open and release by its own name.
    #[arg(long, value_name = "COST=LIST", value_parser = cost)]
    #[serde(with = "costs", default, skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<(String, Factors)>,

    /// Time slice of a vCPU on a shared CPU, e.g. 1ms,10ms [default: the model's]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub slice: Option<Vec<String>>,

    /// Slices after which lazy strategies release an unused event [default: the strategy's]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = each)]
    pub release_slices: Option<Vec<u64>>,

    /// vCPUs of a host, of all its VMs together [default: 1]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = each)]
    pub vcpus: Option<Vec<u64>>,

    /// Host CPUs that the vCPUs share in turns [default: one for each vCPU]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = each)]
    pub cpus: Option<Vec<u64>>,

    /// Seeds, e.g. 1,2 or 1-8 [default: 1]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub seed: Option<Vec<Seeds>>,

    /// Events between two overflows, as in vpmu nmi-latency
    #[arg(long, value_name = "N", value_parser = number_in(0..=MOST), conflicts_with = "freq")]
    pub period: Option<u64>,

    /// Let the guest adjust each event's period to this sampling frequency
    #[arg(long, value_name = "HZ", value_parser = number_in(0..=MOST))]
    pub freq: Option<u64>,

    /// The guest's tick: rotation of multiplexed events, task switches [default: 4ms]
    #[arg(long, value_name = "TIME")]
    pub mux_interval: Option<String>,

    /// The guest's timer: periodic as the payload's, or forwarded after its work as Linux's [default: periodic]
    #[arg(long, value_name = "KIND")]
    pub timer: Option<String>,

    /// NMIs per vCPU (rotations, if the workload only counts) [default: 2000]
    #[arg(long, value_name = "N", value_parser = number_in(0..=MOST))]
    pub samples: Option<u64>,

    /// A guest's measured phase ends after this virtual time even with fewer samples [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<String>,

    /// Idle time after the measured phase; shows events left open [default: 16ms, after the longest release by time]
    #[arg(long, value_name = "TIME")]
    pub tail: Option<String>,

    /// Hosts simulated for each point [default: 1]
    #[arg(long, value_name = "N", value_parser = number_in(0..=MOST))]
    pub hosts: Option<u64>,
}

/// Costs as a file has them: factors by name.
mod costs {
    use super::{BTreeMap, Deserialize as _, Deserializer, Factors, Serializer};

    pub(super) fn serialize<S: Serializer>(costs: &[(String, Factors)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(costs.iter().map(|(cost, factors)| (cost, factors)))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<(String, Factors)>, D::Error> {
        BTreeMap::deserialize(from).map(|costs| costs.into_iter().collect())
    }
}

fn cost(text: &str) -> Result<(String, Factors), String> {
    let (cost, list) = text.split_once('=').ok_or("give COST=FACTOR[,FACTOR…], e.g. open=0.1,1,10")?;
    let number =
        |text: &str| text.trim().parse().map_err(|_| format!("'{text}' is no number; give e.g. open=0.1,1,10"));
    Ok((cost.trim().to_owned(), list.split(',').map(number).collect::<Result<_, _>>()?))
}

/// Returns the factors of each cost.
///
/// # Errors
/// Exit 2 for a cost that is there twice.
pub(super) fn by_name(given: &[(String, Factors)]) -> Result<BTreeMap<&String, &Factors>, Error> {
    let mut costs = BTreeMap::new();
    for (cost, factors) in given {
        if costs.insert(cost, factors).is_some() {
            let remedy = format!("give its factors in one: --cost {cost}=0.1,1,10");
            return Err(Error::usage(format!("duplicate --cost {cost}"), "", remedy));
        }
    }
    Ok(costs)
}

impl Grid {
    /// Reads a grid file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// Exit 2 with the line or key.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let refuse = |why: String| {
            Error::usage(format!("cannot use grid {}", path.display()), why, "docs/simulator.md has the keys")
        };
        let text = open::named_text(path, MAX_GRID).map_err(|error| refuse(error.to_string()))?;
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
        for entry in grid.trace.iter_mut().flatten() {
            *entry = folder.join(&*entry).to_string_lossy().into_owned();
        }
        Ok(grid)
    }

    /// Returns this grid, with the values of `other` in place of its own.
    ///
    /// # Errors
    /// Exit 2 for a number that no file could have, and for a cost that `other` has twice.
    pub fn overridden_by(&self, other: &Self) -> Result<Self, Error> {
        // A table would keep the last of equal keys.
        by_name(&other.cost)?;
        let refuse = |why: String| Error::usage("cannot join a grid file and options", why, "");
        let table = |grid: &Self| Table::try_from(grid).map_err(|error| refuse(error.to_string()));
        let (mut all, other) = (table(self)?, table(other)?);
        // Period and frequency exclude each other: one that is given replaces either of the file.
        if other.contains_key("period") || other.contains_key("freq") {
            all.retain(|key, _| key != "period" && key != "freq");
        }
        all.extend(other);
        all.try_into().map_err(|error: toml::de::Error| refuse(error.to_string()))
    }
}
