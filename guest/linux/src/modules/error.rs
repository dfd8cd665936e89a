//! The reasons for which modules cannot be given to a guest.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A module cannot be given to the guest.
#[derive(Debug, Error)]
pub enum ModuleError {
    /// No folder of modules is where one could be.
    #[error(
        "the modules of kernel {release} are not in {searched}; give their folder with --modules DIR (Debian: unpack the kernel's package with dpkg-deb -x)"
    )]
    NoFolder {
        /// The kernel's release.
        release: String,
        /// Folders that were searched.
        searched: String,
    },
    /// The folder given has modules, of other kernels only.
    #[error("{} has modules of {found}; the kernel is {release}: a module runs in the kernel that it was built for only", .folder.display())]
    OtherRelease {
        /// The folder.
        folder: PathBuf,
        /// The releases of its modules.
        found: String,
        /// The kernel's release.
        release: String,
    },
    /// A module was built for another kernel.
    #[error("{}: built for kernel {found}; the kernel is {release}", .path.display())]
    Version {
        /// The module's file.
        path: PathBuf,
        /// The release it was built for.
        found: String,
        /// The kernel's release.
        release: String,
    },
    /// A module is neither in the folder nor built in.
    #[error("module {name}{} is not in {}, and not among the kernel's built-in ones", .needed_by.as_ref().map(|by| format!(", which {by} needs,")).unwrap_or_default(), .folder.display())]
    Absent {
        /// Its name.
        name: String,
        /// The module that needs it.
        needed_by: Option<String>,
        /// The folder.
        folder: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}: {error}", .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not a module.
    #[error("{}: not a kernel module: {what}", .path.display())]
    NotAModule {
        /// Its path.
        path: PathBuf,
        /// Why.
        what: String,
    },
}
