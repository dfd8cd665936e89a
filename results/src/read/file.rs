//! One document from one file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::document::{Arm, Document, Experiment, Record, SCHEMA, Status};
use crate::error::Error;
use crate::open;
use crate::unique::Unique;

/// Largest result document that is read.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// Reads and checks one document of any experiment.
///
/// # Errors
/// Exit 2: unreadable, too large, truncated, foreign, of a newer schema, or contradicting itself.
pub fn record(path: &Path) -> Result<Record, Error> {
    document(path)
}

/// Reads a file that was [found](open::found) in a folder, with the types of its experiment.
///
/// # Errors
/// Returns the errors of [`document`], and a file that is not regular.
pub fn found<E: Experiment>(path: &Path) -> Result<Document<E>, Error> {
    of_text(path, text(path, open::found(path, MAX_DOCUMENT), &mut Vec::new())?)
}

/// Reads one document of a file that is open, with memory for the text that the next one takes, too.
///
/// # Errors
/// Returns the errors of [`record`].
pub fn record_with(path: &Path, file: io::Result<File>, bytes: &mut Vec<u8>) -> Result<Record, Error> {
    of_text(path, text(path, file, bytes)?)
}

/// Reads and checks one document with the types of its experiment.
///
/// # Errors
/// Returns the errors of [`record`], and a document of another experiment.
pub fn document<E: Experiment>(path: &Path) -> Result<Document<E>, Error> {
    of_text(path, text(path, File::open(path), &mut Vec::new())?)
}

/// Makes a document of what `path` holds, and checks it.
pub(crate) fn of_text<E: Experiment>(path: &Path, text: &str) -> Result<Document<E>, Error> {
    let mut document: Document<E> = serde_json::from_str(text).map_err(|_| wrong::<E>(path, text))?;
    if document.schema != SCHEMA {
        return Err(wrong::<E>(path, text));
    }
    serde_json::from_str::<Unique>(text).map_err(|error| refuse(path, error.to_string(), NOT_OURS))?;
    path.clone_into(&mut document.path);
    check(&document).map_err(|why| refuse(path, why, NOT_OURS))?;
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
        .map_err(|_| refuse(path, "it is not JSON: it has bytes that are no UTF-8", NOT_OURS))
}

