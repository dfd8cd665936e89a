//! Parts of host B, found on this machine: QEMU, a static busybox, Debian's kernel and its KVM modules.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use linux_guest::modules::{Module, needed};
use vmm::boot::linux::Kernel;

/// The line that gets everything on a Debian machine.
pub(crate) const REMEDY: &str = "sudo .ci/host-b-packages (it does: apt-get install --no-install-recommends \
     qemu-system-x86 busybox-static xz-utils, and unpacks linux-image-amd64 into target/host-b)";
pub(crate) const QEMU: &str = "qemu-system-x86_64";
pub(crate) const BUSYBOX: &str = "/bin/busybox";
pub(crate) const PERF: &str = "/usr/bin/perf";

/// A kernel and its modules.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) kernel: PathBuf,
    /// KVM's, in the order of insertion.
    pub(crate) modules: Vec<Module>,
}

/// A folder in target/, unless a variable names another.
fn folder(variable: &str, name: &str) -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
    std::env::var_os(variable).map_or_else(usual, PathBuf::from)
}

impl Parts {
    /// Looks for the parts. An error says which is missing; [`REMEDY`] says how to get them.
    pub(crate) fn find() -> Result<Self> {
        crate::prerequisites::program(QEMU, "qemu-system-x86").map_err(anyhow::Error::msg)?;
        ensure!(Path::new(BUSYBOX).is_file(), "no {BUSYBOX}");
        Self::of(&folder("VPMU_HOST_B_ROOT", "host-b"))
    }

    /// The kernel under `root`, which holds `boot/vmlinuz-VERSION` and `lib/modules/VERSION`.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let boot = root.join("boot");
        let listing = std::fs::read_dir(&boot).with_context(|| format!("no kernel in {}", boot.display()))?;
        let mut kernels = listing.flatten().map(|entry| entry.path());
        let is_kernel = |path: &PathBuf| path.to_string_lossy().contains("/vmlinuz-");
        let kernel = kernels.find(is_kernel).with_context(|| format!("no kernel in {}", boot.display()))?;
        let parts = Self { kernel, modules: Vec::new() };
        Ok(Self { modules: parts.needed(&["kvm_amd"])?, ..parts })
    }

    /// These modules of the kernel, where .ci/host-b-packages puts them, and those that they need.
    pub(crate) fn needed(&self, names: &[&str]) -> Result<Vec<Module>> {
        let root = self.kernel.parent().and_then(Path::parent).context("the kernel's root")?;
        Ok(needed(&root.join("lib/modules").join(self.release()), &self.release(), names)?)
    }

    /// The kernel's release, as in uname -r.
    pub(crate) fn release(&self) -> String {
        self.kernel.file_name().unwrap_or_default().to_string_lossy().replace("vmlinuz-", "")
    }

    /// The kernel in the quickest form: its image, entered by PVH. The bzImage takes longer to unpack itself under software emulation
    /// than all the rest of the boot.
    pub(crate) fn bootable(&self) -> Result<PathBuf> {
        // The file has a name of its own: test processes boot different kernels at the same time.
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-b-vmlinux-{}", self.release()));
        let made = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        if made(&to) <= made(&self.kernel) {
            let kernel = Kernel::parse(&std::fs::read(&self.kernel)?)?;
            let output = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR"))?;
            std::fs::write(output.path(), kernel.image())?;
            output.persist(&to)?;
        }
        Ok(to)
    }
}

/// Returns the series of .ci/host-b-kernels that are here, with their roots.
pub(crate) fn further_kernels() -> Vec<(String, PathBuf)> {
    let roots = std::fs::read_dir(folder("VPMU_HOST_B_KERNELS", "host-b-kernels")).into_iter().flatten().flatten();
    let roots = roots.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let mut roots: Vec<_> = roots.filter(|(_, root)| root.join("boot").is_dir()).collect();
    roots.sort();
    roots
}

/// A binary without its debug information, in `folder`: that is most of it, and costs seconds to unpack in the machine.
pub(crate) fn stripped(binary: &Path, folder: &Path) -> PathBuf {
    let small = folder.join(binary.file_name().unwrap_or_default());
    let tool = Command::new("strip").args(["--strip-debug", "-o"]).args([&small, binary]).output();
    // Without the tool, and for a script, it only takes longer.
    if tool.is_ok_and(|output| output.status.success()) { small } else { binary.to_owned() }
}
