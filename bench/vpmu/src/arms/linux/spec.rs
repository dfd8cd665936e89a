//! Which Linux a guest is, and which perf it has.

use std::path::PathBuf;

use vmm::machine::Cpu;

/// Guest memory unless another size is given, bytes.
pub const MEMORY: u64 = 768 << 20;

/// A Linux guest with perf in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfGuest {
    /// A bzImage or vmlinux.
    pub kernel: PathBuf,
    /// Folder of the kernel's modules; `None`: beside the kernel.
    pub modules: Option<PathBuf>,
    /// perf, a file or a name in PATH.
    pub perf: PathBuf,
    /// Guest memory, bytes.
    pub memory: u64,
    /// The guest's processor.
    pub cpu: Cpu,
    /// Added to the kernel's command line.
    pub append: String,
}
