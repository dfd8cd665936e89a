//! The initial RAM disk of a Linux guest: the init with its agent, kernel modules, a shell, and the user's programs and files.

use std::path::{Path, PathBuf};
use std::process::Command;

use linux_guest::initramfs::Initramfs;
use linux_guest::modules;
use results::error::Error;
use vmm::boot::linux::Kernel;

use super::place::Placed;
use super::spec::BootOptions;
use crate::machine;
use crate::setting::program::in_path;

/// Modules of the agent's port.
const PORT: [&str; 2] = ["virtio_mmio", "virtio_console"];

/// Reads and unpacks the kernel.
///
/// # Errors
/// Exit 2: it cannot be read, or is none.
pub fn kernel(path: &Path) -> Result<Kernel, Error> {
    let file = machine::read(path, "the kernel")?;
    Kernel::parse(&file)
        .map_err(|error| Error::usage(format!("cannot boot {}", path.display()), error.to_string(), "give a bzImage"))
}

/// Makes the initial RAM disk of the kernel at `path`, of this release, with room for more: its modules, those of the agent's port and
/// `load`, with what the command line says of them, and the user's programs and files.
///
/// # Errors
/// Exit 2 for a file that is absent or cannot be used, with its name.
pub fn initramfs(
    (path, release): (&Path, &str),
    boot: &BootOptions,
    load: &[String],
    with: &[Placed],
) -> Result<Initramfs, Error> {
    let mut initramfs = Initramfs::new();
    let folder = modules::find(release, boot.modules.as_deref(), path)
        .map_err(|error| Error::usage("cannot find the kernel's modules", error.to_string(), ""))?;
    let cannot_load =
        |why: String| Error::usage("cannot load the kernel's modules", why, "name others with --load or --modules");
    let names: Vec<&str> = PORT.into_iter().chain(load.iter().map(String::as_str)).collect();
    for module in modules::needed(&folder, release, &names).map_err(|error| cannot_load(error.to_string()))? {
        // As modprobe(8) takes them. A dash stands for an underscore.
        let words = boot.append.split_ascii_whitespace().filter_map(|word| word.split_once('.'));
        let own = words.filter(|(of, _)| of.replace('-', "_") == module.name).map(|(_, parameter)| parameter);
        let added = initramfs.module(&module.name, &module.bytes, &own.collect::<Vec<_>>().join(" "));
        added.map_err(|error| cannot_load(error.to_string()))?;
    }
    for placed in with {
        let cannot = |why: String| {
            Error::usage(format!("cannot put {} into the guest", placed.host.display()), why, "name another file")
        };
        let (host, guest) = placed.resolve(std::env::var_os("PATH").as_deref()).map_err(cannot)?;
        initramfs.copy(&guest, &host).map_err(|error| cannot(error.to_string()))?;
    }
    Ok(initramfs)
}

/// Puts a shell: busybox with its applets. What is there already, the user's programs, keeps its path.
///
/// # Errors
/// Exit 2: this host has none.
pub fn shell(initramfs: &mut Initramfs) -> Result<(), Error> {
    let cannot = |why: String| Error::usage("cannot put a shell into the guest", why, "install busybox");
    let found = in_path(Path::new("busybox"), std::env::var_os("PATH").as_deref()).and_then(applets);
    let (busybox, applets) = found.ok_or_else(|| cannot("no busybox with sh is in PATH".to_owned()))?;
    for applet in std::iter::once("busybox").chain(applets.iter().map(String::as_str)) {
        let guest = format!("/bin/{applet}");
        let added = match applet {
            _ if initramfs.has(&guest) => Ok(()),
            "busybox" => initramfs.program(&guest, &busybox),
            _ => initramfs.link(&guest, "busybox"),
        };
        added.map_err(|error| cannot(error.to_string()))?;
    }
    Ok(())
}

/// Asks a busybox for the names of its applets.
fn applets(busybox: PathBuf) -> Option<(PathBuf, Vec<String>)> {
    let listed = Command::new(&busybox).arg("--list").output().ok().filter(|done| done.status.success())?;
    let text = String::from_utf8(listed.stdout).ok()?;
    let names: Vec<_> = text.lines().filter(|name| is_applet(name)).map(str::to_owned).collect();
    names.iter().any(|name| name == "sh").then_some((busybox, names))
}

fn is_applet(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.[".contains(&byte);
    !matches!(name, "" | "." | ".." | "busybox" | "init") && name.bytes().all(plain)
}