/// Fields that tell a result from other files.
#[derive(Default, Deserialize)]
struct Kind {
    schema: Option<serde_json::Value>,
    meta: Option<FirefoxMeta>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FirefoxMeta {
    preprocessed_profile_version: Option<IgnoredAny>,
}

/// Reads those fields of an object; a list has none, whatever is in it.
fn kind(text: &str) -> Option<Kind> {
    serde_json::from_str(text).ok().filter(|_| text.trim_start().starts_with('{'))
}

/// A document whose rounds are a list, as earlier builds wrote them.
#[derive(Deserialize)]
struct Older {
    arms: Vec<OlderArm>,
}

#[derive(Deserialize)]
struct OlderArm {
    #[serde(default)]
    rounds: serde_json::Value,
}

/// Says why a text is no document of the experiment.
fn wrong<E: Experiment>(path: &Path, text: &str) -> Error {
    if text.trim().is_empty() {
        return refuse(path, "it is empty", NOT_OURS);
    }
    if let Err(error) = serde_json::from_str::<Unique>(text) {
        if error.is_eof() {
            return refuse(path, format!("it is truncated: {error}"), "measure again, or restore the file");
        }
        let near = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
        let what = match error.is_data() {
            true => "",
            false if near.contains("NaN") || near.contains("Infinity") => "NaN and Infinity are no JSON numbers: ",
            false => "it is not JSON: ",
        };
        // Where another kind of file differs from JSON is no news.
        let is_foreign = !text.trim_start().starts_with(['{', '[']);
        let why = if is_foreign { "it is not JSON".to_owned() } else { format!("{what}{error}") };
        return refuse(path, why, NOT_OURS);
    }
    if let Err((why, remedy)) = schema(&kind(text).unwrap_or_default()) {
        return refuse(path, why, remedy);
    }
    let found = serde_path_to_error::deserialize::<_, Document<E>>(&mut serde_json::Deserializer::from_str(text));
    let older =
        serde_json::from_str::<Older>(text).is_ok_and(|older| older.arms.iter().any(|arm| arm.rounds.is_array()));
    if older {
        return refuse(path, "its rounds are a list: an earlier build wrote it", "measure again, or use that build");
    }
    let why = found.err().map_or_else(String::new, |error| match error.path().to_string().as_str() {
        "." => error.inner().to_string(),
        key => format!("{key}: {}", error.inner()),
    });
    refuse(path, why, NOT_OURS)
}

/// Returns whether a file of a folder is a document of this tool that has no result in it: of `ab`, `compare`, `triage`, or
/// a profile for Firefox.
pub(super) fn is_other(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let text = text(path, open::found(path, MAX_DOCUMENT), &mut bytes);
    let Some(kind) = text.ok().and_then(kind) else { return false };
    let schema = kind.schema.as_ref().and_then(serde_json::Value::as_str);
    schema.is_some_and(|name| name.starts_with("vpmu-") && !name.starts_with("vpmu-result/"))
        || kind.meta.is_some_and(|meta| meta.preprocessed_profile_version.is_some())
}

/// # Errors
/// Why this tool does not read the schema, and what to do.
fn schema(kind: &Kind) -> Result<(), (String, &'static str)> {
    // `vpmu report --format firefox` makes such a profile, and so does samply.
    if kind.meta.as_ref().is_some_and(|meta| meta.preprocessed_profile_version.is_some()) {
        return Err(("it is a Firefox profile: it has samples in it, and no result".to_owned(), OF_FIREFOX));
    }
    let found = kind
        .schema
        .as_ref()
        .and_then(serde_json::Value::as_str)
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
        None if found.starts_with("vpmu-compare/") => (
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

/// Most arms and rounds, far above what the tool can be asked for.
const MAX_ARMS: usize = 1000;
const MAX_ROUNDS: usize = 100_000;
/// The keys of metrics end in it.
const UNIT: &str = "_ns";

/// # Errors
/// The first contradiction, in a sentence.
fn check<E: Experiment>(document: &Document<E>) -> Result<(), String> {
    if document.arms.is_empty() || document.arms.len() > MAX_ARMS {
        return Err(format!("it has {} arms", document.arms.len()));
    }
    if document.started_unix == 0 && !document.is_simulated() {
        return Err("it says that it began at 1970-01-01: the host's clock was not set".to_owned());
    }
    document.between.map_or(Ok(()), |between| between.check())?;
    let mut names = BTreeSet::new();
    for arm in &document.arms {
        if arm.name.is_empty() || arm.name.chars().any(char::is_control) {
            return Err(format!("an arm's name is {:?}", arm.name));
        }
        if !names.insert(&arm.name) {
            return Err(format!("duplicate arm {}", arm.name));
        }
        self::arm(arm, document).map_err(|why| format!("arm {}: {why}", arm.name))?;
    }
    Ok(())
}

fn arm<E: Experiment>(arm: &Arm<E>, document: &Document<E>) -> Result<(), String> {
    if arm.rounds.len() > MAX_ROUNDS {
        return Err(format!("{} rounds", arm.rounds.len()));
    }
    let measured = !arm.rounds.is_empty();
    if measured && arm.not_available.is_some() {
        return Err("it has rounds although it was not available".to_owned());
    }
    let excused = arm.not_available.is_some() || !arm.incomplete.is_empty() || document.status != Status::Complete;
    if !measured && !excused {
        return Err("it has no rounds and does not say why".to_owned());
    }
    if !measured && !arm.metrics.is_empty() {
        return Err("it has figures without rounds".to_owned());
    }
    arm.rounds.check().map_err(|why| format!("rounds: {why}"))?;
    for (a, b) in arm.rounds.iter().zip(arm.rounds.iter().skip(1)) {
        if b.index <= a.index {
            return Err(format!("round {} follows round {}", b.index, a.index));
        }
        if arm.rounds.started_us[b.at] < arm.rounds.started_us[a.at] {
            return Err(format!("the clock goes backwards from round {} to round {}", a.index, b.index));
        }
        if b.guest < a.guest {
            return Err(format!("round {} is of guest {}, the one after it of guest {}", a.index, a.guest, b.guest));
        }
    }
    if let Some(round) = arm.rounds.iter().find(|round| round.probe_ns.is_some_and(|ns| !(ns > 0.0 && ns.is_finite())))
    {
        return Err(format!("round {}: probe_ns is not above 0", round.index));
    }
    for (name, metric) in &arm.metrics {
        metric.check().map_err(|why| format!("{name}: {why}"))?;
        if !name.ends_with(UNIT) {
            return Err(format!("{name}: its unit is unknown; a metric's name ends in {UNIT}"));
        }
        let Some(parts) = arm.rounds.metrics.get(name) else { continue };
        let counted = parts.count.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if counted > 0 && counted != metric.count {
            let all = metric.count;
            return Err(format!("{name} summarizes {all} values, its rounds {counted}: edited by hand?"));
        }
        if parts.max.iter().any(|max| *max > metric.max) {
            return Err(format!("{name}: a round's max is above the summary's: mixed units, or edited by hand?"));
        }
    }
    for (name, column) in &arm.rounds.metrics {
        if !arm.metrics.contains_key(name) && column.count.iter().any(|count| *count > 0) {
            return Err(format!("its rounds have {name}, which its summary lacks: mixed units, or edited by hand?"));
        }
    }
    Ok(())
}

/// Remedy for a file that vpmu did not write.
pub(super) const NOT_OURS: &str = "give a .json that vpmu wrote";

/// Remedy for a profile for the Firefox profiler.
pub(super) const OF_FIREFOX: &str = "move it to another folder, or open it at https://profiler.firefox.com";

/// Exit 2 for a file or folder.
pub(super) fn refuse(path: &Path, why: impl Into<String>, remedy: &str) -> Error {
    Error::usage(format!("cannot use {}", path.display()), why, remedy)
}
