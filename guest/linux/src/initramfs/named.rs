//! What a program of the user's may ask for: it decides what goes into the guest, and root reads it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::error::InitramfsError;

/// Files and folders that the user named.
#[derive(Debug, Default)]
pub(super) struct Named(BTreeSet<PathBuf>);

impl Named {
    /// Adds a file or folder that the user named.
    pub(super) fn add(&mut self, from: &Path) {
        // A path that does not exist is refused by its reader.
        self.0.extend(fs::canonicalize(from));
    }

    /// Checks that `program` may have `path`, which it asks for itself. Run by root, it could ask for anything, and
    /// whoever made it sees what is in the guest: it gets what everybody may read on this host, or what the user named.
    pub(super) fn check(&self, path: &Path, program: &Path) -> Result<(), InitramfsError> {
        // A path that does not exist is another error.
        let Ok(real) = fs::canonicalize(path) else { return Ok(()) };
        let may = |path: &Path, bit| fs::metadata(path).is_ok_and(|found| found.mode() & bit != 0);
        // Folders above what the user named are no secret.
        let passable = |folder: &Path| may(folder, 0o001) || self.0.iter().any(|named| named.starts_with(folder));
        if self.0.iter().any(|named| real.starts_with(named))
            || (may(&real, 0o004) && real.ancestors().skip(1).all(passable))
        {
            return Ok(());
        }
        Err(InitramfsError(format!(
            "{} needs {}, which not everybody may read on this host; if the guest may have it, name it with a --with before",
            program.display(),
            real.display()
        )))
    }
}
