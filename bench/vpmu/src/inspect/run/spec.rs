//! The specification of `run`: an image, its machine, and what counts behind its counters.

use std::path::PathBuf;
use std::time::Duration;

use vmm::machine::image::Rdpmc;

use crate::arms::machine::MachineSpec;

/// Guest memory unless another size is given, bytes.
const MEMORY: u64 = 256 << 20;

/// Time of a run, unless another is given.
const TIME_LIMIT: Duration = Duration::from_secs(600);

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
    /// The machine.
    pub machine: MachineSpec,
    /// Treatment of RDPMC instructions in the image.
    pub rdpmc: Rdpmc,
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
            machine: MachineSpec::new(MEMORY, TIME_LIMIT),
            rdpmc: Rdpmc::Rewrite,
            quiet: false,
        }
    }
}
