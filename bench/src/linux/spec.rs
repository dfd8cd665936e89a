//! The plain specification of `vpmu linux`.

use std::path::PathBuf;
use std::time::Duration;

use vmm::kvm::Cpu;

use super::place::Placed;
use crate::backend::BackendChoice;
use crate::rounds::pin::PinChoice;
use crate::strategy::StrategyChoice;

/// Guest memory unless another size is given, bytes.
pub const MEMORY: u64 = 512 << 20;

/// Time of a command, unless another is given.
pub const TIME_LIMIT: Duration = Duration::from_secs(600);

/// What `vpmu linux` boots, and with what.
#[derive(Clone, Debug)]
pub struct LinuxSpec {
    /// A bzImage or vmlinux.
    pub kernel: PathBuf,
    /// The user's initial RAM disk in place of the one that is made.
    pub initrd: Option<PathBuf>,
    /// Added to the kernel's command line.
    pub append: String,
    /// Folder of the kernel's modules; `None`: beside the kernel.
    pub modules: Option<PathBuf>,
    /// Modules to load beside those of the agent's port.
    pub load: Vec<String>,
    /// Programs and files to put into the guest.
    pub with: Vec<Placed>,
    /// A shell's command to run; `None`: a shell on the terminal.
    pub run: Option<String>,
    /// Files and folders of the guest to bring out.
    pub get: Vec<String>,
    /// Where they go.
    pub output: PathBuf,
    /// A folder that the guest has a copy of, and whose changes come back.
    pub share: Option<PathBuf>,
    /// Where the console's output goes while a command runs.
    pub console: Option<PathBuf>,
    /// The machine.
    pub machine: MachineSpec,
    /// Whether the report at the end is left out.
    pub quiet: bool,
}

/// The machine of a Linux guest.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Processor.
    pub cpu: Cpu,
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
    /// Time after which the run is ended.
    pub time_limit: Duration,
    /// Whether vCPU threads run under a seccomp filter.
    pub seccomp: bool,
}

impl Default for MachineSpec {
    fn default() -> Self {
        Self {
            cpu: Cpu::CascadeLake,
            memory: MEMORY,
            vcpus: 1,
            pin: PinChoice::Nowhere,
            strategy: StrategyChoice::Preset("reuse-lazy".to_owned()),
            backend: BackendChoice::Auto,
            pmu_version: 2,
            time_limit: Duration::MAX,
            seccomp: true,
        }
    }
}

impl LinuxSpec {
    /// The defaults, for this kernel.
    #[must_use]
    pub fn new(kernel: impl Into<PathBuf>) -> Self {
        Self {
            kernel: kernel.into(),
            initrd: None,
            append: String::new(),
            modules: None,
            load: Vec::new(),
            with: Vec::new(),
            run: None,
            get: Vec::new(),
            output: PathBuf::from("."),
            share: None,
            console: None,
            machine: MachineSpec::default(),
            quiet: false,
        }
    }
}
