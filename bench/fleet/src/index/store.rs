//! The index's file: a line that says whose it is, then a line a document, `["CHECKSUM",ENTRY]`. It is read and
//! replaced as a whole.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use results::open;
use results::write::replace;
use serde::{Deserialize, Serialize};

use crate::run::{Labels, Run, shared};

/// Begin of the first line.
const OURS: &str = r#"{"index":"vpmu fleet","version":"#;
/// Version of the lines *and* of what a document is reduced to: it grows with either.
const VERSION: u32 = 2;
/// Largest index that is loaded: that of some hundred thousand documents.
const MAX_INDEX: u64 = 1 << 30;

/// File at the place of the index.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing.
    Absent,
    /// Its whole lines. A document whose line is damaged is read again.
    Entries(BTreeMap<String, Entry>),
    /// Ours, and of no use: why. It is replaced.
    Useless(String),
    /// Not ours: it stays as it is.
    Foreign(String),
}

fn header() -> String {
    format!("{OURS}{VERSION}}}")
}

/// Computes FNV-1a: a checksum against accidents.
fn checksum(text: &str) -> String {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, add))
}

fn line(entry: &Entry) -> io::Result<String> {
    let text = serde_json::to_string(entry)?;
    Ok(format!("[\"{}\",{text}]\n", checksum(&text)))
}

fn entry(line: &str) -> Option<Entry> {
    let (sum, text) = line.strip_prefix("[\"")?.strip_suffix(']')?.split_once("\",")?;
    (sum == checksum(text)).then(|| serde_json::from_str(text).ok())?
}

/// Loads the index at `path`.
pub(super) fn load(path: &Path, names: &mut Names) -> Found {
    // A checksum is against accidents: what others wrote, or may write to, is not believed.
    let own = |file: std::fs::File| {
        let meta = file.metadata()?;
        let ours = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid()) && meta.mode() & 0o022 == 0;
        let refusal = || io::Error::new(io::ErrorKind::PermissionDenied, "others wrote it or may write to it");
        if ours { Ok(file) } else { Err(refusal()) }
    };
    let file = open::found(path, MAX_INDEX).and_then(own);
    let bytes = match file.and_then(|file| open::bytes(file, MAX_INDEX)) {
        Ok(bytes) if bytes.is_empty() => return Found::Useless("it is empty".to_owned()),
        Ok(bytes) => bytes,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound => Found::Absent,
                io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge => Found::Foreign(error.to_string()),
                _ => Found::Useless(error.to_string()),
            };
        }
    };
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    if !first.starts_with(OURS.as_bytes()) {
        return Found::Foreign("vpmu did not write it".to_owned());
    }
    if first != header().as_bytes() {
        return Found::Useless(format!("it is not of version {VERSION}"));
    }
    let lines: Vec<&[u8]> = lines.collect();
    let whole = lines.par_iter().filter_map(|line| entry(std::str::from_utf8(line).ok()?));
    let mut entries: Vec<Entry> = whole.collect();
    for entry in &mut entries {
        names.share(entry);
    }
    Found::Entries(entries.into_iter().map(|entry| (entry.run.file.clone(), entry)).collect())
}

/// Replaces the index at `path`.
///
/// # Errors
/// Why it could not be written; what was there is as it was.
pub(super) fn save(path: &Path, entries: &BTreeMap<String, Entry>) -> io::Result<()> {
    let entries: Vec<&Entry> = entries.values().collect();
    let lines: Vec<String> = entries.par_iter().map(|entry| line(entry)).collect::<io::Result<_>>()?;
    replace(path, (header() + "\n" + &lines.concat()).as_bytes())
}

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

/// Each text and each set of facts once.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: HashSet<Arc<str>>,
    facts: HashSet<Arc<BTreeMap<String, String>>>,
}

impl Names {
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    fn shared_facts(&mut self, facts: &Arc<BTreeMap<String, String>>) -> Arc<BTreeMap<String, String>> {
        if let Some(known) = self.facts.get(facts) {
            return known.clone();
        }
        self.facts.insert(facts.clone());
        facts.clone()
    }

    /// Replaces the texts of an entry by the shared ones.
    pub(super) fn share(&mut self, entry: &mut Entry) {
        let Run { experiment, setting, key, backend, host, boot, facts, figures, .. } = &mut entry.run;
        for text in [experiment, setting, key, backend, host, boot, &mut entry.document_host] {
            *text = self.text(text);
        }
        *facts = self.shared_facts(facts);
        for figure in figures.iter_mut() {
            figure.arm = self.text(&figure.arm);
            figure.metric = self.text(&figure.metric);
            if let Some(doubt) = &mut figure.doubt {
                *doubt = self.text(doubt);
            }
        }
        figures.shrink_to_fit();
    }
}
