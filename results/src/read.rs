//! Reading documents back. A file is not trusted: what is wrong with it is an error in one line that names the file.
//!
//! [`document`] reads a document of any experiment, or one with its experiment's own types: these have a derived reader. [`gather`] reads a file, a folder, or the baseline of that name. What is no sound result in a
//! folder is left out beside those that are, and named; nothing is passed without it ([`ends`]) unless it is [foreign](is_foreign).

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::Value;

use crate::document::{Document, Experiment, Record, SCHEMA};
use crate::error::{Error, Exit};
use crate::open::{self, Bounded};
use crate::table::ranking::by_reason;

/// Largest result document that is read.
pub const MAX_DOCUMENT: u64 = 64 << 20;
/// Folder of results, unless another is given.
pub const RESULTS: &str = "vpmu-results";
/// The folder of baselines within a results folder.
const BASELINES: &str = "baselines";
/// Most documents of one folder, which are in memory together: default ones take 4 GiB.
pub const MAX_DOCUMENTS: usize = 20_000;
/// Longest name of a baseline.
const MAX_NAME: usize = 64;

/// Reads and checks one document, as one of any experiment ([`Record`]) or with the types of its own.
///
/// # Errors
/// Exit 2: unreadable, too large, no result of this version, of another experiment, or contradicting itself.
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
    of_text(path, &file.and_then(open::text).map_err(|error| refuse(path.display(), error.to_string()))?)
}

/// Makes a document of what `path` holds, and checks it.
///
/// # Errors
/// Returns the errors of [`document`] but those of the file.
pub fn of_text<E: Experiment>(path: &Path, text: &str) -> Result<Document<E>, Error> {
    let read = serde_json::from_str(text).or_else(|_| {
        // The slower reader says where it fails, which of another schema says nothing.
        let found = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text));
        let other = || serde_json::from_str::<Value>(text).ok().and_then(|value| other_schema(&value["schema"]));
        found.map_err(|error| refuse(path.display(), other().unwrap_or_else(|| error.to_string())))
    });
    let mut document: Document<E> = read?;
    path.clone_into(&mut document.path);
    check(&document).map_err(|why| refuse(path.display(), why))?;
    Ok(document)
}

/// # Errors
/// What would make a figure wrong: another schema, arms that one name stands for, rounds that are not in order.
fn check<E: Experiment>(document: &Document<E>) -> Result<(), String> {
    let mut names = BTreeSet::new();
    if let Some(why) = other_schema(&document.schema.as_str().into()) {
        return Err(why);
    } else if document.arms.is_empty() {
        return Err("it has no arms".to_owned());
    } else if let Some(arm) = document.arms.iter().find(|arm| !names.insert(&arm.name)) {
        return Err(format!("duplicate arm {}", arm.name));
    }
    if document.host.model_percent.is_some_and(|[low, high]| low == 0 || low > 100 || high < 100) {
        return Err("host.model_percent is no range around 100 %".to_owned());
    }
    match document.arms.iter().find(|arm| !arm.rounds.index.is_sorted_by(|a, b| a < b)) {
        Some(arm) => Err(format!("arm {}: its rounds are not in order", arm.name)),
        None => Ok(()),
    }
}

/// Returns why a document of this schema cannot be read.
fn other_schema(schema: &Value) -> Option<String> {
    let name = schema.as_str().map_or_else(|| schema.to_string(), str::to_owned);
    (!schema.is_null() && name != SCHEMA).then(|| format!("its schema is {name}, and not {SCHEMA}"))
}

/// How a refusal begins.
const CANNOT_USE: &str = "cannot use ";

/// Exit 2 for a file or folder.
fn refuse(path: impl Display, why: impl Into<String>) -> Error {
    Error::usage(
        format!("{CANNOT_USE}{path}"),
        why,
        "give a result of this version of vpmu: a file, a folder, or a baseline's name",
    )
}

/// Checks a baseline's name: it becomes a folder's.
///
/// # Errors
/// A name that may not be used.
pub fn check_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!("a baseline's name has 1 to {MAX_NAME} of a-z, A-Z, 0-9, '.', '_', '-', and no '.' first"));
    }
    Ok(name.to_owned())
}

/// Returns the folder of a baseline's documents.
pub fn baseline_folder(results: &Path, name: &str) -> PathBuf {
    results.join(BASELINES).join(name)
}

/// Documents, and others beside them.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that are sound.
    pub records: Vec<Record>,
    /// Why others are left out.
    pub left_out: Vec<Error>,
    /// Those of them that are not [foreign](is_foreign): figures that may have changed the end.
    pub unsound: usize,
}

