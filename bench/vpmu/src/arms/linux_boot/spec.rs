//! The plain specification of `vpmu linux`.

use std::path::PathBuf;
use std::time::Duration;

use super::load::Load;
use super::place::Placed;
use super::symbols::Symbols;
use crate::arms::machine::MachineSpec;

/// Guest memory unless another size is given, bytes.
pub const MEMORY: u64 = 512 << 20;

/// Time of a command, unless another is given.
pub const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Kernel and contents that `vpmu linux` boots.
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
    pub load: Vec<Load>,
    /// Programs and files to put into the guest.
    pub with: Vec<Placed>,
    /// A shell's command to run; `None`: a shell on the terminal.
    pub run: Option<String>,
    /// Variables of the command's environment.
    pub env: Vec<(String, String)>,
    /// The command's input: a file, or `-` for this program's own.
    pub stdin: Option<PathBuf>,
    /// Files and folders of the guest to bring out.
    pub get: Vec<String>,
    /// Folder for them.
    pub output: PathBuf,
    /// A folder that the guest has a copy of, and whose changes come back.
    pub share: Option<PathBuf>,
    /// Files for the kernel's lists of its code.
    pub symbols: Option<Symbols>,
    /// File for the console's output while a command runs.
    pub console: Option<PathBuf>,
    /// The machine.
    pub machine: MachineSpec,
    /// The report at the end is left out.
    pub quiet: bool,
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
            env: Vec::new(),
            stdin: None,
            get: Vec::new(),
            output: PathBuf::from("."),
            symbols: None,
            share: None,
            console: None,
            machine: MachineSpec::new(MEMORY, Duration::MAX),
            quiet: false,
        }
    }
}
