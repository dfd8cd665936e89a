//! The initial RAM disk of a Linux guest: the init with its agent, kernel modules, a shell, and the user's programs and files.

use std::path::{Path, PathBuf};
use std::process::Command;

use linux_guest::initramfs::Initramfs;
use linux_guest::modules;
use results::error::Error;
use vmm::boot::linux::Kernel;

use super::place::{Load, Placed, in_path};
use crate::machine;

/// Modules of the agent's port.
const PORT: [&str; 2] = ["virtio_mmio", "virtio_console"];
/// Programs beside a shell that is not busybox.
const TOOLS: [&str; 24] = [
    "cat", "chmod", "cp", "cut", "date", "dmesg", "echo", "env", "free", "grep", "head", "kill", "ls", "mkdir",
    "mount", "mv", "ps", "rm", "sed", "sleep", "sort", "tail", "true", "wc",
];

/// Reads and unpacks the kernel.
///
/// # Errors
/// Exit 2: it cannot be read, or is none.
pub fn kernel(path: &Path) -> Result<Kernel, Error> {
    let file = machine::read(path, "the kernel")?;
    Kernel::parse(&file).map_err(|error| Error::usage(format!("cannot boot {}", path.display()), error.to_string(), ""))
}

/// Makes the initial RAM disk of the kernel at `path`, of this release, with room for more: its modules from `folder`, or from
/// beside it, those of the agent's port and `load`, and the user's programs and files.
///
/// # Errors
/// Exit 2 for a file that is absent or cannot be used, with its name.
pub fn initramfs(
    (path, release): (&Path, &str),
    folder: Option<&Path>,
    load: &[Load],
    with: &[Placed],
) -> Result<Initramfs, Error> {
    let mut initramfs = Initramfs::new();
    let folder = modules::find(release, folder, path)
        .map_err(|error| Error::usage("cannot find the kernel's modules", error.to_string(), ""))?;
    let cannot_load = |why: String| Error::usage("cannot load the kernel's modules", why, "");
    let names: Vec<&str> = PORT.into_iter().chain(load.iter().map(|load| load.name.as_str())).collect();
    let needed = modules::needed(&folder, release, &names).map_err(|error| cannot_load(error.to_string()))?;
    let built_in = |load: &&Load| !load.parameters.is_empty() && !needed.iter().any(|module| load.is(&module.name));
    if let Some(load) = load.iter().find(built_in) {
        return Err(Error::usage(
            format!("--load '{} {}'", load.name, load.parameters),
            format!("{} is built into the kernel", load.name),
            format!("give its parameters as {}.PARAMETER=VALUE with --append", load.name),
        ));
    }
    for module in needed {
        let parameters = load.iter().find(|load| load.is(&module.name)).map_or("", |load| &load.parameters);
        let added = initramfs.module(&module.name, &module.bytes, parameters);
        added.map_err(|error| cannot_load(error.to_string()))?;
    }
    for placed in with {
        let cannot =
            |why: String| Error::usage(format!("cannot put {} into the guest", placed.host.display()), why, "");
        let (host, guest) = placed.resolve(std::env::var_os("PATH").as_deref()).map_err(cannot)?;
        initramfs.copy(&guest, &host).map_err(|error| cannot(error.to_string()))?;
    }
    Ok(initramfs)
}

/// Puts a shell: busybox with its applets if this host has it, else the host's sh and a few tools. What is there already, the
/// user's programs, keeps its path.
///
/// # Errors
/// Exit 2: this host has none.
pub fn shell(initramfs: &mut Initramfs) -> Result<(), Error> {
    let path = std::env::var_os("PATH");
    let find = |name: &str| in_path(Path::new(name), path.as_deref());
    let cannot = |why: String| Error::usage("cannot put a shell into the guest", why, "install busybox");
    let (mut programs, mut links) = (Vec::new(), Vec::new());
    if let Some((busybox, applets)) = find("busybox").and_then(applets) {
        programs.push(("/bin/busybox".to_owned(), busybox));
        links = applets;
    } else {
        let sh = find("sh").ok_or_else(|| cannot("neither busybox nor sh is in PATH".to_owned()))?;
        programs.push(("/bin/sh".to_owned(), sh));
        programs.extend(TOOLS.iter().filter_map(|tool| Some((format!("/bin/{tool}"), find(tool)?))));
    }
    for (guest, host) in programs {
        let added = if initramfs.has(&guest) { Ok(()) } else { initramfs.program(&guest, &host) };
        added.map_err(|error| cannot(error.to_string()))?;
    }
    for guest in links.into_iter().map(|applet| format!("/bin/{applet}")) {
        let added = if initramfs.has(&guest) { Ok(()) } else { initramfs.link(&guest, "busybox") };
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
