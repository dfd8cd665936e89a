//! Hosts for tests, as trees of the files that tell about them.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::sync::LazyLock;

use results::host::HostFs;

/// Writes a tree of `(path, text)` and gives the file system on it.
///
/// # Panics
/// If it cannot be written.
pub fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostFs) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let fs = HostFs::at(dir.path());
    (dir, fs)
}

/// Paths and texts of a host's files.
pub type Files = Vec<(&'static str, &'static str)>;

/// A bare-metal Cascade Lake server.
pub static CASCADE_LAKE: LazyLock<Files> = LazyLock::new(|| files(include_str!("cascade-lake.txt")));
/// A small virtual machine whose KVM does without hardware virtualization.
pub static PVM: LazyLock<Files> = LazyLock::new(|| files(include_str!("pvm.txt")));

/// Reads files that stand below a line with their path each.
fn files(text: &'static str) -> Files {
    text.split("== ").skip(1).filter_map(|file| file.split_once('\n')).collect()
}
