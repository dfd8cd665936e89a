//! Reading documents back. A file is not trusted: what is wrong with it is an error in one line that names the file.
//!
//! [`record`] reads a document of any experiment, [`document`] one with its experiment's own types. Both are the types' own derived
//! reader, and make the same checks. [`gather`] reads a file, a folder, or the baseline of that name.
//! Nothing is skipped: a folder with one bad document is a bad folder.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Deserialize;

use crate::document::{Document, Experiment, Record, SCHEMA};
use crate::error::Error;
use crate::open::{self, Bounded};
use crate::sweep;

/// Largest result document that is read.
pub const MAX_DOCUMENT: u64 = 64 << 20;
/// The folder of baselines within a results folder.
pub const BASELINES: &str = "baselines";
/// Most documents of one folder, which are in memory together: default ones take 4 GiB.
pub const MAX_DOCUMENTS: usize = 20_000;
/// Longest name of a baseline.
const MAX_NAME: usize = 64;
/// Remedy for a file that is no result.
const NOT_OURS: &str = "give the result of a run by this version of vpmu";

/// Reads and checks one document of any experiment.
///
/// # Errors
/// Exit 2: unreadable, too large, no result of this version, or contradicting itself.
pub fn record(path: &Path) -> Result<Record, Error> {
    document(path)
}

/// Reads and checks one document with the types of its experiment.
///
/// # Errors
/// Returns the errors of [`record`], and a document of another experiment.
pub fn document<E: Experiment>(path: &Path) -> Result<Document<E>, Error> {
    of_file(path, open::named(path, MAX_DOCUMENT))
}

/// Reads a file that was [found](open::found) in a folder, with the types of its experiment.
///
/// # Errors
/// Returns the errors of [`document`], and a file that is not regular.
pub fn found<E: Experiment>(path: &Path) -> Result<Document<E>, Error> {
    of_file(path, open::found(path, MAX_DOCUMENT))
}

/// Reads one document of a file that is open.
///
/// # Errors
/// Returns the errors of [`document`].
pub fn of_file<E: Experiment>(path: &Path, file: io::Result<Bounded>) -> Result<Document<E>, Error> {
    let text = file.and_then(open::text).map_err(|error| {
        let absent = error.kind() == io::ErrorKind::NotFound;
        refuse(path, error.to_string(), if absent { "measure first, or give the path of a result" } else { NOT_OURS })
    })?;
    of_text(path, &text)
}

/// Makes a document of what `path` holds, and checks it.
///
/// # Errors
/// Returns the errors of [`document`] but those of the file.
pub fn of_text<E: Experiment>(path: &Path, text: &str) -> Result<Document<E>, Error> {
    if text.is_empty() {
        return Err(refuse(path, "it is empty", NOT_OURS));
    }
    let wrong = || refuse(path, why_not::<E>(text), NOT_OURS);
    let mut document: Document<E> = serde_json::from_str(text).map_err(|_| wrong())?;
    if document.schema != SCHEMA {
        return Err(wrong());
    }
    path.clone_into(&mut document.path);
    check(&document).map_err(|why| refuse(path, why, NOT_OURS))?;
    Ok(document)
}

/// The field that tells a result from other files.
#[derive(Deserialize)]
struct Kind {
    schema: String,
}

/// Says why a text is no document of the experiment.
fn why_not<E: Experiment>(text: &str) -> String {
    match serde_json::from_str::<Kind>(text) {
        Ok(Kind { schema }) if schema != SCHEMA => return format!("its schema is {schema}, and not {SCHEMA}"),
        Err(error) if error.is_data() => return "it has no \"schema\"".to_owned(),
        Err(error) => return format!("it is not JSON: {error}"),
        Ok(_) => {}
    }
    let found = serde_path_to_error::deserialize::<_, Document<E>>(&mut serde_json::Deserializer::from_str(text));
    found.err().map_or_else(String::new, |error| match error.path().to_string().as_str() {
        "." => error.inner().to_string(),
        key => format!("{key}: {}", error.inner()),
    })
}

/// # Errors
/// What would make a figure wrong: arms that one name stands for, rounds that are not in order.
fn check<E: Experiment>(document: &Document<E>) -> Result<(), String> {
    if document.arms.is_empty() {
        return Err("it has no arms".to_owned());
    }
    if document.host.model_percent.is_some_and(|[low, high]| low == 0 || low > 100 || high < 100) {
        return Err("host.model_percent is no range around 100 %".to_owned());
    }
    let mut names = BTreeSet::new();
    for arm in &document.arms {
        if !names.insert(&arm.name) {
            return Err(format!("duplicate arm {}", arm.name));
        }
        if !arm.rounds.index.is_sorted_by(|a, b| a < b) {
            return Err(format!("arm {}: its rounds are not in order", arm.name));
        }
    }
    Ok(())
}

