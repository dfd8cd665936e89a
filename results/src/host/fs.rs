//! Files of the host below a root, so that tests read a fixture tree.

use std::io::Read;
use std::path::PathBuf;

/// Room for most files.
const ROOM: usize = 4096;

/// The host's file system, `/` unless a test says otherwise.
#[derive(Clone, Debug)]
pub struct HostFs {
    root: PathBuf,
}

impl Default for HostFs {
    fn default() -> Self {
        Self::at("/")
    }
}

impl HostFs {
    /// Creates a file system below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the real place of `path`, which is given without its leading slash.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads the text of a file without trailing white space; `None` if it is absent, unreadable or empty.
    pub fn text(&self, path: &str) -> Option<String> {
        // Without room the reader tries 32 bytes first, and most of these files are made anew at each read.
        let mut bytes = Vec::with_capacity(ROOM);
        std::fs::File::open(self.path(path)).ok()?.read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned()).filter(|text| !text.is_empty())
    }

    /// Reads a file holding one number.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a directory, sorted; empty if it is absent.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Reads a file of each entry of a directory; returns those that have it, by the entry's name. `file` begins with a slash, or is empty
    /// where the entries are files.
    pub(super) fn each(&self, dir: &str, file: &str) -> impl Iterator<Item = (String, String)> {
        let entries = self.names(dir).into_iter();
        entries.filter_map(move |name| self.text(&format!("{dir}/{name}{file}")).map(|text| (name, text)))
    }

    /// Returns whether a path exists.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}
