//! Options that every comparison of arms takes, whatever its guest does.

use std::time::Duration;

use clap::Args;
use vmm::machine::Cpu;

use crate::setting::options::{BehindOptions, DurationOption, GuestOptions, SeedOption};
use crate::setting::parse::{duration_in, number_in, processor, share};
use crate::setting::strategy::StrategyChoice;

/// Rounds of an experiment that something else ends: the duration, or the width of its intervals.
pub const OPEN_ENDED: u64 = 1_000_000;
/// Rounds by default.
const ROUNDS: u64 = 240;
/// Bound by default on a run whose rounds are not given.
const LONGEST: Duration = Duration::from_secs(36);
/// Bound on a run that ends when its figures are sure.
const LONGEST_SURE: Duration = Duration::from_secs(600);
/// Rounds of a quick run.
const QUICK_ROUNDS: u64 = 24;
/// Its bound.
const LONGEST_QUICK: Duration = Duration::from_secs(5);

/// Arms, guest and rounds of a comparison, on a real or a simulated host.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ArmsOptions {
    /// Strategies to compare: preset names or .toml files
    ///
    /// `vpmu show strategies` lists the presets. The floor (the same guest without host events) is always added. mediated and
    /// mediated-filter are models: of simulated guests only. kvm:STRATEGY keeps the host events of KVM's own vPMU, beside arm kvm,
    /// by the module of host-pmu/kernel.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "recreate,reuse,reuse-lazy")]
    pub strategy: Vec<StrategyChoice>,

    /// The guest's tick: rotation of multiplexed events, task switches
    #[arg(long, value_name = "TIME", default_value = "4ms", help_heading = "Guest",
          value_parser = duration_in(Duration::from_micros(100)..=Duration::from_secs(10)))]
    pub mux_interval: Duration,

    /// The guest's virtual CPUs.
    #[command(flatten)]
    pub guest: GuestOptions,

    /// Rounds that count; every arm runs once in each [default: 240, or as many as 36s allow]
    #[arg(long, value_name = "N", value_parser = number_in(1..=100_000))]
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

    /// Bound on the whole run.
    #[command(flatten)]
    pub duration: DurationOption,

    /// Seed of the order of arms within each round, and of simulated hosts.
    #[command(flatten)]
    pub seed: SeedOption,
}

/// The host that a comparison runs on, and the guest's processor, of which a simulation has no choice.
#[derive(Clone, Debug, PartialEq, Args)]
#[command(next_help_heading = "Host")]
pub struct HostOptions {
    /// The backend behind the counters, and the vCPU threads' CPUs.
    #[command(flatten)]
    pub behind: BehindOptions,

    /// Processor of the guest, Linux or payload
    #[arg(long, value_name = "MODEL", default_value = "clx", value_parser = processor(), help_heading = "Guest")]
    pub cpu: Cpu,
}

/// The end of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Rounds")]
pub struct LengthOptions {
    /// A few seconds; the figures are indicative only
    #[arg(long, help_heading = None, conflicts_with_all = ["rounds", "duration", "until_ci"])]
    pub quick: bool,

    /// End when each ratio's 95 % interval is at most this wide to either side, e.g. 2%
    ///
    /// Judged are the ratios of the first table: of strategies to one another (of more than three: to the one before) and to the
    /// floor, at two looks in a row, the first after ten guests an arm. Without --rounds or --duration it gives up after ten minutes.
    /// Exit 3 if it is not reached.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub until_ci: Option<f64>,

    /// Rounds in which an arm's guest lives on before a fresh one replaces it [default: 20, or 1]
    ///
    /// 1 is the default of hardware events and tracepoints: the first one of a host and the last close may take tens of ms, which
    /// guests that live at the same time spare each other. Where others hold such an event anyway, as the NMI watchdog does, more
    /// rounds per guest make the intervals narrower.
    #[arg(long, value_name = "N", value_parser = number_in(1..=10_000))]
    pub guest_rounds: Option<u64>,
}

impl LengthOptions {
    /// Returns the number of rounds, and the bound on the whole run. Rounds that are asked for are not cut short, nor are those
    /// of a simulation, of which nobody waits for the guests' time.
    pub(crate) fn rounds(&self, arms: &ArmsOptions, simulated: bool) -> (u64, Option<Duration>) {
        let (rounds, longest) = match (self.quick, self.until_ci, arms.duration.duration) {
            (true, ..) => (QUICK_ROUNDS, LONGEST_QUICK),
            (false, _, Some(duration)) => (OPEN_ENDED, duration),
            (false, Some(_), None) => (OPEN_ENDED, LONGEST_SURE),
            (false, None, None) => (ROUNDS, LONGEST),
        };
        let bounded = arms.rounds.is_none() && (!simulated || rounds >= OPEN_ENDED);
        (arms.rounds.unwrap_or(rounds), arms.duration.duration.or_else(|| bounded.then_some(longest)))
    }
}
