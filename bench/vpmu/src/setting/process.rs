//! This process: its file locks and its version.

use std::fs::File;

use results::document::Tool;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Takes the advisory lock of an open file or folder until that is closed; false if another process has it. True where the file
/// system has no locks: NFS has none for a folder, Lustre without `flock` has none at all.
///
/// # Errors
/// The errno of `flock`, but for EWOULDBLOCK.
pub fn try_lock(file: &File) -> std::io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::BADF | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The version line.
pub const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("VPMU_GIT_REVISION"), ", ", env!("VPMU_PROFILE"), ")");

/// Name, version, revision and profile.
pub fn tool() -> Tool {
    Tool {
        name: "vpmu".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        git_revision: env!("VPMU_GIT_REVISION").to_owned(),
        profile: env!("VPMU_PROFILE").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_until_the_file_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let first = open();
        assert!(try_lock(&first).unwrap());
        assert!(!try_lock(&open()).unwrap());
        drop(first);
        assert!(try_lock(&open()).unwrap());
    }
}