/// Exit 2 for a file or folder.
fn refuse(path: &Path, why: impl Into<String>, remedy: &str) -> Error {
    Error::usage(format!("cannot use {}", path.display()), why, remedy)
}

/// Checks a baseline's name: it becomes a folder's.
///
/// # Errors
/// A name that may not be used.
pub fn check_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!(
            "a baseline's name has 1 to {MAX_NAME} of a-z, A-Z, 0-9, '.', '_' and '-', and begins with none of '.'"
        ));
    }
    Ok(name.to_owned())
}

/// Returns the folder of a baseline's documents.
pub fn baseline_folder(results: &Path, name: &str) -> PathBuf {
    results.join(BASELINES).join(name)
}

/// The documents of a file, of a folder, or of the baseline of that name in `results`, in the order of their start.
/// An existing path goes before a baseline of the same name. Documents are as from [`folder`].
///
/// # Errors
/// Exit 2: there is no such thing, or one of its documents is bad.
pub fn gather(source: &str, results: &Path) -> Result<Vec<Record>, Error> {
    let path = Path::new(source);
    if path.is_dir() {
        return folder(path);
    }
    if path.exists() {
        return record(path).map(|record| vec![record]);
    }
    let name = check_name(source).ok();
    match name.map(|name| baseline_folder(results, &name)).filter(|dir| dir.is_dir()) {
        Some(dir) => folder(&dir),
        None => {
            let baselines = results.join(BASELINES);
            Err(Error::usage(
                format!("no result {source}"),
                format!("there is no such file, folder, or baseline in {}", baselines.display()),
                "vpmu --save-baseline NAME makes a baseline",
            ))
        }
    }
}

/// Every `.json` of a folder, and of none below it, in the order of names.
///
/// # Errors
/// Exit 2: the folder cannot be read, or has no document.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: io::Error| refuse(dir, error.to_string(), "give a folder of results");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        // A sweep leaves its front beside its lines: no result.
        let front = path.file_name().is_some_and(|name| name == sweep::FRONT) && dir.join(sweep::FILE).exists();
        if !hidden && !front && path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(refuse(dir, "it has no .json in it", "give the folder that vpmu -o DIR wrote to"));
    }
    paths.sort();
    Ok(paths)
}

/// Every document of a folder ([`files`]), in the order of their start, each read as by [`record`].
///
/// # Errors
/// Exit 2: no document, too many, a bad one, or one that is there twice.
pub fn folder(dir: &Path) -> Result<Vec<Record>, Error> {
    let (records, left_out) = folder_beside(dir)?;
    left_out.into_iter().next().map_or(Ok(records), |(_, why)| Err(why))
}

/// A document of a folder that is left out, and why.
pub type LeftOut = (PathBuf, Error);

/// Reads the documents of a folder as [`folder`] does, and says which are left out beside at least one that is sound.
///
/// # Errors
/// As [`folder`], but for bad ones beside sound ones.
pub fn folder_beside(dir: &Path) -> Result<(Vec<Record>, Vec<LeftOut>), Error> {
    let paths = files(dir)?;
    if paths.len() > MAX_DOCUMENTS {
        let count = paths.len();
        return Err(refuse(
            dir,
            format!("{count} documents are more than {MAX_DOCUMENTS}"),
            "split the folder, or take --by-host",
        ));
    }
    let read = paths.par_iter().map(|path| found(path)).collect::<Vec<_>>();
    let (mut records, mut left_out) = (Vec::new(), Vec::new());
    for (path, record) in paths.iter().zip(read) {
        match record {
            Ok(record) => records.push(record),
            Err(why) => left_out.push((path.clone(), why)),
        }
    }
    // The first bad one in order of names, whichever thread met its own first.
    if records.is_empty() && !left_out.is_empty() {
        return Err(left_out.swap_remove(0).1);
    }
    records.sort_by(|a: &Record, b: &Record| (a.started_unix, &a.path).cmp(&(b.started_unix, &b.path)));
    // Runs of one simulation are equal to the byte: one of them is all of them.
    records.dedup_by(|b, a| a.is_simulated() && is_copy(a, b));
    for pair in records.windows(2) {
        let [a, b] = pair else { continue };
        if is_copy(a, b) {
            return Err(copied(&b.path, &a.path));
        }
    }
    Ok((records, left_out))
}

/// The refusal of a document that is there twice.
pub fn copied(path: &Path, first: &Path) -> Error {
    refuse(path, format!("it is a copy of {}", first.display()), "remove one: rounds must not count twice")
}

