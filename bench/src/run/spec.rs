//! The specification of `run`: an image, its machine, and what counts behind its counters.

use std::path::PathBuf;
use std::time::Duration;

use vmm::machine::image::Rdpmc;

use crate::backend::BackendChoice;
use crate::rounds::pin::PinChoice;
use crate::strategy::StrategyChoice;

/// Parameters of `run`; the defaults, apart from the image, are those of the command.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// A multiboot 1 or ELF kernel.
    pub image: PathBuf,
    /// The kernel's command line, after its name.
    pub append: String,
    /// Multiboot modules.
    pub module: Vec<PathBuf>,
    /// Additions to the module "environ".
    pub environ: Vec<(String, String)>,
    /// Guest memory, bytes.
    pub memory: u64,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Host CPU of each vCPU.
    pub pin: PinChoice,
    /// Strategy of the host events.
    pub strategy: StrategyChoice,
    /// Event source behind the guest's counters.
    pub backend: BackendChoice,
    /// Architectural PMU version of the guest: 2 or 4.
    pub pmu_version: u64,
    /// Treatment of RDPMC instructions in the image.
    pub rdpmc: Rdpmc,
    /// Time after which the run is ended.
    pub time_limit: Duration,
    /// Whether vCPU threads run under a seccomp filter.
    pub seccomp: bool,
    /// Whether the report at the end is left out.
    pub quiet: bool,
}

impl RunSpec {
    /// The defaults, for this image.
    #[must_use]
    pub fn new(image: impl Into<PathBuf>) -> Self {
        Self {
            image: image.into(),
            append: String::new(),
            module: Vec::new(),
            environ: Vec::new(),
            memory: 256 << 20,
            vcpus: 1,
            pin: PinChoice::Nowhere,
            strategy: StrategyChoice::Preset("reuse-lazy".to_owned()),
            backend: BackendChoice::Auto,
            pmu_version: 2,
            rdpmc: Rdpmc::Rewrite,
            time_limit: Duration::from_secs(600),
            seccomp: true,
            quiet: false,
        }
    }
}
