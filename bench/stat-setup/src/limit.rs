//! RLIMIT_NOFILE, raised once before a set-up.

use serde::{Deserialize, Serialize};

use crate::sys;

/// RLIMIT_NOFILE before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLimit {
    /// Soft limit before.
    pub before: u64,
    /// Soft limit now.
    pub now: u64,
    /// Hard limit: upper bound of `now`.
    pub hard: u64,
}

/// Raises the soft limit of open files to fit `descriptors`, at most to the hard limit.
///
/// # Errors
/// Errors of getrlimit and setrlimit.
pub fn raise(descriptors: u64) -> std::io::Result<FileLimit> {
    let (before, hard) = sys::file_limit()?;
    let wanted = descriptors.saturating_add(SPARE).min(hard);
    if wanted > before {
        sys::set_file_limit(wanted, hard)?;
    }
    Ok(FileLimit { before, now: before.max(wanted), hard })
}

/// Descriptors reserved for other files.
const SPARE: u64 = 64;

impl FileLimit {
    /// Returns the number of events that fit into one descriptor table.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.now.saturating_sub(SPARE)
    }
}
