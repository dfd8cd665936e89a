//! One document from one file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;

use super::refuse::{NOT_OURS, OF_FIREFOX, refuse};
use super::{check, older, one_pass, unique};
use crate::document::{Document, Experiment, Record, SCHEMA};
use crate::error::Error;
use crate::open;

/// Largest result document that is read.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// Reads and checks one document of any experiment.
///
/// # Errors
/// Exit 2: unreadable, too large, truncated, foreign, of a newer schema, or contradicting itself.
pub fn record(path: &Path) -> Result<Record, Error> {
    document(path)
}

/// The same of a file that was [found](open::found) in a folder, with the types of its experiment.
///
/// # Errors
/// Those of [`document`], and a file that is not regular.
pub fn found<E: Experiment>(path: &Path) -> Result<Document<E>, Error> {
    of_text(path, text(path, open::found(path, MAX_DOCUMENT), &mut Vec::new())?)
}

/// Reads one document with all checks of [`record`], but without the experiment's own part of its rounds.
///
/// # Errors
/// Those of [`record`].
pub fn brief(path: &Path) -> Result<Record, Error> {
    brief_with(path, File::open(path), &mut Vec::new())
}

/// The same of a file that is open, with memory for the text that the next one takes, too.
pub fn brief_with(path: &Path, file: io::Result<File>, bytes: &mut Vec<u8>) -> Result<Record, Error> {
    brief_of_text(path, text(path, file, bytes)?)
}

pub(super) fn brief_of_text(path: &Path, text: &str) -> Result<Record, Error> {
    // Whatever is wrong, or only unusual, the reader for everything says.
    let quickly = one_pass::read(path, text).filter(|record| check::document(record).is_ok());
    quickly.map_or_else(|| of_text(path, text), Ok)
}

pub(super) fn of_text<E: Experiment>(path: &Path, text: &str) -> Result<Document<E>, Error> {
    from_value(path, value(path, text)?)
}

/// Reads and checks one document with the types of its experiment.
///
/// # Errors
/// Those of [`record`], and a document of another experiment.
pub fn document<E: Experiment>(path: &Path) -> Result<Document<E>, Error> {
    of_text(path, text(path, File::open(path), &mut Vec::new())?)
}

/// Makes a document of what `path` holds, and checks it.
pub(crate) fn from_value<E: Experiment>(path: &Path, value: Value) -> Result<Document<E>, Error> {
    let document = parsed(path, value)?;
    check::document(&document).map_err(|why| refuse(path, why, NOT_OURS))?;
    Ok(document)
}

fn parsed<E: Experiment>(path: &Path, mut value: Value) -> Result<Document<E>, Error> {
    older::convert(&mut value);
    let mut document: Document<E> =
        serde_json::from_value(value).map_err(|error| refuse(path, error.to_string(), NOT_OURS))?;
    path.clone_into(&mut document.path);
    Ok(document)
}

/// The text of a file, in `bytes`.
fn text<'a>(path: &Path, file: io::Result<File>, bytes: &'a mut Vec<u8>) -> Result<&'a str, Error> {
    let unreadable = |error: io::Error| {
        let absent = error.kind() == io::ErrorKind::NotFound;
        refuse(path, error.to_string(), if absent { "measure first, or give the path of a result" } else { NOT_OURS })
    };
    let mut file = file.map_err(unreadable)?;
    let meta = file.metadata().map_err(unreadable)?;
    if meta.is_dir() {
        return Err(refuse(path, "it is a folder", NOT_OURS));
    }
    // One call reads a file that does not grow, and one sees its end.
    let expected = meta.len().min(MAX_DOCUMENT) as usize + 1;
    if bytes.len() < expected {
        bytes.resize(expected, 0);
    }
    let mut length = 0;
    loop {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
        if length as u64 > MAX_DOCUMENT {
            return Err(refuse(path, format!("it is larger than {} MiB", MAX_DOCUMENT >> 20), NOT_OURS));
        }
        if length == bytes.len() {
            bytes.resize((2 * length).min(MAX_DOCUMENT as usize + 1), 0);
        }
    }
    std::str::from_utf8(&bytes[..length])
        .map_err(|_| unreadable(io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")))
}

fn value(path: &Path, text: &str) -> Result<Value, Error> {
    if text.trim().is_empty() {
        return Err(refuse(path, "it is empty", NOT_OURS));
    }
    let unique::Unique(value) = serde_json::from_str(text).map_err(|error| {
        if error.is_eof() {
            return refuse(path, format!("it is truncated: {error}"), "measure again, or restore the file");
        }
        let near = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
        if ["NaN", "Infinity", "inf", "nan"].iter().any(|word| near.contains(word)) {
            return refuse(path, format!("NaN and Infinity are no JSON numbers: {error}"), NOT_OURS);
        }
        let what = if error.is_data() { String::new() } else { "it is not JSON: ".to_owned() };
        refuse(path, format!("{what}{error}"), NOT_OURS)
    })?;
    schema(&value).map_err(|(why, remedy)| refuse(path, why, remedy))?;
    if let Some(found) = check::too_large(&value) {
        return Err(refuse(path, format!("no figure of ours is as large as {found}: edited by hand?"), NOT_OURS));
    }
    Ok(value)
}

/// Whether this tool reads the document's schema. There is no older one than version 1 to convert.
fn schema(value: &Value) -> Result<(), (String, &'static str)> {
    // What `vpmu report --format firefox` makes, and samply.
    if value.get("meta").is_some_and(|meta| meta.get("preprocessedProfileVersion").is_some()) {
        return Err(("it is a Firefox profile: it has samples in it, and no result".to_owned(), OF_FIREFOX));
    }
    let found = value
        .get("schema")
        .and_then(Value::as_str)
        .ok_or_else(|| ("it has no \"schema\", so it is no result of vpmu".to_owned(), NOT_OURS))?;
    if found == SCHEMA {
        return Ok(());
    }
    let version = found.strip_prefix("vpmu-result/").and_then(|version| version.parse::<u64>().ok());
    Err(match version {
        Some(0) => (format!("its schema is {found}, which no release has written; this tool reads {SCHEMA}"), NOT_OURS),
        Some(_) => (
            format!("its schema {found} is newer than {SCHEMA}, which this tool reads"),
            "use the version of vpmu that wrote it, or a newer one",
        ),
        None if found.starts_with("vpmu-ab/") => (
            format!("it is a result of `vpmu ab` ({found}), which has two builds in it"),
            "its verdicts are in its rows; `vpmu ab` measures again",
        ),
        None if found.starts_with("vpmu-triage/") => (
            format!("it is an account of `vpmu triage` ({found}), which is one verdict and has no rounds"),
            "its verdict is in it; `vpmu triage` looks again",
        ),
        None if found.starts_with("vpmu-compare/") || found.starts_with("vpmu-fleet-compare/") => (
            format!("it is a comparison of `vpmu compare` ({found}), not a result"),
            "give the results that it compares",
        ),
        None if found.starts_with("vpmu-sweep/") => (
            format!("it is of `vpmu sweep` ({found}), which has points and no rounds"),
            "`vpmu report` shows the folder it is in",
        ),
        None => (format!("its schema is {found}, not {SCHEMA}"), NOT_OURS),
    })
}
