//! The reasons for which an initramfs cannot be made.

use std::io;
use std::path::Path;

use thiserror::Error;

/// An initramfs cannot be made: what is wrong with a path in the guest, or with a file of the host.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct InitramfsError(pub(super) String);

impl InitramfsError {
    /// A file, and what is wrong with it.
    pub(super) fn of(path: &Path, what: impl std::fmt::Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }
}

/// The error of a file that cannot be read.
pub(super) fn host(path: &Path) -> impl FnOnce(io::Error) -> InitramfsError + '_ {
    |error| InitramfsError::of(path, error)
}
