//! The guest of a command that samples.

use std::time::Duration;

use clap::{Args, Subcommand};
use guest::abi::MAX_VCPUS;
use results::error::Error;

use crate::arms::linux_boot::spec::LinuxSpec;
use crate::arms::machine::CountersOptions;
use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::inspect::run::spec::RunSpec;
use crate::setting::backend::Chosen;
use crate::setting::parse::{defaults, duration_in, number_in};
use crate::setting::workload::Workload;

/// The guest that is sampled.
#[derive(Clone, Debug, Subcommand)]
pub enum GuestSpec {
    /// The project's own payload, which takes PMIs
    Payload(Box<PayloadSpec>),
    /// A third-party image, as `vpmu run`
    Run(Box<RunSpec>),
    /// A distribution's kernel, as `vpmu linux`
    Linux(Box<LinuxSpec>),
}

/// Options of the payload as a guest.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct PayloadSpec {
    /// What the guest samples and does: EVENTS[/WORK] or WORK, as of `vpmu nmi-latency`
    #[arg(long, value_name = "EVENTS[/WORK]", default_value = "single")]
    pub workload: Workload,

    /// NMIs per vCPU; the guest ends then
    #[arg(long, value_name = "N", default_value = "1000", value_parser = number_in(1..=1_000_000))]
    pub samples: u64,

    /// The guest ends after this time, even with fewer NMIs
    #[arg(long, value_name = "TIME", default_value = "30s",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(3600)))]
    pub time_limit: Duration,

    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=MAX_VCPUS as u64))]
    pub vcpus: u64,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,
}

impl PayloadSpec {
    /// Returns the plan of its one guest on this backend. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for options that contradict each other or the host.
    pub fn plan(&self, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let CountersOptions { pin, strategy, backend, pmu_version } = self.counters.clone();
        let spec: NmiLatencySpec = defaults();
        let arms = ArmsOptions {
            strategy: vec![strategy],
            vcpus: self.vcpus,
            samples: self.samples,
            time_limit: self.time_limit,
            pmu_version,
            ..spec.arms
        };
        let length = LengthOptions { guest_rounds: Some(1), ..spec.length };
        let spec = NmiLatencySpec { arms, length, workload: self.workload, ..spec };
        let host = HostOptions { backend, pin, no_seccomp: self.no_seccomp, ..defaults() };
        spec.plan(&host, chosen, usable)
    }
}
