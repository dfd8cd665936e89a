//! Room for descriptors: raised once, up front.

use serde::{Deserialize, Serialize};

use crate::sys;

/// What became of RLIMIT_NOFILE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLimit {
    /// Soft limit found.
    pub before: u64,
    /// Soft limit now.
    pub now: u64,
    /// Hard limit: as far as it can be raised.
    pub hard: u64,
}

/// Raises the soft limit of open files to what `descriptors` need, as far as the hard limit goes, if it is lower.
///
/// # Errors
/// Those of getrlimit and setrlimit.
pub fn raise(descriptors: u64) -> std::io::Result<FileLimit> {
    let (before, hard) = sys::file_limit()?;
    let wanted = descriptors.saturating_add(SPARE).min(hard);
    if wanted > before {
        sys::set_file_limit(wanted, hard)?;
    }
    Ok(FileLimit { before, now: before.max(wanted), hard })
}

/// Descriptors for everything else.
const SPARE: u64 = 64;

impl FileLimit {
    /// How many events fit into one table.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.now.saturating_sub(SPARE)
    }
}