/// Returns whether both are the same run: no two runs take the same time to the nanosecond.
fn is_copy(a: &Record, b: &Record) -> bool {
    a.started_unix == b.started_unix && a.wall_ns == b.wall_ns && a.experiment == b.experiment && a.arms == b.arms
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::document::Any;
    use crate::fixture;

    /// A good document, changed.
    fn changed(change: impl FnOnce(&mut Value)) -> String {
        let mut value = fixture::spread(&fixture::document(3));
        change(&mut value);
        value.to_string()
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_reason() {
        type Change = fn(&mut Value);
        let whole = changed(|_| {});
        let changes: [(&str, Change); 9] = [
            ("its schema is vpmu-result/1, and not vpmu-result/2", |d| d["schema"] = json!("vpmu-result/1")),
            ("host: missing field `class`", |d| drop(d["host"].as_object_mut().unwrap().remove("class"))),
            ("arms[0]", |d| d["arms"][0]["nmis"] = json!(1e29)),
            ("arms[0].metrics.nmi_handler_ns.p50: invalid value: integer `-5`", |d| {
                d["arms"][0]["metrics"]["nmi_handler_ns"]["p50"] = json!(-5);
            }),
            ("arms[0].rounds: opens has 2 values for 3 rounds", |d| d["arms"][0]["rounds"]["opens"] = json!([1, 2])),
            ("arms[0].rounds: exit_path_ns: p50 has 2 values for 3", |d| {
                d["arms"][0]["rounds"]["metrics"]["exit_path_ns"]["p50"] = json!([1, 1]);
            }),
            ("no arms", |d| d["arms"] = json!([])),
            ("duplicate arm", |d| d["arms"][1] = d["arms"][0].clone()),
            ("not in order", |d| d["arms"][0]["rounds"]["round"][1] = json!(0)),
        ];
        let texts = [
            (String::new(), "it is empty"),
            (whole[..whole.len() / 2].to_owned(), "not JSON: EOF"),
            ("{\"schema\": \"vpmu-ab/2\"}".to_owned(), "vpmu-ab/2"),
        ];
        let changes = changes.into_iter().map(|(needle, change)| (changed(change), needle));
        for (text, needle) in changes.chain(texts) {
            let (_dir, path) = written(&text);
            let error = record(&path).unwrap_err();
            let line = error.to_string();
            assert!(error.exit.code() == 2 && line.contains("x.json") && !line.contains('\n'), "{line}");
            assert!(line.contains(needle), "{line} lacks {needle}");
        }
    }

    #[test]
    fn a_folder_is_all_of_it_or_nothing() {
        let (dir, path) = written(&changed(|_| {}));
        std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        std::fs::create_dir(dir.path().join(BASELINES)).unwrap();
        assert_eq!(folder(dir.path()).unwrap().len(), 1);
        let copy = dir.path().join("y.json");
        std::fs::copy(&path, &copy).unwrap();
        assert!(folder(dir.path()).unwrap_err().to_string().contains("a copy of"));
        std::fs::write(&copy, changed(|d| d["started_unix"] = json!(5))).unwrap();
        let both = folder(dir.path()).unwrap();
        assert_eq!((both.len(), both[0].started_unix), (2, 5));
        for bad in ["{\"schema\": \"vpmu-ab/2\"}", "{\"schema\": \"vpmu-result/2\"}", "{\"name\": \"x\"}", "{"] {
            std::fs::write(&copy, bad).unwrap();
            assert!(folder(dir.path()).unwrap_err().to_string().contains("y.json"), "{bad}");
        }
        assert!(folder(&dir.path().join(BASELINES)).unwrap_err().to_string().contains("no .json"));
    }

    #[test]
    fn a_name_is_a_baseline_unless_a_path_is_there() {
        let (dir, path) = written(&changed(|_| {}));
        let results = dir.path();
        let baseline = baseline_folder(results, "v1.0");
        std::fs::create_dir_all(&baseline).unwrap();
        std::fs::copy(&path, baseline.join("nmi-latency.json")).unwrap();
        assert_eq!(gather("v1.0", results).unwrap().len(), 1);
        assert_eq!(gather(path.to_str().unwrap(), results).unwrap().len(), 1);
        for bad in ["none", "../x", "a/b", ""] {
            assert!(gather(bad, results).unwrap_err().to_string().contains("baseline"), "{bad}");
        }
        for bad in ["", ".x", "a/b", "a b", "ä"] {
            assert!(check_name(bad).is_err());
        }
    }

    #[test]
    fn what_would_block_in_a_folder_is_refused_and_links_to_documents_are_followed() {
        let (dir, path) = written(&changed(|_| {}));
        let folders = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&path, folders.path().join("link.json")).unwrap();
        assert_eq!(folder(folders.path()).unwrap().len(), 1);
        let fifo = dir.path().join("a.json");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        for error in [folder(dir.path()).unwrap_err(), found::<Any>(&fifo).unwrap_err()] {
            assert!(error.to_string().contains("it is a FIFO, not a regular file"), "{error}");
            assert_eq!(error.exit.code(), 2);
        }
    }
}
