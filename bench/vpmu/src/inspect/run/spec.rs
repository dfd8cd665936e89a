//! The options of `run`: an image, its machine, and what counts behind its counters.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use host_pmu::backend::BackendKey;
use host_pmu::trace::Tracing;
use results::error::Error;
use vmm::boot::image::{MAX_MEMORY, MIN_MEMORY};
use vmm::machine::image::Rdpmc;
use vmm::machine::{Cpu, Plan};
use vmm::sample::Sampling;

use crate::machine::CountersOptions;
use crate::setting::options::QuietOption;
use crate::setting::parse::{duration_in, one_of, size_in};

/// Treatments of an image's RDPMC instructions.
const RDPMC: [Rdpmc; 2] = [Rdpmc::Rewrite, Rdpmc::Fault];

/// Returns the name of a treatment, and what it is.
const fn rdpmc(treatment: Rdpmc) -> (&'static str, &'static str) {
    match treatment {
        Rdpmc::Rewrite => ("rewrite", "Rewritten to RDMSR, which the userspace vPMU answers"),
        Rdpmc::Fault => ("fault", "Left alone: #GP, unless KVM has a vPMU of its own"),
    }
}

/// Options of `vpmu run`.
#[derive(Clone, Debug, Args)]
pub struct RunSpec {
    /// A kernel with a multiboot 1 header, or ELF with a PVH note
    pub image: PathBuf,

    /// The kernel's command line, after its name; -append, too
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub append: String,

    /// A boot module; repeat for more. -initrd, too
    ///
    /// Without one there is a module "environ", from which kvm-unit-tests read their environment: NR_CPUS, MEMSIZE (MiB) and
    /// TEST_DEVICE=0.
    #[arg(long, value_name = "FILE", visible_alias = "initrd")]
    pub module: Vec<PathBuf>,

    /// Guest memory: a number and K, M or G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size_in(MIN_MEMORY..=MAX_MEMORY))]
    pub memory: u64,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Treatment of RDPMC instructions in the image
    #[arg(long, value_name = "HOW", default_value = "rewrite", value_parser = one_of(&RDPMC, |how| rdpmc(how).0, |how| rdpmc(how).1))]
    pub rdpmc: Rdpmc,

    /// Stop the run after this time
    #[arg(long, value_name = "TIME", default_value = "10m",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(86_400)))]
    pub time_limit: Duration,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,

    /// Samples of the guest, if it is recorded.
    #[arg(skip)]
    pub sampling: Option<Arc<Sampling>>,
    /// Its trace, if it is traced.
    #[arg(skip)]
    pub trace: Option<Arc<Tracing>>,
}

impl RunSpec {
    /// Returns the machine, with `backend` behind its counters.
    ///
    /// # Errors
    /// The strategy cannot be read, or the CPUs to pin to are not usable.
    pub fn plan(&self, backend: &BackendKey) -> Result<Plan, Error> {
        Ok(Plan {
            time_limit: self.time_limit,
            sampling: self.sampling.clone(),
            trace: self.trace.clone(),
            ..self.counters.plan(Cpu::default(), backend)?
        })
    }
}
