//! The runs of a folder of documents, with an index so that no document is read twice.
//!
//! The index is a cache in `vpmu-index.jsonl`: what is in it comes from the documents, and a document is read again unless size,
//! modification time and inode are those of the file that was read. An index that is absent, of another version or of no use costs time
//! and nothing else. It is loaded and kept only in a folder of this user's.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use results::error::Error;
use results::open;
use results::read;
use results::write::replace;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::run::{Labels, Run};

/// The file's name in the folder.
pub const INDEX: &str = "vpmu-index.jsonl";
/// First line, with the version of the lines *and* of what a document is reduced to: it grows with either.
const HEADER: &str = "{\"version\":6}\n";
/// Largest index that is loaded: that of some hundred thousand documents.
const MAX_INDEX: u64 = 1 << 30;

/// The runs of a folder's documents.
#[derive(Debug, Default)]
pub struct Indexed {
    /// The runs, in the order of their start; of runs that are there twice, one.
    pub runs: Vec<Run>,
    /// Documents that were read: the others were in the index.
    pub read: usize,
    /// Documents that cannot be used, in the order of their names. Each error is a line that names the file.
    pub bad: Vec<(String, Error)>,
    /// Fault of the index itself: one line. Runs are complete all the same.
    pub warning: Option<String>,
}

/// Size, modification time in ns and inode of a file that was read: it has not changed since if they are equal.
type Stamp = (u64, i64, u64);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let meta = std::fs::metadata(path)?;
    Ok((meta.size(), meta.mtime().wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec()), meta.ino()))
}

/// A line of the index: a document's run, and the file that it was read from.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    stamp: Stamp,
    run: Run,
}

