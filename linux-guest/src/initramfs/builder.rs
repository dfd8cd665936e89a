//! The initramfs: the init, the folders that it mounts on, and what the caller adds.

use std::path::Path;

use super::archive::Archive;
use super::error::InitramfsError;
use super::program::{Collector, Item, absolute};
use crate::INIT;

/// Folders of `/` that are links into `/usr`, as on every distribution of today. What is added below one is added below
/// the other.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Empty folders, for mounts and for programs that take them for granted.
const FOLDERS: [&str; 14] = [
    "/dev",
    "/etc",
    "/mnt",
    "/modules",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/tmp",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/sbin",
    "/var",
];

/// Files that a guest has unless the caller adds its own.
const FILES: [(&str, &str); 2] = [("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("/etc/group", "root:x:0:\n")];

/// An initramfs under construction.
#[derive(Debug, Default)]
pub struct Initramfs {
    archive: Archive,
    collector: Collector,
    /// Names of the modules, in the order in which the init loads them.
    modules: Vec<String>,
}

fn merged(path: &str) -> String {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if path.starts_with('/') && MERGED.contains(&first) && path.len() > first.len() + 1 {
        format!("/usr{path}")
    } else {
        path.to_owned()
    }
}

impl Initramfs {
    /// An initramfs with the init and nothing to run.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a program of the host (an ELF file or a script) with its interpreter and shared libraries, which keep their paths.
    /// Libraries that a program opens by itself (dlopen(3)) and modules of a script's interpreter are not known here.
    pub fn program(&mut self, path: &str, from: &Path) -> Result<(), InitramfsError> {
        self.collector.program(path, from)?;
        self.add_collected()
    }

    /// Adds whatever is at a path of the host: a program as [`Self::program`] does, another file as it is, a folder with
    /// everything below it. `path` is its path in the guest; without one it is the host's.
    pub fn copy(&mut self, path: Option<&str>, from: &Path) -> Result<(), InitramfsError> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => absolute(from)?.to_string_lossy().into_owned(),
        };
        self.collector.any(path.trim_end_matches('/'), from)?;
        self.add_collected()
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), InitramfsError> {
        self.archive.file(&merged(path), mode, bytes)
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), InitramfsError> {
        self.archive.link(&merged(path), target)
    }

    /// Adds a kernel module; the init loads modules in the order in which they were added.
    pub fn module(&mut self, name: &str, bytes: &[u8]) -> Result<(), InitramfsError> {
        self.archive.file(&format!("/modules/{name}.ko"), 0o644, bytes)?;
        self.modules.push(format!("{name}.ko"));
        Ok(())
    }

    /// Whether there is something at a path.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.archive.has(&merged(path))
    }

    /// The archive's bytes.
    pub fn finish(mut self) -> Result<Vec<u8>, InitramfsError> {
        for folder in FOLDERS {
            self.archive.folder(folder, 0o755)?;
        }
        for name in MERGED {
            self.archive.link(&format!("/{name}"), &format!("usr/{name}"))?;
        }
        for (path, text) in FILES {
            if !self.archive.has(path) {
                self.archive.file(path, 0o644, text.as_bytes())?;
            }
        }
        // The kernel opens it for process 1 before anything is mounted.
        self.archive.character_device("/dev/console", 0o600, 5, 1)?;
        self.archive.file("/init", 0o755, INIT)?;
        let mut list = self.modules.join("\n");
        list.push('\n');
        self.archive.file("/modules/list", 0o644, list.as_bytes())?;
        Ok(self.archive.finish())
    }

    fn add_collected(&mut self) -> Result<(), InitramfsError> {
        for item in self.collector.take() {
            match item {
                Item::File { path, mode, bytes } => self.archive.file(&merged(&path), mode, &bytes)?,
                Item::Link { path, target } => self.archive.link(&merged(&path), &target)?,
                Item::Folder { path, mode } => self.archive.folder(&merged(&path), mode)?,
            }
        }
        Ok(())
    }
}
