//! An index of a folder of documents, so that no document is read twice.
//!
//! It is a cache in `index.jsonl`: what is in it comes from the documents, and a document is read again unless size, modification
//! time and inode are those of the file that was read. Whatever happens to the index costs time and nothing else: one that is
//! damaged or of another version is made again, each line of it has a checksum, and where it cannot be written it is kept in
//! memory.

mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use self::store::{Entry, Found, Names, Stamp};
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

    /// Makes an index that is never written, nor read: for the folder of another user.
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

    /// Returns the runs, in the order of their start; of runs that are there twice, one.
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

    /// Lists the files with other labels than before, and those that must be read.
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
    let record = read::of_file(&path, opened)?;
    let run = Run::of(&record, file, Labels::default());
    let mut entry = Entry { stamp, document_host: run.host.clone(), run };
    entry.label(labels);
    Ok(entry)
}

fn not_text(path: &Path) -> Error {
    Error::usage(format!("cannot use {}", path.display()), "its name is not UTF-8", "rename it")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use serde_json::{Value, json};

    use super::*;
    use trials::fixture::value;

    fn document(at: u64, change: impl FnOnce(&mut Value)) -> String {
        let mut value = value(6, at, |arm, round| if arm == "floor" { 1000 + round } else { 2000 + 3 * round + at });
        value["host"]["name"] = json!(format!("n{}", at % 3));
        change(&mut value);
        value.to_string()
    }

    fn folder(count: u64) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for at in 1..=count {
            fs::write(dir.path().join(format!("{at:03}.json")), document(at, |_| {})).unwrap();
        }
        dir
    }

    fn documents(dir: &Path) -> Vec<(PathBuf, Labels)> {
        let all = read::files(dir).unwrap_or_default();
        all.iter().map(|path| (PathBuf::from(path.file_name().unwrap()), Labels::default())).collect()
    }

    fn refreshed(dir: &Path) -> (Index, Refreshed) {
        let mut index = Index::open(dir);
        let found = index.refresh(documents(dir), &|_, _| {});
        (index, found)
    }

    /// (read, unchanged, gone, bad), and that there is no warning.
    fn counts(dir: &Path) -> (usize, usize, usize, usize) {
        let found = refreshed(dir).1;
        assert_eq!(found.warning, None);
        (found.read, found.unchanged, found.gone, found.bad.len())
    }

    /// Reads the runs from the documents, without an index.
    fn directly(dir: &Path) -> Vec<Run> {
        let of = |(path, labels): (PathBuf, Labels)| {
            Run::of(&read::record(&dir.join(&path)).unwrap(), path.to_str().unwrap(), labels)
        };
        let mut runs: Vec<Run> = documents(dir).into_iter().map(of).collect();
        runs.sort_by(|a, b| (a.started_unix, &a.file).cmp(&(b.started_unix, &b.file)));
        runs
    }

    #[test]
    fn nothing_is_read_twice_and_what_changed_is_read_again() {
        let dir = folder(9);
        let progress = Mutex::new(Vec::new());
        let mut index = Index::open(dir.path());
        let found = index.refresh(documents(dir.path()), &|done, all| progress.lock().unwrap().push((done, all)));
        assert_eq!((found.read, found.unchanged, found.bad.len(), found.warning), (9, 0, 0, None));
        assert_eq!(progress.lock().unwrap().iter().max(), Some(&(9, 9)));
        assert_eq!(index.runs(), directly(dir.path()));
        assert_eq!(counts(dir.path()), (0, 9, 0, 0));
        assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
        // One is changed, one removed, one added; rows of the others stay.
        fs::write(dir.path().join("003.json"), document(33, |_| {})).unwrap();
        fs::remove_file(dir.path().join("004.json")).unwrap();
        fs::write(dir.path().join("010.json"), document(10, |_| {})).unwrap();
        assert_eq!(counts(dir.path()), (2, 7, 1, 0));
        assert_eq!(counts(dir.path()), (0, 8 + 1, 0, 0));
        assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
        // Another file of equal size and time.
        let (path, other) = (dir.path().join("005.json"), dir.path().join("other"));
        fs::copy(&path, &other).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(counts(dir.path()), (1, 8, 0, 0));
    }

    #[test]
    fn labels_are_those_of_the_last_refresh() {
        let dir = folder(5);
        refreshed(dir.path());
        let labels = |host: &str| Labels {
            host: Some(host.to_owned()),
            element: Some(7),
            variant: Some("a".to_owned()),
            repetition: Some(0),
        };
        for host in ["x", "y"] {
            let mut index = Index::open(dir.path());
            let named = documents(dir.path()).into_iter().map(|(path, _)| (path, labels(host)));
            assert_eq!(index.refresh(named, &|_, _| {}).read, 0);
            assert!(index.runs().iter().all(|run| &*run.host == host && run.labels == labels(host)));
        }
        assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
    }

    #[test]
    fn bad_documents_are_named_and_the_others_stay() {
        let dir = folder(5);
        fs::write(dir.path().join("002.json"), "{").unwrap();
        fs::write(dir.path().join("000.json"), document(9, |d| d["schema"] = json!("vpmu-result/2"))).unwrap();
        fs::copy(dir.path().join("001.json"), dir.path().join("copy.json")).unwrap();
        for read in [4 + 1, 0] {
            let (index, found) = refreshed(dir.path());
            let lines: Vec<String> = found.bad.iter().map(|(_, error)| error.to_string()).collect();
            assert_eq!((found.read, lines.len()), (read, 3), "{lines:?}");
            assert!(lines[0].contains("000.json") && lines[0].contains("newer"), "{lines:?}");
            assert!(lines[1].contains("002.json") && lines[1].contains("truncated"), "{lines:?}");
            assert!(lines[2].contains("copy.json: it is a copy of") && lines[2].contains("001.json"), "{lines:?}");
            assert_eq!(index.runs().len(), 4);
        }
        // Mended, it is read; an absent one is named.
        fs::write(dir.path().join("002.json"), document(2, |_| {})).unwrap();
        let mut asked = documents(dir.path());
        asked.push((PathBuf::from("absent.json"), Labels::default()));
        let mut index = Index::open(dir.path());
        let found = index.refresh(asked, &|_, _| {});
        assert_eq!((found.read, found.bad.len(), index.runs().len()), (1, 3, 5));
        assert!(found.bad.iter().any(|(file, _)| file == "absent.json"));
    }

    #[test]
    fn runs_of_one_simulation_count_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.json", "b.json"] {
            let text = document(0, |d| d["host"]["class"] = json!("simulated host"));
            fs::write(dir.path().join(name), text).unwrap();
        }
        let (index, found) = refreshed(dir.path());
        assert_eq!((found.read, found.bad.len(), index.runs().len()), (2, 0, 1));
    }

    #[test]
    fn whatever_happens_to_the_index_the_runs_are_those_of_the_documents() {
        let dir = folder(6);
        let path = dir.path().join(INDEX);
        refreshed(dir.path());
        let whole = fs::read(&path).unwrap();
        let wanted = directly(dir.path());
        // Truncated and damaged in many places.
        let mut reread = 0;
        for step in 0..60 {
            let mut bytes = whole.clone();
            if step % 4 == 0 {
                bytes.truncate(bytes.len() * step / 60);
            } else {
                let at = (step * 7919 * 31) % bytes.len();
                bytes[at..].iter_mut().take(step % 17 + 1).for_each(|byte| *byte = byte.wrapping_add(1));
            }
            fs::write(&path, &bytes).unwrap();
            let (index, found) = refreshed(dir.path());
            assert_eq!(index.runs(), wanted, "step {step}");
            assert!(found.bad.is_empty());
            reread += found.read;
            if found.warning.is_none_or(|warning| !warning.contains("is no index of vpmu")) {
                assert_eq!(counts(dir.path()).0, 0, "step {step}");
            }
        }
        assert!(reread > 90, "{reread}");
    }

    #[test]
    fn an_index_that_says_something_else_is_not_believed() {
        let dir = folder(4);
        let path = dir.path().join(INDEX);
        for (from, to, read) in [
            ("\"rounds\":6", "\"rounds\":7", 1),
            ("\"kernel\":\"", "\"kernel\":\"x", 1),
            ("002.json", "005.json", 1),
            ("\"started_unix\":1,", "\"started_unix\":7,", 1),
            ("\"version\":2", "\"version\":3", 4),
            ("]\n[", "] [", 2),
            ("\"version\":2}\n", "\"version\":2}", 4),
        ] {
            refreshed(dir.path());
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{from}");
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let (index, found) = refreshed(dir.path());
            assert_eq!(found.read, read, "{to}");
            assert_eq!(index.runs(), directly(dir.path()), "{to}");
            assert_eq!(counts(dir.path()).0, 0, "{to}");
        }
    }

    #[test]
    fn an_index_that_others_may_write_to_is_not_believed() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = folder(2);
        refreshed(dir.path());
        let index = dir.path().join(INDEX);
        assert_eq!(refreshed(dir.path()).1.read, 0);
        fs::set_permissions(&index, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(refreshed(dir.path()).1.read, 2, "documents are read again");
    }

    #[test]
    fn another_programs_file_stays_as_it_is() {
        let dir = folder(3);
        let path = dir.path().join(INDEX);
        let before = b"{\"mine\":1}\n";
        fs::write(&path, before).unwrap();
        for _ in 0..2 {
            let (index, found) = refreshed(dir.path());
            assert_eq!((index.runs().len(), found.read), (3, 3));
            assert!(
                found.warning.is_some_and(|line| line.contains("is no index of vpmu") && line.contains("remove it"))
            );
            assert!(fs::read(&path).unwrap() == before);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(refreshed(dir.path()).0.runs().len(), 3);
    }

    #[test]
    fn a_folder_that_cannot_be_written_has_its_runs_and_a_warning() {
        let dir = folder(3);
        let mut index = Index::open(dir.path());
        let asked = documents(dir.path());
        // A folder that is gone is one that nobody can write to, not even root.
        let elsewhere = dir.path().with_extension("elsewhere");
        index.dir = dir.path().join("none");
        let absolute = asked.iter().map(|(path, labels)| (dir.path().join(path), labels.clone()));
        let found = index.refresh(absolute, &|_, _| {});
        assert_eq!((found.read, found.bad.len(), index.runs().len()), (3, 0, 3));
        assert!(found.warning.is_some_and(|line| line.contains("cannot write")));
        assert!(!elsewhere.exists());
    }

    /// The variable by which the test below finds itself to be a collector of its own.
    const COLLECTOR: &str = "VPMU_TEST_COLLECTOR";
    const ROUNDS: usize = 15;

    #[test]
    fn two_collectors_at_once_lose_nothing() {
        if let Some(dir) = std::env::var_os(COLLECTOR) {
            let dir = PathBuf::from(dir);
            for _ in 0..ROUNDS {
                let (index, found) = refreshed(&dir);
                assert_eq!((found.warning, found.bad.len()), (None, 0));
                assert!(index.runs().len() >= 20);
            }
            return;
        }
        let dir = folder(20);
        let name = "index::tests::two_collectors_at_once_lose_nothing";
        let collector = || {
            let program = std::env::current_exe().unwrap();
            Command::new(program).args(["--exact", name]).env(COLLECTOR, dir.path()).output()
        };
        std::thread::scope(|scope| {
            let both = [scope.spawn(collector), scope.spawn(collector)];
            for at in 21..=40 {
                // As results are written: whole or not at all.
                results::write::replace(&dir.path().join(format!("{at:03}.json")), document(at, |_| {}).as_bytes())
                    .unwrap();
            }
            for one in both {
                let output = one.join().unwrap().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            }
        });
        assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let others: Vec<String> =
            names.filter(|name| Path::new(name).extension().is_none_or(|extension| extension != "json")).collect();
        assert_eq!(others, [INDEX]);
    }
}