/// Returns the runs of these documents: paths relative to the folder `dir`, with what a campaign says of each.
pub fn runs(dir: &Path, documents: impl IntoIterator<Item = (PathBuf, Labels)>) -> Indexed {
    let mut found = Indexed::default();
    let path = dir.join(INDEX);
    let is_own = std::fs::metadata(dir).is_ok_and(|meta| meta.uid() == geteuid().as_raw());
    let mut known = if is_own { load(&path).unwrap_or_default() } else { BTreeMap::new() };
    let wanted = documents.into_iter().map(|(path, labels)| (path.to_string_lossy().into_owned(), labels));
    let wanted: BTreeMap<String, Labels> = wanted.collect();
    let before = known.len();
    let stamps: Vec<Option<Stamp>> = wanted.par_iter().map(|(file, _)| stamp(&dir.join(file)).ok()).collect();
    let (mut entries, mut stale) = (Vec::new(), Vec::new());
    for ((file, labels), stamp) in wanted.into_iter().zip(stamps) {
        match known.remove(&file).filter(|entry| Some(entry.stamp) == stamp) {
            Some(entry) => entries.push(Entry { run: Run { labels, ..entry.run }, ..entry }),
            None => stale.push((file, labels)),
        }
    }
    let is_changed = entries.len() < before || !path.exists();
    let one = |(file, labels): (String, Labels)| (entry(dir, &file, labels), file);
    // A list of single files balances better than halves of the list, whose documents may differ in size.
    for (found_entry, file) in stale.into_par_iter().with_max_len(1).map(one).collect::<Vec<_>>() {
        match found_entry {
            Ok(entry) => {
                entries.push(entry);
                found.read += 1;
            }
            Err(error) => found.bad.push((file, error)),
        }
    }
    if is_own
        && (found.read > 0 || is_changed)
        && let Err(why) = save(&path, &entries)
    {
        let line = format!("cannot write {}: {why}; the documents are read again next time", path.display());
        found.warning = Some(line);
    }
    found.runs = entries.into_iter().map(|entry| entry.run).collect();
    found.runs.sort_by(|a, b| (a.started_unix, &a.file).cmp(&(b.started_unix, &b.file)));
    leave_out_copies(dir, &mut found);
    found.bad.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn entry(dir: &Path, file: &str, labels: Labels) -> Result<Entry, Error> {
    let path = dir.join(file);
    // The stamp is taken before the file is read, so that one that changes meanwhile is read again next time.
    let stamp = stamp(&path).unwrap_or_default();
    // A campaign's documents are below its folder, whatever an outcome says; elsewhere the user's own folders may be made of links.
    let opened = match labels.element {
        Some(_) => open::Folder::open(dir).and_then(|dir| dir.file(Path::new(file), read::MAX_DOCUMENT)),
        None => open::found(&path, read::MAX_DOCUMENT),
    };
    let record = read::of_file(&path, opened)?;
    Ok(Entry { stamp, run: Run::of(&record, file, labels) })
}

/// Leaves out runs that are there twice: a simulation's are equal by design, others are refused but for the first.
fn leave_out_copies(dir: &Path, found: &mut Indexed) {
    let mut kept: Vec<Run> = Vec::with_capacity(found.runs.len());
    let mut places: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    for run in std::mem::take(&mut found.runs) {
        // No two runs take the same time to the nanosecond.
        let same_time = places.entry((run.started_unix, run.wall_ns)).or_default();
        match same_time.iter().map(|place| &kept[*place]).find(|other| is_copy(&run, other)) {
            None => {
                same_time.push(kept.len());
                kept.push(run);
            }
            Some(_) if run.class().starts_with("simulated") => {}
            Some(first) => {
                let error = read::copied(&dir.join(&run.file), &dir.join(&first.file));
                found.bad.push((run.file, error));
            }
        }
    }
    found.runs = kept;
}

/// Returns whether two runs of one start and duration are the same.
///
/// Elements of a campaign are runs of their own, however alike: simulations of one seed are.
fn is_copy(run: &Run, other: &Run) -> bool {
    let elements = (run.labels.element, other.labels.element);
    let are_two = matches!(elements, (Some(one), Some(another)) if one != another);
    !are_two && run.key == other.key && run.figures == other.figures
}

/// Loads the index at `path`; nothing from one of another version or one that others can write to.
fn load(path: &Path) -> io::Result<BTreeMap<String, Entry>> {
    let file = open::found(path, MAX_INDEX)?;
    let meta = file.get_ref().metadata()?;
    let is_ours = meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0;
    let mut lines = BufReader::new(file);
    let mut first = String::new();
    lines.read_line(&mut first)?;
    if !is_ours || first != HEADER {
        return Ok(BTreeMap::new());
    }
    let entries = lines.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str::<Entry>(&line).ok());
    Ok(entries.map(|entry| (entry.run.file.clone(), entry)).collect())
}

