//! Programs of this host.

use std::ffi::OsStr;
use std::fs::metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Returns whether a path is a file that can be executed.
pub fn is_program(path: &Path) -> bool {
    metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Finds a program in the folders of PATH.
pub fn in_path(name: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let folders = std::env::split_paths(path?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|file| is_program(file))
}
