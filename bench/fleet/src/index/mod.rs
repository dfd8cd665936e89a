//! An index of a folder of documents, so that no document is read twice.
//!
//! It is a cache in `index.jsonl`: what is in it comes from the documents, and a document is read again unless size, modification
//! time and inode are those of the file that was read. Whatever happens to the index costs time and nothing else: one that is
//! damaged or of another version is made again, each line of it has a checksum, and where it cannot be written it is kept in
//! memory.

mod entry;
mod names;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use self::entry::{Entry, Stamp};
use self::names::Names;
use self::store::Found;
use crate::run::{Labels, Run};
use results::error::Error;
use results::{open, read};

/// The file's name in the folder.
pub const INDEX: &str = "index.jsonl";

/// The runs of a folder's documents.
#[derive(Debug)]
pub struct Index {
    dir: PathBuf,
    entries: BTreeMap<String, Entry>,
    names: Names,
    /// Copies of other documents, as the last refresh found them.
    copies: Vec<String>,
    /// The file holds the entries.
    stored: bool,
    /// It is written to its file: not where another program's file has its place.
    is_file: bool,
    warning: Option<String>,
}

/// Changes by a refresh.
#[derive(Debug, Default)]
pub struct Refreshed {
    /// Documents that were read.
    pub read: usize,
    /// Documents that are as the index has them.
    pub unchanged: usize,
    /// Documents that the index had, and that are no longer among those asked for.
    pub gone: usize,
    /// Documents that cannot be used, in the order of their names. Each error is a line that names the file.
    pub bad: Vec<(String, Error)>,
    /// Fault of the index itself: one line. Runs are complete all the same.
    pub warning: Option<String>,
}

impl Index {
    /// Loads the index of a folder. One that is absent or damaged is empty.
    #[must_use]
    pub fn open(dir: &Path) -> Self {
        let mut names = Names::default();
        let path = dir.join(INDEX);
        let (entries, warning, foreign) = match store::load(&path, &mut names) {
            Found::Absent => (None, None, false),
            Found::Entries(entries) => (Some(entries), None, false),
            Found::Useless(why) => {
                (None, Some(format!("{} is of no use: {why}; every document is read again", path.display())), false)
            }
            Found::Foreign(why) => {
                let line = format!("{} is no index of vpmu: {why}; every document is read; remove it", path.display());
                (None, Some(line), true)
            }
        };
        let stored = entries.is_some();
        let entries = entries.unwrap_or_default();
        Self { entries, names, stored, is_file: !foreign, warning, ..Self::in_memory(dir) }
    }

