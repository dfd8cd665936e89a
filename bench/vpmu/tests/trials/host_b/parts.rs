//! Parts of host B, found on this machine: QEMU, a static busybox, Debian's kernel and its KVM modules.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};

/// The line that gets everything on a Debian machine.
pub(crate) const REMEDY: &str = "sudo .ci/host-b-packages (it does: apt-get install --no-install-recommends \
     qemu-system-x86 busybox-static xz-utils, and unpacks linux-image-amd64 into target/host-b)";

/// Inserted in this order. The first two may be built in, or gone, in other kernels.
const MODULES: [(&str, bool); 4] = [("irqbypass", false), ("ccp", false), ("kvm", true), ("kvm-amd", true)];

/// Everything a machine is made of.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) qemu: PathBuf,
    pub(crate) busybox: PathBuf,
    pub(crate) kernel: PathBuf,
    /// In the order of insertion.
    pub(crate) modules: Vec<PathBuf>,
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
fn kernel_in(root: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
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
        match modules_of(&root.join("lib/modules").join(&version)) {
            Ok(modules) => return Ok((kernel, modules)),
            Err(error) => why = format!("{error:#}"),
        }
    }
    bail!("{why}")
}

/// Orders 6.1.0-9 before 6.1.0-10.
fn version_key(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

fn modules_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let kernel = folder.join("kernel");
    for part in ["arch/x86/kvm", "virt/lib", "drivers/crypto/ccp"] {
        let Ok(listing) = std::fs::read_dir(kernel.join(part)) else {
            continue;
        };
        for entry in listing {
            files.push(entry?.path());
        }
    }
    let mut modules = Vec::new();
    for (module, required) in MODULES {
        let found = files.iter().find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.split_once(".ko").is_some_and(|(stem, _)| stem == module)
        });
        match found {
            Some(path) => modules.push(path.clone()),
            None if required => bail!("no {module}.ko under {}", kernel.display()),
            None => {}
        }
    }
    Ok(modules)
}

/// A module's name and its bytes as the kernel wants them: Debian 13 ships `.ko.xz`.
pub(crate) fn module(path: &Path) -> Result<(String, Vec<u8>)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((stem, packing)) = name.split_once(".ko") else {
        bail!("{} is not a module", path.display());
    };
    let bytes = match packing {
        "" => std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        ".xz" | ".zst" | ".gz" => {
            let tool = match packing {
                ".xz" => "xz",
                ".zst" => "zstd",
                _ => "gzip",
            };
            let output = Command::new(tool).arg("-dc").arg(path).output();
            let output = output.with_context(|| format!("cannot run {tool} to unpack {}", path.display()))?;
            ensure!(output.status.success(), "{tool} could not unpack {}", path.display());
            output.stdout
        }
        other => bail!("{}: packing {other:?} is unknown", path.display()),
    };
    Ok((format!("{stem}.ko"), bytes))
}

/// A binary without its debug information, which is most of it and costs seconds to unpack in the machine.
pub(crate) fn stripped(binary: &Path) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let small = folder.path().join("stripped");
    let tool = Command::new("strip").args(["--strip-debug", "-o"]).args([&small, binary]).output();
    let path = match tool {
        Ok(output) if output.status.success() => &small,
        // It only takes longer.
        _ => binary,
    };
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The shared libraries and the loader that `binary` needs, as the dynamic linker resolves them here.
pub(crate) fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(binary).env("LC_ALL", "C").output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if text.contains("statically linked") || complaint.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    ensure!(output.status.success(), "ldd {}: {}", binary.display(), complaint.trim());
    parse_ldd(&text)
}

fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in text.lines() {
        ensure!(!line.contains("not found"), "ldd: {}", line.trim());
        // `NAME => PATH (ADDRESS)`, `PATH (ADDRESS)` for the loader, `NAME (ADDRESS)` for the vDSO.
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        let path = path.split(" (").next().unwrap_or_default().trim();
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

/// Version order, the forms of ldd's lines, and what a folder without a kernel is told.
pub(crate) fn check() -> Result<()> {
    ensure!(version_key("6.1.0-9-amd64") < version_key("6.1.0-10-amd64"));
    ensure!(version_key("6.12.1") > version_key("6.1.99"));
    let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
    let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
    ensure!(parse_ldd(text)? == expected.map(PathBuf::from));
    ensure!(parse_ldd("\tlibx.so => not found\n").is_err());

    let folder = tempfile::tempdir()?;
    ensure!(kernel_in(folder.path()).is_err());
    for version in ["6.1.0-9-amd64", "6.1.0-10-amd64", "6.1.0-11-amd64"] {
        let modules = folder.path().join("lib/modules").join(version).join("kernel/arch/x86/kvm");
        std::fs::create_dir_all(&modules)?;
        std::fs::create_dir_all(folder.path().join("boot"))?;
        std::fs::write(folder.path().join("boot/vmlinuz-").with_file_name(format!("vmlinuz-{version}")), "")?;
        std::fs::write(modules.join("kvm.ko"), "")?;
        if version != "6.1.0-11-amd64" {
            std::fs::write(modules.join("kvm-amd.ko.xz"), "")?;
        }
    }
    let (kernel, modules) = kernel_in(folder.path())?;
    ensure!(kernel.ends_with("vmlinuz-6.1.0-10-amd64"), "{}", kernel.display());
    ensure!(modules.len() == 2 && modules[1].ends_with("kvm-amd.ko.xz"));
    Ok(())
}

// The kernel inside a bzImage.
//
// A bzImage unpacks itself, which takes longer under software emulation than all the rest of the boot. The same ELF
// image taken out here and entered by PVH boots in half the time. Source: Documentation/arch/x86/boot.rst,
// `payload_offset` and `payload_length`.

/// The kernel in the quickest form that can be had: the unpacked image, else the bzImage as it is.
pub(crate) fn bootable(parts: &Parts) -> PathBuf {
    static UNPACKED: Mutex<Option<(PathBuf, PathBuf)>> = Mutex::new(None);
    let mut unpacked = UNPACKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((from, to)) = unpacked.as_ref()
        && *from == parts.kernel
        && to.is_file()
    {
        return to.clone();
    }
    match unpack(parts) {
        Ok(path) => {
            *unpacked = Some((parts.kernel.clone(), path.clone()));
            path
        }
        Err(why) => {
            eprintln!("# the kernel unpacks itself, which is slow: {why:#}");
            parts.kernel.clone()
        }
    }
}

fn unpack(parts: &Parts) -> Result<PathBuf> {
    let image = std::fs::read(&parts.kernel)?;
    let (tool, packed) = payload(&image)?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut input = tempfile::tempfile_in(folder)?;
    std::io::Write::write_all(&mut input, packed)?;
    std::io::Seek::rewind(&mut input)?;
    let output = tempfile::NamedTempFile::new_in(folder)?;
    let status = Command::new(tool)
        .arg("-dc")
        .stdin(input)
        .stdout(output.reopen()?)
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {tool}"))?;
    ensure!(status.success(), "{tool} failed");
    let mut magic = [0; 4];
    std::io::Read::read_exact(&mut File::open(output.path())?, &mut magic)?;
    ensure!(magic == *b"\x7fELF", "what was packed is not an ELF image");
    // The file has a name of its own: test processes boot different kernels at the same time.
    let to = folder.join(format!("host-b-vmlinux-{}", parts.release()));
    output.persist(&to)?;
    Ok(to)
}

/// The packed kernel and the tool that unpacks it.
fn payload(image: &[u8]) -> Result<(&'static str, &[u8])> {
    let word = |at: usize| {
        let bytes = image.get(at..at + 4).context("too short for a bzImage")?;
        Ok::<_, anyhow::Error>(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    ensure!(word(0x202)? == u32::from_le_bytes(*b"HdrS"), "no bzImage");
    ensure!(word(0x206)? & 0xffff >= 0x208, "boot protocol before 2.08");
    // The real-mode part: one boot sector and this many more; 0 means 4.
    let sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + usize::try_from(word(0x248)?)?;
    let end = start.checked_add(usize::try_from(word(0x24c)?)?).context("payload length")?;
    let packed = image.get(start..end).context("the payload lies outside of the file")?;
    ensure!(packed.len() > 8, "no payload");
    if packed.starts_with(b"\xfd7zXZ\0") {
        // The build appends the unpacked size.
        Ok(("xz", &packed[..packed.len() - 4]))
    } else {
        ensure!(packed.starts_with(b"\x1f\x8b"), "packing {:02x?} is unknown", packed.get(..4));
        Ok(("zcat", packed))
    }
}

/// Hand-made headers.
pub(crate) fn check_kernel() -> Result<()> {
    let mut image = vec![0; 4096];
    ensure!(payload(&image).is_err() && payload(&[]).is_err());
    image[0x1f1] = 1;
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&14_u32.to_le_bytes());
    ensure!(payload(&image).is_err(), "unknown packing was taken");
    image[1040..1054].copy_from_slice(b"\xfd7zXZ\0data\x04\0\0\0");
    ensure!(payload(&image)? == ("xz", b"\xfd7zXZ\0data".as_slice()));
    image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
    ensure!(payload(&image).is_err(), "a payload beyond the file was taken");
    Ok(())
}
