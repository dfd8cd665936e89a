//! The initial RAM disk of a Linux guest: the init with its agent, kernel modules, a shell, and the user's programs and files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use linux_guest::initramfs::Initramfs;
use linux_guest::modules;
use results::error::Error;

use super::place::{Load, Placed, in_path};

/// Modules of the agent's port.
const PORT: [&str; 2] = ["virtio_mmio", "virtio_console"];
/// Programs beside a shell that is not busybox.
const TOOLS: [&str; 24] = [
    "cat", "chmod", "cp", "cut", "date", "dmesg", "echo", "env", "free", "grep", "head", "kill", "ls", "mkdir",
    "mount", "mv", "ps", "rm", "sed", "sleep", "sort", "tail", "true", "wc",
];

/// Contents of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The kernel's file, beside which its modules are looked for.
    pub kernel: &'a Path,
    /// The kernel's release.
    pub release: &'a str,
    /// Folder of the modules.
    pub modules: Option<&'a Path>,
    /// Modules to load beside those of the agent's port.
    pub load: &'a [Load],
    /// Programs and files.
    pub with: &'a [Placed],
    /// A shell is needed.
    pub shell: bool,
}

/// Makes the initial RAM disk.
///
/// # Errors
/// Exit 2 for a file that is absent or cannot be used, with its name.
pub fn make(wanted: &Wanted<'_>) -> Result<Vec<u8>, Error> {
    let made = initramfs(wanted)?.finish();
    made.map_err(|error| Error::usage("cannot make the initial RAM disk", error.to_string(), ""))
}

/// Makes the archive, with room for more.
///
/// # Errors
/// As [`make`].
pub fn initramfs(wanted: &Wanted<'_>) -> Result<Initramfs, Error> {
    let path = std::env::var_os("PATH");
    let mut initramfs = Initramfs::new();
    let folder = modules::find(wanted.release, wanted.modules, wanted.kernel)
        .map_err(|error| Error::usage("cannot find the kernel's modules", error.to_string(), ""))?;
    let names: Vec<&str> = PORT.into_iter().chain(wanted.load.iter().map(|load| load.name.as_str())).collect();
    let needed = modules::needed(&folder, wanted.release, &names)
        .map_err(|error| Error::usage("cannot load the kernel's modules", error.to_string(), ""))?;
    let built_in = |load: &&Load| !load.parameters.is_empty() && !needed.iter().any(|module| load.is(&module.name));
    if let Some(load) = wanted.load.iter().find(built_in) {
        return Err(Error::usage(
            format!("--load '{} {}'", load.name, load.parameters),
            format!("{} is built into the kernel", load.name),
            format!("give its parameters as {}.PARAMETER=VALUE with --append", load.name),
        ));
    }
    for module in needed {
        let parameters = wanted.load.iter().find(|load| load.is(&module.name)).map_or("", |load| &load.parameters);
        let added = initramfs.module(&module.name, &module.bytes, parameters);
        added.map_err(|error| Error::usage("cannot load the kernel's modules", error.to_string(), ""))?;
    }
    for placed in wanted.with {
        let cannot =
            |why: String| Error::usage(format!("cannot put {} into the guest", placed.host.display()), why, "");
        let found = placed.resolve(path.as_deref()).map_err(cannot)?;
        initramfs.copy(Some(&found.guest), &found.host).map_err(|error| cannot(error.to_string()))?;
    }
    // Last, so that the user's programs have their paths.
    if wanted.shell {
        shell(&mut initramfs, path.as_deref())?;
    }
    Ok(initramfs)
}

/// Puts a shell: busybox with its applets if this host has it, else the host's sh and a few tools.
fn shell(initramfs: &mut Initramfs, path: Option<&OsStr>) -> Result<(), Error> {
    let cannot = |why: String| Error::usage("cannot put a shell into the guest", why, "install busybox");
    let add = |initramfs: &mut Initramfs, guest: &str, host: &Path| {
        initramfs.program(guest, host).map_err(|error| cannot(error.to_string()))
    };
    if let Some((busybox, applets)) = in_path(Path::new("busybox"), path).and_then(applets) {
        add(initramfs, "/bin/busybox", &busybox)?;
        for applet in applets {
            let path = format!("/bin/{applet}");
            if initramfs.has(&path) {
                continue;
            }
            initramfs.link(&path, "busybox").map_err(|error| cannot(error.to_string()))?;
        }
        return Ok(());
    }
    let sh = in_path(Path::new("sh"), path).ok_or_else(|| cannot("neither busybox nor sh is in PATH".to_owned()))?;
    if !initramfs.has("/bin/sh") {
        add(initramfs, "/bin/sh", &sh)?;
    }
    for tool in TOOLS {
        let guest = format!("/bin/{tool}");
        if let Some(host) = in_path(Path::new(tool), path).filter(|_| !initramfs.has(&guest)) {
            add(initramfs, &guest, &host)?;
        }
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