/// Replaces the index at `path`, whole or not at all.
fn save(path: &Path, entries: &[Entry]) -> io::Result<()> {
    let line = |entry: &Entry| Ok(serde_json::to_string(entry)? + "\n");
    let lines: Vec<String> = entries.par_iter().map(line).collect::<io::Result<_>>()?;
    replace(path, (HEADER.to_owned() + &lines.concat()).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

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

    fn indexed(dir: &Path) -> Indexed {
        runs(dir, documents(dir))
    }

    /// Returns how many documents were read, given that the runs are those that the documents have and nothing went wrong.
    fn read_of(dir: &Path) -> usize {
        let found = indexed(dir);
        assert_eq!((found.warning, found.bad.len()), (None, 0));
        let direct = |(path, labels): (PathBuf, Labels)| {
            Run::of(&read::document(&dir.join(&path)).unwrap(), path.to_str().unwrap(), labels)
        };
        let mut direct: Vec<Run> = documents(dir).into_iter().map(direct).collect();
        direct.sort_by(|a, b| (a.started_unix, &a.file).cmp(&(b.started_unix, &b.file)));
        assert_eq!(found.runs, direct);
        found.read
    }

    #[test]
    fn nothing_is_read_twice_and_what_changed_is_read_again() {
        let dir = folder(9);
        assert_eq!((read_of(dir.path()), read_of(dir.path())), (9, 0));
        // One is changed, one removed, one added; rows of the others stay.
        fs::write(dir.path().join("003.json"), document(33, |_| {})).unwrap();
        fs::remove_file(dir.path().join("004.json")).unwrap();
        fs::write(dir.path().join("010.json"), document(10, |_| {})).unwrap();
        assert_eq!((read_of(dir.path()), read_of(dir.path())), (2, 0));
        // Another file of equal size and time.
        let (path, other) = (dir.path().join("005.json"), dir.path().join("other"));
        fs::copy(&path, &other).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(read_of(dir.path()), 1);
        // The labels are those of the last question.
        let labels = Labels { host: Some("x".to_owned()), repetition: Some(0), ..Labels::default() };
        let named = documents(dir.path()).into_iter().map(|(path, _)| (path, labels.clone()));
        let found = runs(dir.path(), named);
        assert!(found.read == 0 && found.runs.iter().all(|run| run.host() == "x" && run.labels == labels));
    }

    #[test]
    fn bad_documents_are_named_and_the_others_stay() {
        let dir = folder(5);
        fs::write(dir.path().join("002.json"), "{").unwrap();
        fs::write(dir.path().join("000.json"), document(9, |d| d["schema"] = json!("vpmu-result/2"))).unwrap();
        fs::copy(dir.path().join("001.json"), dir.path().join("copy.json")).unwrap();
        // Of a simulation, whose runs are equal by design, one counts.
        for name in ["sim1.json", "sim2.json"] {
            let text = document(0, |d| d["host"]["class"] = json!("simulated host"));
            fs::write(dir.path().join(name), text).unwrap();
        }
        for read in [4 + 1 + 2, 0] {
            let found = indexed(dir.path());
            let lines: Vec<String> = found.bad.iter().map(|(_, error)| error.to_string()).collect();
            assert_eq!((found.read, lines.len(), found.runs.len()), (read, 3, 5), "{lines:?}");
            assert!(lines[0].contains("000.json") && lines[0].contains("vpmu-result/2"), "{lines:?}");
            assert!(lines[1].contains("002.json") && lines[1].contains("EOF"), "{lines:?}");
            assert!(lines[2].contains("copy.json (of ") && lines[2].contains("001.json): a copy"), "{lines:?}");
        }
        // Mended, it is read; an absent one is named.
        fs::write(dir.path().join("002.json"), document(2, |_| {})).unwrap();
        let mut asked = documents(dir.path());
        asked.push((PathBuf::from("absent.json"), Labels::default()));
        let found = runs(dir.path(), asked);
        assert_eq!((found.read, found.bad.len(), found.runs.len()), (1, 3, 6));
        assert!(found.bad.iter().any(|(file, _)| file == "absent.json"));
    }

    #[test]
    fn an_index_of_no_use_is_made_anew() {
        let dir = folder(4);
        let path = dir.path().join(INDEX);
        assert_eq!(read_of(dir.path()), 4);
        let whole = fs::read_to_string(&path).unwrap();
        let other_version = whole.replacen("\"version\":6", "\"version\":3", 1);
        let torn = &whole[..whole.len() * 2 / 3];
        for (text, reads) in
            [(other_version.as_str(), 4..5), (torn, 1..4), (&whole.replacen("\"key\"", "key", 1), 1..2)]
        {
            fs::write(&path, text).unwrap();
            let read = read_of(dir.path());
            assert!(reads.contains(&read), "{read}");
            assert_eq!(read_of(dir.path()), 0);
        }
        // Others may have written what is in it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(read_of(dir.path()), 4);
    }

    #[test]
    fn a_folder_without_room_has_its_runs_and_a_warning() {
        let dir = folder(3);
        fs::create_dir(dir.path().join(INDEX)).unwrap();
        let found = indexed(dir.path());
        assert!(found.runs.len() == 3 && found.warning.is_some_and(|line| line.contains("cannot write")));
    }
}