    /// One that is never written, nor read: for the folder of another user.
    #[must_use]
    pub fn in_memory(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            entries: BTreeMap::new(),
            names: Names::default(),
            copies: Vec::new(),
            stored: false,
            is_file: false,
            warning: None,
        }
    }

    /// Makes the index that of these documents: paths relative to the folder, with what a campaign says of each. Reads those that
    /// are new or changed, and calls `progress` with how many of how many were read.
    pub fn refresh(
        &mut self,
        documents: impl IntoIterator<Item = (PathBuf, Labels)>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Refreshed {
        let mut refreshed = Refreshed { warning: self.warning.take(), ..Refreshed::default() };
        let mut wanted = BTreeMap::new();
        for (path, labels) in documents {
            match path.to_str() {
                Some(file) => {
                    wanted.insert(file.to_owned(), labels);
                }
                None => refreshed.bad.push((path.display().to_string(), not_text(&path))),
            }
        }
        let mut changed = self.forget(&wanted);
        refreshed.gone = changed.len();
        let (relabelled, stale) = self.stale(&wanted);
        changed.extend(relabelled);
        refreshed.unchanged = self.entries.len() - stale.iter().filter(|file| self.entries.contains_key(*file)).count();
        for (file, result) in self.read(&stale, &wanted, progress) {
            let had = self.entries.remove(&file).is_some();
            match result {
                Ok(entry) => {
                    refreshed.read += 1;
                    self.entries.insert(file.clone(), entry);
                    changed.push(file);
                }
                Err(error) => {
                    refreshed.bad.push((file.clone(), error));
                    changed.extend(had.then_some(file));
                }
            }
        }
        self.find_copies(&mut refreshed.bad);
        refreshed.bad.sort_by(|a, b| a.0.cmp(&b.0));
        if let Err(line) = self.store(&changed) {
            refreshed.warning.get_or_insert(line);
        }
        refreshed
    }

    /// The runs, in the order of their start; of runs that are there twice, one.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let whole = self.entries.values().filter(|entry| self.copies.binary_search(&entry.run.file).is_err());
        let mut runs: Vec<Run> = whole.map(|entry| entry.run.clone()).collect();
        runs.sort_by(|a, b| (a.started_unix, &a.file).cmp(&(b.started_unix, &b.file)));
        runs
    }

    /// Drops the entries that are not wanted; their files.
    fn forget(&mut self, wanted: &BTreeMap<String, Labels>) -> Vec<String> {
        let gone: Vec<String> = self.entries.keys().filter(|file| !wanted.contains_key(*file)).cloned().collect();
        for file in &gone {
            self.entries.remove(file);
        }
        gone
    }

    /// The files with other labels than before, and those that must be read.
    fn stale(&mut self, wanted: &BTreeMap<String, Labels>) -> (Vec<String>, Vec<String>) {
        let known: Vec<(&String, Option<Stamp>)> =
            wanted.par_iter().map(|(file, _)| (file, Stamp::of(&self.dir.join(file)).ok())).collect();
        let (mut relabelled, mut stale) = (Vec::new(), Vec::new());
        for ((file, labels), (_, stamp)) in wanted.iter().zip(known) {
            match self.entries.get_mut(file) {
                Some(entry) if Some(entry.stamp) == stamp => {
                    relabelled.extend(entry.label(labels).then(|| file.clone()));
                }
                _ => stale.push(file.clone()),
            }
        }
        (relabelled, stale)
    }

    /// Reads documents, a few at a time.
    fn read(
        &mut self,
        files: &[String],
        wanted: &BTreeMap<String, Labels>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Vec<(String, Result<Entry, Error>)> {
        let names = Mutex::new(std::mem::take(&mut self.names));
        let done = AtomicUsize::new(0);
        let one = |file: &String| {
            let labels = wanted.get(file).cloned().unwrap_or_default();
            let mut result = entry(&self.dir, file, &labels);
            if let (Ok(entry), Ok(mut names)) = (&mut result, names.lock()) {
                names.share(entry);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, files.len());
            (file.clone(), result)
        };
        // A list of single files balances better than halves of the list, whose documents may differ in size.
        let read = files.par_iter().with_max_len(1).map(one).collect();
        self.names = names.into_inner().unwrap_or_default();
        read
    }

    /// Runs that are there twice: a simulation's are equal by design, others are refused but for the first.
    fn find_copies(&mut self, bad: &mut Vec<(String, Error)>) {
        let mut starts: BTreeMap<(u64, u64), Vec<&Entry>> = BTreeMap::new();
        for entry in self.entries.values() {
            starts.entry((entry.run.started_unix, entry.run.wall_ns)).or_default().push(entry);
        }
        self.copies.clear();
        for entries in starts.values() {
            for (at, entry) in entries.iter().enumerate() {
                let Some(first) = entries[..at].iter().find(|first| entry.is_copy(first)) else { continue };
                let file = &entry.run.file;
                if !entry.is_simulated() {
                    bad.push((file.clone(), read::copied(&self.dir.join(file), &self.dir.join(&first.run.file))));
                }
                self.copies.push(file.clone());
            }
        }
        self.copies.sort();
    }

    /// Writes the index if it is not as the file is.
    ///
    /// # Errors
    /// Why it stays in memory, in a line.
    fn store(&mut self, changed: &[String]) -> Result<(), String> {
        if !self.is_file || self.stored && changed.is_empty() {
            return Ok(());
        }
        let path = self.dir.join(INDEX);
        let saved = store::save(&path, &self.entries);
        self.stored = saved.is_ok();
        saved.map_err(|why| format!("cannot write {}: {why}; the documents are read again next time", path.display()))
    }
}

fn entry(dir: &Path, file: &str, labels: &Labels) -> Result<Entry, Error> {
    let path = dir.join(file);
    // Before it is read: a file that changes meanwhile is read again next time.
    let stamp = Stamp::of(&path).unwrap_or(Stamp { size: 0, modified_ns: 0, inode: 0 });
    // A campaign's documents are below their attempts; elsewhere the user's own folders may be made of links.
    let opened = match labels.element {
        Some(_) => open::below(dir, Path::new(file), read::MAX_DOCUMENT),
        None => open::found(&path, read::MAX_DOCUMENT),
    };
    let record = read::record_with(&path, opened, &mut Vec::new())?;
    let run = Run::of(&record, file, Labels::default());
    let mut entry = Entry { stamp, document_host: run.host.clone(), run };
    entry.label(labels);
    Ok(entry)
}

fn not_text(path: &Path) -> Error {
    Error::usage(format!("cannot use {}", path.display()), "its name is not UTF-8", "rename it")
}

#[cfg(test)]
mod tests;
