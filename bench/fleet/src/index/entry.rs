//! A document as the index keeps it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::run::{Labels, Run, shared};

/// Identity of a file that was read: it has not changed since if these are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) size: u64,
    pub(super) modified_ns: i64,
    pub(super) inode: u64,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        let modified_ns = meta.mtime().wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec());
        Ok(Self { size: meta.size(), modified_ns, inode: meta.ino() })
    }
}

/// A document's run, and the file that it was read from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) stamp: Stamp,
    /// The host by the document's own name.
    #[serde(with = "shared")]
    pub(super) document_host: Arc<str>,
    pub(super) run: Run,
}

impl Entry {
    /// Gives the run the labels of a campaign; whether they differ from those it had.
    pub(super) fn label(&mut self, labels: &Labels) -> bool {
        let host = labels.host.as_deref().unwrap_or(&self.document_host);
        let changed = self.run.labels != *labels || &*self.run.host != host;
        if changed {
            self.run.host = host.into();
            self.run.labels = labels.clone();
        }
        changed
    }

    /// Returns whether both are the same run: no two runs take the same time to the nanosecond.
    ///
    /// Elements of a campaign are runs of their own, however alike: simulations of one seed are.
    pub(super) fn is_copy(&self, other: &Self) -> bool {
        let elements = (self.run.labels.element, other.run.labels.element);
        if matches!(elements, (Some(one), Some(another)) if one != another) {
            return false;
        }
        let key = |run: &Run| (run.started_unix, run.wall_ns);
        key(&self.run) == key(&other.run)
            && self.run.experiment == other.run.experiment
            && self.run.figures == other.run.figures
    }

    /// Returns whether nothing in it was measured.
    pub(super) fn is_simulated(&self) -> bool {
        self.run.class().starts_with("simulated")
    }
}
