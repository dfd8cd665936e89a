//! Parts of host B, found on this machine: QEMU, a static busybox, Debian's kernel and its KVM modules.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use linux_guest::modules::{Module, needed};
use vmm::boot::linux::Kernel;

/// The line that gets everything on a Debian machine.
pub(crate) const REMEDY: &str = "sudo .ci/host-b-packages (it does: apt-get install --no-install-recommends \
     qemu-system-x86 busybox-static xz-utils, and unpacks linux-image-amd64 into target/host-b)";

/// Everything a machine is made of.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) qemu: PathBuf,
    pub(crate) busybox: PathBuf,
    pub(crate) kernel: PathBuf,
    /// KVM's, in the order of insertion.
    pub(crate) modules: Vec<Module>,
}

impl Parts {
    /// Looks for the parts. An error says which is missing; [`REMEDY`] says how to get them.
    ///
    /// `VPMU_QEMU`, `VPMU_BUSYBOX` and `VPMU_HOST_B_ROOT` (a folder that holds `boot/vmlinuz-VERSION` and
    /// `lib/modules/VERSION`) come before the usual places.
    pub(crate) fn find() -> Result<Self> {
        ensure!(cfg!(target_arch = "x86_64"), "host B runs this machine's binaries, and they must be x86-64");
        let qemu = program("VPMU_QEMU", "qemu-system-x86_64")?;
        let busybox = program("VPMU_BUSYBOX", "busybox")?;
        let roots = match std::env::var_os("VPMU_HOST_B_ROOT") {
            Some(root) => vec![PathBuf::from(root)],
            None => vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/host-b"), PathBuf::from("/")],
        };
        let mut why = Vec::new();
        for root in &roots {
            match kernel_in(root) {
                Ok((kernel, modules)) => {
                    return Ok(Self { qemu, busybox, kernel, modules });
                }
                Err(error) => why.push(format!("{error:#}")),
            }
        }
        bail!("{}", why.join("; "))
    }

    /// Replaces the kernel by the one under `root`.
    pub(crate) fn with_kernel_of(&self, root: &Path) -> Result<Self> {
        let (kernel, modules) = kernel_in(root)?;
        Ok(Self { kernel, modules, ..self.clone() })
    }

    /// The kernel's release, as in uname -r.
    pub(crate) fn release(&self) -> String {
        self.kernel.file_name().unwrap_or_default().to_string_lossy().replace("vmlinuz-", "")
    }

    /// The kernel's modules for virtio, where .ci/host-b-packages puts them.
    pub(crate) fn virtio(&self) -> Result<Vec<Module>> {
        let root = self.kernel.parent().and_then(Path::parent).context("the kernel's root")?;
        let folder = root.join("lib/modules").join(self.release());
        Ok(needed(&folder, &self.release(), &["virtio_mmio", "virtio_console"])?)
    }
}

/// Returns the series of .ci/host-b-kernels that are here, with their roots.
pub(crate) fn further_kernels() -> Vec<(String, PathBuf)> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let folder = std::env::var_os("VPMU_HOST_B_KERNELS").map_or_else(|| target.join("host-b-kernels"), PathBuf::from);
    let roots = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut roots: Vec<_> = roots
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(_, root)| root.join("boot").is_dir())
        .collect();
    roots.sort();
    roots
}

/// A program by environment variable, else by PATH and the sbin folders.
fn program(variable: &str, name: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "{variable}={} is not a file", path.display());
        return Ok(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/bin".into(), "/usr/bin".into()])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("no {name} in PATH"))
}

/// The newest readable kernel under `root` that has the modules.
fn kernel_in(root: &Path) -> Result<(PathBuf, Vec<Module>)> {
    let boot = root.join("boot");
    let mut found = Vec::new();
    let listing = std::fs::read_dir(&boot).with_context(|| format!("no kernel in {}", boot.display()))?;
    for entry in listing {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(version) = name.strip_prefix("vmlinuz-") {
            found.push((version_key(version), version.to_owned(), path));
        }
    }
    found.sort();
    let mut why = format!("no kernel in {}", boot.display());
    for (_, version, kernel) in found.into_iter().rev() {
        if let Err(error) = std::fs::File::open(&kernel) {
            why = format!("{}: {error}", kernel.display());
            continue;
        }
        match needed(&root.join("lib/modules").join(&version), &version, &["kvm_amd"]) {
            Ok(modules) if !modules.is_empty() => return Ok((kernel, modules)),
            Ok(_) => why = format!("no kvm-amd.ko for {}", kernel.display()),
            Err(error) => why = error.to_string(),
        }
    }
    bail!("{why}")
}

/// Orders 6.1.0-9 before 6.1.0-10.
fn version_key(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// A binary without its debug information, in `folder`: that is most of it, and costs seconds to unpack in the machine.
pub(crate) fn stripped(binary: &Path, folder: &Path) -> PathBuf {
    let small = folder.join(binary.file_name().unwrap_or_default());
    let tool = Command::new("strip").args(["--strip-debug", "-o"]).args([&small, binary]).output();
    // Without the tool, and for a script, it only takes longer.
    if tool.is_ok_and(|output| output.status.success()) { small } else { binary.to_owned() }
}

/// The kernel in the quickest form that can be had: its image, entered by PVH, else the bzImage as it is, which takes longer to
/// unpack itself under software emulation than all the rest of the boot.
pub(crate) fn bootable(parts: &Parts) -> PathBuf {
    // The file has a name of its own: test processes boot different kernels at the same time.
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-b-vmlinux-{}", parts.release()));
    let made = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    if made(&to) > made(&parts.kernel) {
        return to;
    }
    let unpack = || -> Result<()> {
        let kernel = Kernel::parse(&std::fs::read(&parts.kernel)?)?;
        let output = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR"))?;
        std::fs::write(output.path(), kernel.image())?;
        output.persist(&to)?;
        Ok(())
    };
    match unpack() {
        Ok(()) => to,
        Err(why) => {
            eprintln!("# the kernel unpacks itself, which is slow: {why:#}");
            parts.kernel.clone()
        }
    }
}
