//! Options that several commands share; each means the same everywhere.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use host_pmu::backend::BackendKey;
use results::compare::Statistic;

use super::values::one_of;
use crate::arms::rounds::pin::PinChoice;
use crate::arms::rounds::spec::CommonSpec;
use crate::setting::backend::BackendChoice;
use crate::setting::parse::{duration_in, folder, number_in, pmu_version};
use crate::setting::strategy::StrategyChoice;

/// Most vCPUs a payload has room for; KVM's own limit is checked when the VM is made.
const MAX_VCPUS: u64 = guest::abi::MAX_VCPUS as u64;

/// Arms, guest and rounds of a comparison, on a real or a simulated host.
#[derive(Clone, Debug, Args)]
pub struct ArmsOptions {
    /// Strategies to compare: preset names or .toml files
    ///
    /// `vpmu show strategies` lists the presets. The floor (the same guest without host events) is always added. mediated and
    /// mediated-filter are models: of simulated guests only.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "recreate,reuse,reuse-lazy",
        help_heading = "Comparison"
    )]
    pub strategy: Vec<StrategyChoice>,

    /// The guest's tick: rotation of multiplexed events, task switches
    #[arg(long, value_name = "TIME", default_value = "4ms", help_heading = "Guest",
          value_parser = duration_in(Duration::from_micros(100)..=Duration::from_secs(10)))]
    pub mux_interval: Duration,

    /// Virtual CPUs, a thread and a vPMU each
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=MAX_VCPUS), help_heading = "Guest")]
    pub vcpus: u64,

    /// Architectural PMU version of the guest: 2, as KVM's, or 4, as Cascade Lake's
    #[arg(long, value_name = "N", default_value = "2", value_parser = pmu_version, help_heading = "Guest")]
    pub pmu_version: u64,

    /// Rounds that count; every arm runs once in each [default: 240, or as many as 36s allow]
    #[arg(long, value_name = "N", value_parser = number_in(1..=100_000), help_heading = "Rounds")]
    pub rounds: Option<u64>,

    /// Rounds before those, with fewer samples, of each guest that lives on; their figures are discarded
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=1000), help_heading = "Rounds")]
    pub warmup: u64,

    /// NMIs per arm, round and vCPU (rotations, if the workload only counts)
    #[arg(long, value_name = "N", default_value = "25", value_parser = number_in(1..=1_000_000), help_heading = "Rounds")]
    pub samples: u64,

    /// A guest's measured phase ends after this time, even with fewer samples
    #[arg(long, value_name = "TIME", default_value = "1100ms", help_heading = "Rounds",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(3600)))]
    pub time_limit: Duration,

    /// Bound on the whole run: it ends after the round in which this time passes
    ///
    /// Only whole rounds count, so the result is complete, with fewer rounds. In a simulation it is the simulated guests' time.
    #[arg(long, value_name = "TIME", help_heading = "Rounds",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(7 * 86_400)))]
    pub duration: Option<Duration>,

    /// Seed of the order of arms within each round, and of simulated hosts
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX), help_heading = "Rounds")]
    pub seed: u64,
}

/// Returns the help of `--backend`.
fn backends() -> String {
    format!(
        "Event source behind the guest's counters\n\nauto, {}, cpu-clock:RATE (as 20MHz), tracepoint:GROUP/NAME or sim:MODEL (`vpmu show models`). auto takes \
         hardware where the host has a PMU, else cpu-clock, a stand-in, else a simulation; `vpmu doctor` says which and why.",
        BackendKey::PLAIN.join(", ")
    )
}

/// The host that a comparison runs on.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Host")]
pub struct HostOptions {
    /// Event source behind the guest's counters
    #[arg(long, value_name = "KEY", default_value = "auto", long_help = backends())]
    pub backend: BackendChoice,

    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7; auto or none
    ///
    /// auto takes the last CPUs that this process may use, one for each vCPU, where there is more than one.
    #[arg(long, value_name = "CPULIST", default_value = "auto")]
    pub pin: PinChoice,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,
}

/// Counters of one guest: an image, a Linux guest, or the payload that is recorded.
#[derive(Clone, Debug, Args)]
pub struct CountersOptions {
    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7; auto or none
    #[arg(long, value_name = "CPULIST", default_value = "none")]
    pub pin: PinChoice,

    /// Strategy: preset or .toml file
    #[arg(long, value_name = "NAME", default_value = "reuse-lazy")]
    pub strategy: StrategyChoice,

    /// Event source behind the guest's counters; none = the TSC, and a timer raises the PMIs
    ///
    /// cpu-clock counts at the TSC's rate. cpu-clock:RATE counts at one of its own, e.g. cpu-clock:20MHz on a host with slow exits: there
    /// the handling of a PMI takes longer than a short period at the TSC's rate, and the guest makes no progress.
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// Architectural PMU version of the guest: 2, as KVM's, or 4, as Cascade Lake's
    #[arg(long, value_name = "N", default_value = "2", value_parser = pmu_version)]
    pub pmu_version: u64,
}

/// Arms, metrics and statistic to compare or follow.
#[derive(Clone, Debug, Args)]
pub struct SeriesOptions {
    /// Per-round statistic
    #[arg(long, value_name = "NAME", default_value = "p50", value_parser = one_of(&Statistic::ALL, Statistic::name, Statistic::about))]
    pub quantile: Statistic,

    /// Only these arms
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub arm: Vec<String>,

    /// Only these metrics, e.g. nmi_handler_ns
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub metric: Vec<String>,
}

/// Place and form of an experiment's result.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Result")]
pub struct ResultOptions {
    /// Folder for the results
    #[arg(short = 'o', long = "output", value_name = "DIR", default_value = "vpmu-results", value_parser = folder)]
    pub output: PathBuf,

    /// Write no results; a baseline of --save-baseline is kept
    #[arg(long)]
    pub no_save: bool,

    /// Print the result document in place of the table
    #[arg(long)]
    pub json: bool,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

impl ArmsOptions {
    /// Returns the specification, on a host of these options; without them on a simulated one.
    #[must_use]
    pub fn spec(&self, host: Option<&HostOptions>) -> CommonSpec {
        let common = CommonSpec::default();
        CommonSpec {
            strategies: self.strategy.clone(),
            backend: host.map_or(BackendChoice::Auto, |host| host.backend.clone()),
            mux_interval: self.mux_interval,
            vcpus: self.vcpus,
            pin: host.map_or(PinChoice::Auto, |host| host.pin.clone()),
            rounds: self.rounds.unwrap_or(common.rounds),
            warmup: self.warmup,
            samples: self.samples,
            time_limit: self.time_limit,
            duration: self.duration,
            seed: self.seed,
            pmu_version: self.pmu_version,
            seccomp: host.is_none_or(|host| !host.no_seccomp),
            ..common
        }
    }
}
