//! The error for a file that is no good.

use std::path::Path;

use crate::error::Error;

/// Remedy for a file that vpmu did not write.
pub(super) const NOT_OURS: &str = "give a .json that vpmu wrote";

/// Remedy for a profile for the Firefox profiler.
pub(super) const OF_FIREFOX: &str = "move it to another folder, or open it at https://profiler.firefox.com";

/// Exit 2 for a file or folder.
pub(super) fn refuse(path: &Path, why: impl Into<String>, remedy: &str) -> Error {
    Error::usage(format!("cannot use {}", path.display()), why, remedy)
}