/// Returns whether what cannot be used is no regular file, or whole JSON of something else than a result.
pub fn is_foreign(path: &Path) -> bool {
    let bytes = open::found_bytes(path, MAX_DOCUMENT).ok();
    let value = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let name = SCHEMA.trim_end_matches(char::is_numeric);
    let is_file =
        std::fs::metadata(path).map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |meta| meta.is_file());
    !is_file || value.is_some_and(|value| !value["schema"].as_str().is_some_and(|schema| schema.starts_with(name)))
}

/// Lowers the end of a command by the results that it had to leave out: nothing is a pass without them.
pub fn ends(exit: Exit, unsound: usize) -> Exit {
    if unsound > 0 && exit == Exit::Done { Exit::Inconclusive } else { exit }
}

/// The documents of a file, of a folder, or of the baseline of that name, in the order of their start. An existing path goes before a
/// baseline of the same name. Documents are as from [`folder`].
///
/// # Errors
/// Exit 2: there is no such thing, or nothing in it is sound.
pub fn gather(source: &Path) -> Result<Found, Error> {
    let baseline = baseline_folder(Path::new(RESULTS), &source.to_string_lossy());
    let is_name = !source.exists() && check_name(&source.to_string_lossy()).is_ok();
    if source.is_dir() {
        folder(source)
    } else if is_name && baseline.is_dir() {
        folder(&baseline)
    } else if is_name {
        let why = format!("neither it nor {} exists", baseline.display());
        let remedy = "give the path of a result or of a folder; with -o DIR a baseline is DIR/baselines/NAME";
        Err(Error::usage(format!("cannot use {}", source.display()), why, remedy))
    } else {
        Ok(Found { records: vec![document(source)?], ..Found::default() })
    }
}

/// Every `.json` of a folder, and of none below it, in the order of names.
///
/// # Errors
/// Exit 2: the folder cannot be read, or has no document.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: io::Error| refuse(dir.display(), error.to_string());
    let entries = std::fs::read_dir(dir).map_err(unreadable)?;
    let mut paths = entries.map(|entry| Ok(entry.map_err(unreadable)?.path())).collect::<Result<Vec<_>, Error>>()?;
    let is_hidden = |path: &Path| path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    paths.retain(|path| !is_hidden(path) && path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    if paths.is_empty() { Err(refuse(dir.display(), "it has no result in it")) } else { Ok(paths) }
}

/// Every sound document of a folder ([`files`]), in the order of their start, each read as by [`document`] and once. Runs of one
/// simulation are equal to the byte: one of them is all of them.
///
/// # Errors
/// Exit 2: no document, too many, or no sound one.
pub fn folder(dir: &Path) -> Result<Found, Error> {
    let paths = files(dir)?;
    if paths.len() > MAX_DOCUMENTS {
        let why = format!("{} documents are more than {MAX_DOCUMENTS}", paths.len());
        return Err(Error::usage(
            format!("cannot use {}", dir.display()),
            why,
            "split it, or `vpmu compare --by-host`",
        ));
    }
    let (mut left_out, mut unsound, mut read) = (Vec::new(), 0, Vec::<Record>::new());
    for (path, one) in paths.iter().zip(paths.par_iter().map(|path| found(path)).collect::<Vec<_>>()) {
        match one {
            Ok(record) => read.push(record),
            Err(why) => {
                unsound += usize::from(!is_foreign(path));
                left_out.push(why);
            }
        }
    }
    read.sort_by(|a, b| (a.started_unix, &a.path).cmp(&(b.started_unix, &b.path)));
    let mut records: Vec<Record> = Vec::with_capacity(read.len());
    for record in read {
        match records.last().filter(|last| is_copy(last, &record)) {
            None => records.push(record),
            // Its figures are there.
            Some(last) if !record.is_simulated() => left_out.push(copied(&record.path, &last.path)),
            Some(_) => {}
        }
    }
    if records.is_empty() { Err(left_out.swap_remove(0)) } else { Ok(Found { records, left_out, unsound }) }
}

/// The refusal of a document that is there twice.
pub fn copied(path: &Path, first: &Path) -> Error {
    refuse(format!("{} (of {})", path.display(), first.display()), "a copy")
}

/// Says which documents are left out, those of one reason in a line; `all`: it names all of them.
pub fn left_out<'a>(refused: impl IntoIterator<Item = &'a Error>, all: bool) -> Vec<String> {
    let pair = |Error { what, why, .. }: &'a Error| (what.strip_prefix(CANNOT_USE).unwrap_or(what), why);
    by_reason(refused.into_iter().map(pair), all)
}

