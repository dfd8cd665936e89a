//! The guest of a command that looks into one: its options, and what makes it ready to run.

use std::time::Duration;

use clap::{Args, Subcommand};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::write::Target;
use vmm::machine::Cpu;
use vmm::machine::linux::Kernel;
use vmm::outcome::{Account, RunOutcome};

use crate::arms::arm::real;
use crate::arms::rounds::options::{ArmsOptions, HostOptions};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::{NmiLatencySpec, PAYLOAD};
use crate::inspect::run::{self, RunSpec};
use crate::machine::linux::job;
use crate::machine::linux::spec::LinuxSpec;
use crate::machine::linux::userland;
use crate::machine::{self, CountersOptions};
use crate::setting::backend::{Chosen, choose, this_host};
use crate::setting::options::{BehindOptions, TimeLimitOption};
use crate::setting::parse::{defaults, number_in};
use crate::setting::pin::{PinChoice, usable};
use crate::setting::workload::Workload;
use crate::terminal::console::complain;

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

/// Time of the payload, unless another is given.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Options of the payload as a guest.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct PayloadSpec {
    /// Workload of the guest: EVENTS[/WORK] or WORK, as of `vpmu nmi-latency`
    #[arg(long, value_name = "EVENTS[/WORK]", default_value = "single")]
    pub workload: Workload,

    /// NMIs per vCPU; the guest ends then
    #[arg(long, value_name = "N", default_value = "1000", value_parser = number_in(1..=1_000_000))]
    pub samples: u64,

    /// Bound on the guest's run, even with fewer NMIs.
    #[command(flatten)]
    pub limit: TimeLimitOption,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,
}

impl PayloadSpec {
    /// Returns the plan of its one guest on this backend. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for options that contradict each other or the host.
    pub fn plan(&self, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let CountersOptions { behind, strategy, guest } = self.counters.clone();
        let pin = behind.pin.or(Some(PinChoice::Nowhere));
        let spec: NmiLatencySpec = defaults();
        let arms = ArmsOptions {
            strategy: vec![strategy],
            samples: Some(self.samples),
            time_limit: self.limit.time_limit.or(Some(TIME_LIMIT)),
            guest,
            ..spec.arms
        };
        let spec = NmiLatencySpec { arms, workload: Some(self.workload), ..spec };
        let host = HostOptions { behind: BehindOptions { pin, ..behind }, ..defaults() };
        spec.plan(&PAYLOAD, &host, chosen, usable)
    }

    /// Returns the machine of that guest, with its counters.
    ///
    /// # Errors
    /// The strategy cannot be read.
    pub fn machine(&self, plan: &Plan, chosen: &Chosen) -> Result<vmm::machine::Plan, Error> {
        Ok(vmm::machine::Plan { behind: self.counters.source(&chosen.backend)?, ..plan.guest.machine.clone() })
    }
}

/// A guest that may begin.
#[derive(Debug)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its machine, to which samples and a trace are added.
    pub machine: vmm::machine::Plan,
    /// Its code; an image or a kernel is read once.
    pub code: Code,
    /// It says nothing on stderr but errors.
    quiet: bool,
}

/// The code of a guest.
#[derive(Debug)]
pub enum Code {
    /// The payload, and its plan.
    Payload(Box<Plan>),
    /// An image's file.
    Image(Box<RunSpec>, Vec<u8>),
    /// A Linux kernel.
    Linux(Box<LinuxSpec>, Box<Kernel>),
}

impl Guest {
    /// Reads a guest that is to be watched.
    ///
    /// # Errors
    /// A missing prerequisite, and exit 2 for a guest whose registers are those of another guest at times.
    pub fn watched(guest: GuestSpec, quiet: bool) -> Result<Self, Error> {
        match guest {
            GuestSpec::Linux(linux) if linux.nested => Err(Error::usage(
                "cannot sample a guest with --nested",
                "while a guest of its own runs, the registers are that one's",
                "leave --nested out",
            )),
            guest => Self::new(guest, quiet),
        }
    }

    /// Reads the guest, and looks for what counts behind its counters.
    fn new(guest: GuestSpec, quiet: bool) -> Result<Self, Error> {
        let chosen = |counters: &CountersOptions| choose(&counters.behind.backend, &this_host);
        match guest {
            GuestSpec::Payload(payload) => {
                let chosen = chosen(&payload.counters)?;
                let plan = payload.plan(&chosen, usable(&HostFacts::read(&HostFs::default())).as_deref())?;
                let machine = payload.machine(&plan, &chosen)?;
                Ok(Self {
                    name: format!("payload {}", payload.workload),
                    machine,
                    code: Code::Payload(Box::new(plan)),
                    quiet,
                })
            }
            GuestSpec::Run(image) => {
                let bytes = machine::read(&image.image, "the image")?;
                let backend = chosen(&image.counters)?.backend;
                let machine = image.counters.plan(Cpu::default(), &backend, image.limit)?;
                let (name, quiet) = (image.image.display().to_string(), quiet || image.quiet.quiet);
                Ok(Self { name, machine, code: Code::Image(image, bytes), quiet })
            }
            GuestSpec::Linux(linux) => {
                let backend = chosen(&linux.counters)?.backend;
                let kernel = Box::new(userland::kernel(&linux.kernel)?);
                let (name, quiet) = (linux.kernel.display().to_string(), quiet || linux.quiet.quiet);
                Ok(Self { name, machine: linux.plan(&backend)?, code: Code::Linux(linux, kernel), quiet })
            }
        }
    }

    /// Runs it, and returns what its vCPUs did; the list of a Linux guest's symbols is put into `kallsyms`.
    ///
    /// # Errors
    /// It could not begin.
    pub fn run(self, kallsyms: Option<&Target>) -> Result<(Exit, Vec<Account>), Error> {
        match self.code {
            Code::Payload(plan) => {
                let RunOutcome { end, vcpus, wall, .. } =
                    real::alone(&plan.guest, self.machine, plan.parameters.samples)?;
                let nmis: u64 = vcpus.iter().map(|vcpu| vcpu.account.counts.nmis_injected).sum();
                if !self.quiet {
                    complain(&format!("the payload ended ({end}) after {:.1} s, NMIs: {nmis}", wall.as_secs_f64()));
                }
                let exit = if end.is_complete() { Exit::Done } else { Exit::Inconclusive };
                Ok((exit, vcpus.into_iter().map(|vcpu| vcpu.account).collect()))
            }
            Code::Image(image, bytes) => run::run(&image, &bytes, self.machine, self.quiet),
            Code::Linux(linux, kernel) => job::run(&linux, *kernel, self.machine, kallsyms, self.quiet),
        }
    }
}

/// Runs a guest that nobody watches: `vpmu run` and `vpmu linux`.
///
/// # Errors
/// Conditions that keep it from starting.
pub fn alone(guest: GuestSpec) -> Result<Exit, Error> {
    Guest::new(guest, false)?.run(None).map(|(exit, _)| exit)
}
