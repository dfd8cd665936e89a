//! Sources of results: a file, a folder, or the name of a baseline.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::file::refuse;
use super::file::{MAX_DOCUMENT, is_other, record, record_with};
use crate::document::Record;
use crate::error::Error;
use crate::{open, sweep};

/// The folder of baselines within a results folder.
pub const BASELINES: &str = "baselines";
/// Most bytes of all documents of a folder, which are in memory together: those of 20 000 default runs.
const MAX_FOLDER: u64 = 4 << 30;
/// Most documents of one folder.
pub const MAX_DOCUMENTS: usize = 20_000;
/// Longest name of a baseline.
const MAX_NAME: usize = 64;

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

/// Every `.json` of a folder but the JSON Schemas, and of none below it, in the order of names.
///
/// # Errors
/// Exit 2: the folder cannot be read, or has no document.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: std::io::Error| refuse(dir, error.to_string(), "give a folder of results");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        // A sweep leaves its front beside its lines: no result.
        let front = path.file_name().is_some_and(|name| name == sweep::FRONT) && dir.join(sweep::FILE).exists();
        let schema = path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b".schema.json"));
        if !hidden && !front && !schema && path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(refuse(dir, "it has no .json in it", "give the folder that vpmu -o DIR wrote to"));
    }
    paths.sort();
    Ok(paths)
}

/// Every document of a folder ([`files`]), in the order of their start, each read as by [`record`](super::record()).
///
/// # Errors
/// Exit 2: no document, too many, a bad one, or one that is there twice.
pub fn folder(dir: &Path) -> Result<Vec<Record>, Error> {
    let (records, left_out) = folder_beside(dir)?;
    left_out.into_iter().find(|left| left.damaged).map_or(Ok(records), |left| Err(left.why))
}

/// A document of a folder that is left out.
#[derive(Debug)]
pub struct LeftOut {
    /// Its file.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
    /// It is not what another command of this tool wrote.
    pub damaged: bool,
}

impl LeftOut {
    /// Leaves out a document that could not be read.
    pub fn new(path: &Path, why: Error) -> Self {
        Self { path: path.to_owned(), why, damaged: !is_other(path) }
    }
}

/// Reads the documents of a folder as [`folder`] does, and says which are left out beside at least one that is sound.
///
/// # Errors
/// As [`folder`], but for bad ones beside sound ones.
pub fn folder_beside(dir: &Path) -> Result<(Vec<Record>, Vec<LeftOut>), Error> {
    let paths = files(dir)?;
    if paths.len() > MAX_DOCUMENTS {
        let count = paths.len();
        return Err(refuse(dir, format!("{count} documents are more than {MAX_DOCUMENTS}"), "split the folder"));
    }
    let size = |path: &PathBuf| path.metadata().map_or(0, |meta| meta.len());
    if paths.iter().map(size).sum::<u64>() > MAX_FOLDER {
        let why = format!("its documents are larger than {} GiB together", MAX_FOLDER >> 30);
        return Err(refuse(dir, why, "split the folder"));
    }
    let read = paths
        .par_iter()
        .map_init(Vec::new, |bytes, path| record_with(path, open::found(path, MAX_DOCUMENT), bytes))
        .collect::<Vec<_>>();
    // What other commands of this tool wrote there is no result, and no reason to refuse the results beside it.
    let (mut records, mut left_out) = (Vec::new(), Vec::new());
    for (path, record) in paths.iter().zip(read) {
        match record {
            Ok(record) => records.push(record),
            Err(why) => left_out.push(LeftOut::new(path, why)),
        }
    }
    // The first bad one in order of names, whichever thread met its own first.
    if records.is_empty() && !left_out.is_empty() {
        return Err(left_out.swap_remove(0).why);
    }
    records.sort_by(|a, b| (a.started_unix, &a.path).cmp(&(b.started_unix, &b.path)));
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
