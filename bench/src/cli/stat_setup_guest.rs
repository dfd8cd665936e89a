//! Options of `vpmu stat-setup --in guest`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse::{CpuList, duration_in, number_in};
use crate::backend::BackendChoice;

/// How a set-up enables its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Enable {
    /// Each event by a call of its own, as `perf stat -a`: what counts is re-scheduled each time
    Each,
    /// All of them by one re-scheduling, as enable_on_exec does for `perf stat COMMAND`
    Once,
}

impl Enable {
    /// The key on the command line.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Each => "each",
            Self::Once => "once",
        }
    }
}

/// Options of `--in guest`. None has a default of clap's, so that one that is given beside `--in host` can be refused.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "With --in guest")]
pub struct StatSetupGuestArgs {
    /// What counts behind the guest's counters: auto, hardware, cpu-clock, task-clock, tracepoint:GROUP/NAME, none or sim:MODEL [default: auto]
    #[arg(long, value_name = "KEY")]
    pub backend: Option<BackendChoice>,

    /// How a set-up enables its events [default: each]
    #[arg(long, value_enum)]
    pub enable: Option<Enable>,

    /// Ticks from enabling events to reading them [default: 2; where they are multiplexed a whole turn of the rotation]
    #[arg(long, value_name = "TICKS", value_parser = number_in(1..=10_000))]
    pub window: Option<u64>,

    /// The guest's tick: the rotation of multiplexed events [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = duration_in(Duration::from_micros(100)..=Duration::from_secs(4)))]
    pub mux_interval: Option<Duration>,

    /// Virtual CPUs; each sets its events up for itself [default: 1]
    #[arg(long, value_name = "N", value_parser = number_in(1..=super::MAX_VCPUS))]
    pub vcpus: Option<u64>,

    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7
    #[arg(long, value_name = "CPULIST")]
    pub pin: Option<CpuList>,

    /// Set-ups per arm, round and vCPU [default: 40]
    #[arg(long, value_name = "N", value_parser = number_in(1..=100_000))]
    pub samples: Option<u64>,

    /// In a round no set-up begins after this time, even with fewer samples [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration_in(Duration::from_millis(10)..=Duration::from_secs(3600)))]
    pub time_limit: Option<Duration>,

    /// Architectural PMU version the guest sees: 2, as KVM, or 4, as Cascade Lake itself [default: 2]
    #[arg(long, value_name = "N", value_parser = super::parse::pmu_version)]
    pub pmu_version: Option<u64>,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,
}

impl StatSetupGuestArgs {
    /// The first of these options that was given.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        [
            (self.backend.is_some(), "--backend"),
            (self.enable.is_some(), "--enable"),
            (self.window.is_some(), "--window"),
            (self.mux_interval.is_some(), "--mux-interval"),
            (self.vcpus.is_some(), "--vcpus"),
            (self.pin.is_some(), "--pin"),
            (self.samples.is_some(), "--samples"),
            (self.time_limit.is_some(), "--time-limit"),
            (self.pmu_version.is_some(), "--pmu-version"),
            (self.no_seccomp, "--no-seccomp"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }
}
