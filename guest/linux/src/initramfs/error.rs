//! The reasons for which an initramfs cannot be made.

use std::io;
use std::path::Path;

use thiserror::Error;

/// An initramfs cannot be made.
#[derive(Debug, Error)]
pub enum InitramfsError {
    /// A path in the guest is not absolute, or has `.`, `..` or an empty part.
    #[error("{0:?} is not a plain absolute path in the guest")]
    Path(String),
    /// Two different things are to be at one path.
    #[error("two different files are to be at {0} in the guest")]
    Twice(String),
    /// A file of the host cannot be read, is damaged or of another processor, or needs what the guest cannot have.
    #[error("{0}")]
    File(String),
}

impl InitramfsError {
    /// A file, and what is wrong with it.
    pub(super) fn of(path: &Path, what: impl std::fmt::Display) -> Self {
        Self::File(format!("{}: {what}", path.display()))
    }
}

/// The error of a file that cannot be read.
pub(super) fn host(path: &Path) -> impl FnOnce(io::Error) -> InitramfsError + '_ {
    |error| InitramfsError::of(path, error)
}
