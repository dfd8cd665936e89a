//! The options of `run`: an image, its machine, and what counts behind its counters.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use host_pmu::backend::BackendKey;
use results::error::Error;
use vmm::boot::image::{MAX_MEMORY, MIN_MEMORY};
use vmm::machine::{Cpu, Plan};

use crate::machine::{CountersOptions, Watch};
use crate::setting::options::{QuietOption, TimeLimitOption};
use crate::setting::parse::size_in;

/// Time of a run, unless another is given.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Options of `vpmu run`.
#[derive(Clone, Debug, Args)]
pub struct RunSpec {
    /// A kernel with a multiboot 1 header, or ELF with a PVH note
    pub image: PathBuf,

    /// The kernel's command line, after its name
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub append: String,

    /// A boot module; repeat for more
    ///
    /// Without one there is a module "environ", from which kvm-unit-tests read their environment: NR_CPUS, MEMSIZE (MiB) and
    /// TEST_DEVICE=0.
    #[arg(long, value_name = "FILE")]
    pub module: Vec<PathBuf>,

    /// Guest memory: a number and K, M or G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size_in(MIN_MEMORY..=MAX_MEMORY))]
    pub memory: u64,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Bound on the run.
    #[command(flatten)]
    pub limit: TimeLimitOption,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,
}

impl RunSpec {
    /// Returns the machine, with `backend` behind its counters.
    ///
    /// # Errors
    /// The strategy cannot be read, or the CPUs to pin to are not usable.
    pub fn plan(&self, backend: &BackendKey, watch: Watch) -> Result<Plan, Error> {
        Ok(Plan { time_limit: self.time_limit(), ..self.counters.plan(Cpu::default(), backend, watch)? })
    }

    /// Returns the time after which the guest is ended.
    pub fn time_limit(&self) -> Duration {
        self.limit.time_limit.unwrap_or(TIME_LIMIT)
    }
}
