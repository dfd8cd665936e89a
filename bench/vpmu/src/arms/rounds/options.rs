//! Options that every comparison of arms takes, whatever its guest does.

use std::time::Duration;

use clap::Args;
use vmm::machine::Cpu;

use crate::setting::options::{BehindOptions, DurationOption, GuestOptions, SeedOption};
use crate::setting::parse::{duration_in, number_in, processor, share};
use crate::setting::strategy::StrategyChoice;
use crate::setting::workload::Workload;

/// Rounds of an experiment that something else ends: the duration, or the width of its intervals.
pub const OPEN_ENDED: u64 = 1_000_000;
/// Bound on a run that ends when its figures are sure.
const LONGEST_SURE: Duration = Duration::from_secs(600);
/// Rounds of a quick run, and its bound.
const QUICK: (u64, Duration) = (24, Duration::from_secs(5));

/// The defaults of an experiment with one kind of guest.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// Workload.
    pub workload: Workload,
    /// Strategies.
    pub strategies: &'static [&'static str],
    /// Rounds, and the bound on them if their number is not given.
    pub rounds: (u64, Option<Duration>),
    /// Warm-up rounds.
    pub warmup: u64,
    /// Samples.
    pub samples: u64,
    /// Time limit of a measured phase.
    pub time_limit: Duration,
    /// The guest's tick.
    pub mux_interval: Duration,
}

/// Arms, guest and rounds of a comparison, on a real or a simulated host.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ArmsOptions {
    /// Strategies: presets or .toml files [default: recreate,reuse,reuse-lazy,gate; of guest-stat recreate,reuse,reuse-lazy,deferred,pool]
    ///
    /// `vpmu show strategies` lists the presets; `deferred` is what KVM does since 6.2. The floor (the same guest without host events)
    /// is always added. mediated and mediated-filter exist in simulations only. kvm:STRATEGY (those of the list) keeps the host events
    /// of KVM's own vPMU, beside arm kvm, by the module of host-pmu/kernel.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub strategy: Vec<StrategyChoice>,

    /// The guest's tick: rotation of multiplexed events, task switches [default: 4ms]
    #[arg(long, value_name = "TIME", help_heading = "Guest",
          value_parser = duration_in(Duration::from_micros(100)..=Duration::from_secs(10)))]
    pub mux_interval: Option<Duration>,

    /// The guest's virtual CPUs.
    #[command(flatten)]
    pub guest: GuestOptions,

    /// Measured rounds; every arm runs once in each [default: as many as 36s allow, 240 at most; of sim 240; of guest-stat 18; of advise until the order is sure, 240 in a simulation; with Linux 5]
    #[arg(long, value_name = "N", value_parser = number_in(1..=100_000))]
    pub rounds: Option<u64>,

    /// Discarded rounds before those, with fewer samples, for each guest that lives on [default: 1; with Linux 0]
    #[arg(long, value_name = "N", value_parser = number_in(0..=1000), help_heading = "Rounds")]
    pub warmup: Option<u64>,

    /// NMIs, set-ups of guest-stat, or rotations per arm, round and vCPU [default: 25; of guest-stat 3; with Linux 1000]
    #[arg(long, value_name = "N", value_parser = number_in(1..=1_000_000), help_heading = "Rounds")]
    pub samples: Option<u64>,

    /// A guest's measured phase ends after this time: for hosts on which every exit takes long
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(3600)))]
    pub time_limit: Option<Duration>,

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
    /// Judges each strategy's ratio to the floor and to the others (of more than three: to the one before), at two looks in a row,
    /// the first after ten guests an arm. Without --rounds or --duration it gives up after ten minutes.
    /// Exit 3 if it is not reached.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub until_ci: Option<f64>,
}

impl LengthOptions {
    /// Returns the number of rounds, and the bound on the whole run. Rounds that are asked for are not cut short, nor are those
    /// of a simulation, of which nobody waits for the guests' time.
    pub(crate) fn rounds(&self, arms: &ArmsOptions, usual: &Usual, simulated: bool) -> (u64, Option<Duration>) {
        let (rounds, longest) = match (self.quick, self.until_ci, arms.duration.duration) {
            (true, ..) => (QUICK.0, Some(QUICK.1)),
            (false, _, Some(_)) => (OPEN_ENDED, None),
            (false, Some(_), None) => (OPEN_ENDED, Some(LONGEST_SURE)),
            (false, None, None) => usual.rounds,
        };
        let bound = longest.filter(|_| arms.rounds.is_none() && (!simulated || rounds >= OPEN_ENDED));
        (arms.rounds.unwrap_or(rounds), arms.duration.duration.or(bound))
    }
}
