//! The specification of a sweep: axes and options, from a file or the command line.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use results::error::Error;

/// Largest grid file, bytes.
const MAX_GRID: u64 = 256 << 10;

/// A seed, or a range such as `1-8`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Seeds {
    /// One seed.
    One(u64),
    /// A seed or a range, as text.
    Text(String),
}

/// Axes, and parameters shared by all points; `None` = default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Grid {
    /// Preset names or .toml files.
    pub strategy: Option<Vec<String>>,
    /// Model names or .toml files.
    pub model: Option<Vec<String>>,
    /// `EVENTS[/WORK]`.
    pub workload: Option<Vec<String>>,
    /// Factors by cost of the model.
    pub cost: Option<BTreeMap<String, Vec<f64>>>,
    /// Sched slices of a vCPU on a shared CPU.
    pub slice: Option<Vec<String>>,
    /// N of `release = { slices = N }`.
    pub release_slices: Option<Vec<u64>>,
    /// vCPUs of the host.
    pub vcpus: Option<Vec<u64>>,
    /// Host CPUs shared by the vCPUs.
    pub cpus: Option<Vec<u64>>,
    /// Seeds.
    pub seed: Option<Vec<Seeds>>,
    /// Events between two overflows.
    pub period: Option<u64>,
    /// Sampling frequency, Hz.
    pub freq: Option<u64>,
    /// Tick of the guest.
    pub mux_interval: Option<String>,
    /// `periodic` or `forwarded`.
    pub timer: Option<String>,
    /// NMIs per vCPU.
    pub samples: Option<u64>,
    /// Bound on the measured phase.
    pub time_limit: Option<String>,
    /// Idle time after the measured phase.
    pub tail: Option<String>,
    /// Hosts per point.
    pub hosts: Option<u64>,
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

    /// Returns this grid, with the values of `other` taking precedence.
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
            // Period and frequency exclude each other: one in `other` replaces either of this grid.
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
}