/// Returns whether both are the same run: no two runs take the same time to the nanosecond.
pub(crate) fn is_copy(a: &Record, b: &Record) -> bool {
    a.started_unix == b.started_unix && a.wall_ns == b.wall_ns && a.experiment == b.experiment && a.arms == b.arms
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    /// A good document, changed.
    fn changed(change: impl FnOnce(&mut Value)) -> String {
        let mut value = fixture::value(3, 7, |_, _| 1000);
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
    fn a_name_with_a_colon_is_one_name() {
        assert_eq!(left_out(&["x: y", "z"].map(|path| refuse(path, "a copy")), false), ["x: y and z: a copy"]);
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_reason() {
        type Change = fn(&mut Value);
        let whole = changed(|_| {});
        let changes: [(&str, Change); 9] = [
            ("its schema is vpmu-result/2, and not vpmu-result/4", |d| d["schema"] = json!("vpmu-result/2")),
            ("host: missing field `class`", |d| drop(d["host"].as_object_mut().unwrap().remove("class"))),
            ("arms[0].metrics.nmi_handler_ns.p50: invalid value: integer `-5`", |d| {
                d["arms"][0]["metrics"]["nmi_handler_ns"]["p50"] = json!(-5);
            }),
            ("arms[0].rounds: opens has 2 values for 3 rounds", |d| d["arms"][0]["rounds"]["opens"] = json!([1, 2])),
            ("arms[0].rounds: metrics.exit_path_ns.p50 has 2 values for 3", |d| {
                d["arms"][0]["rounds"]["metrics"]["exit_path_ns"]["p50"] = json!([1, 1]);
            }),
            ("no range around 100 %", |d| d["host"]["model_percent"] = json!([0, 0])),
            ("no arms", |d| d["arms"] = json!([])),
            ("duplicate arm", |d| d["arms"][1] = d["arms"][0].clone()),
            ("not in order", |d| d["arms"][0]["rounds"]["round"][1] = json!(0)),
        ];
        let texts = [
            (whole[..whole.len() / 2].to_owned(), "EOF"),
            ("{\"schema\": 99}".to_owned(), "its schema is 99, and not"),
        ];
        let changes = changes.into_iter().map(|(needle, change)| (changed(change), needle));
        for (text, needle) in changes.chain(texts) {
            let (_dir, path) = written(&text);
            let error = document::<crate::document::Any>(&path).unwrap_err();
            let line = error.to_string();
            assert!(
                error.exit.code() == 2 && line.contains("x.json") && line.contains(needle),
                "{line} lacks {needle}"
            );
        }
    }

    #[test]
    fn what_is_no_sound_result_of_a_folder_is_left_out_by_name() {
        let (dir, path) = written(&changed(|_| {}));
        std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        std::fs::create_dir(dir.path().join(BASELINES)).unwrap();
        let copy = dir.path().join("y.json");
        let found = |count: usize, why: &str, lacking: usize| {
            let Found { records, left_out, unsound } = folder(dir.path()).unwrap();
            let said = left_out.iter().map(ToString::to_string).collect::<String>();
            assert!(
                (records.len(), unsound) == (count, lacking)
                    && said.contains(why)
                    && said.contains("y.json") != why.is_empty(),
                "{said}"
            );
            records
        };
        found(1, "", 0);
        std::fs::copy(&path, &copy).unwrap();
        found(1, "(of ", 0);
        std::fs::write(&copy, changed(|d| d["started_unix"] = json!(5))).unwrap();
        assert_eq!(found(2, "", 0)[0].started_unix, 5);
        let older = changed(|d| d["schema"] = json!("vpmu-result/2"));
        let foreign = "{\"name\": \"x\"}";
        for (bad, why, lacking) in [(foreign, "missing field", 0), ("{", "EOF", 1), (&older, "its schema", 1)] {
            std::fs::write(&copy, bad).unwrap();
            found(1, why, lacking);
        }
        std::fs::remove_file(&copy).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &copy, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        found(1, "it is a FIFO, not a regular file", 0);
        std::fs::remove_file(&path).unwrap();
        for (folder_of, why) in [(dir.path().to_owned(), "y.json"), (dir.path().join(BASELINES), "no result")] {
            assert!(folder(&folder_of).unwrap_err().to_string().contains(why));
        }
        // Links to documents are followed.
        let (_dir, path) = written(&changed(|_| {}));
        std::os::unix::fs::symlink(&path, dir.path().join("link.json")).unwrap();
        found(1, "FIFO", 0);
    }

    #[test]
    fn a_baseline_has_a_plain_name() {
        assert!(check_name("v1.0").is_ok());
        for bad in ["", ".x", "a/b", "a b", "ä"] {
            assert!(check_name(bad).is_err());
        }
    }
}
