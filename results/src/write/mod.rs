//! Writing results so that a reader, or a killed run, never meets half a file.

mod folder;
mod output;
mod target;

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub use folder::Folder;
pub use output::OutputFolder;
pub use target::{Pending, Target};

use crate::error::Error;

/// Replaces `path` by `text`, as [`Target::replace`] does.
///
/// # Errors
/// Those of the file system.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    Target::of(path)?.replace(text)
}

/// Writes `path` as [`replace`] does, unless something is there; false if so.
///
/// # Errors
/// Those of the file system.
pub fn place(path: &Path, text: &[u8]) -> io::Result<bool> {
    Target::of(path)?.place(text)
}

/// Opens a regular file, or makes it, to read it and add to its end.
///
/// # Errors
/// Those of the file system; a link is one.
pub fn append(path: &Path) -> io::Result<File> {
    Target::of(path)?.append()
}

/// Checks that `path` can be written, before anything is measured, and holds its folder.
///
/// # Errors
/// Exit 2, with the reason.
pub fn check_file(path: &Path) -> Result<Target, Error> {
    let checked = Target::of(path).and_then(|target| target.check().map(|()| target));
    checked.map_err(|error| {
        let what = format!("cannot write {}", path.display());
        Error::usage(what, error.to_string(), "give -o a file in a folder that you may write to")
    })
}

/// Now, in seconds since 1970; 0 before that.
#[must_use]
pub fn now_unix() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A time in UTC: `2026-01-31T23:59:59Z`.
#[must_use]
pub fn utc(unix: u64) -> String {
    // The last second of the year 9999; a clock that is further off gets it.
    const LAST: u64 = 253_402_300_799;
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(unix.min(LAST))).to_string()
}

/// A file name for the time, UTC: `20260131T235959Z`.
#[must_use]
pub fn time_stamp(unix: u64) -> String {
    utc(unix).replace(['-', ':'], "")
}

#[cfg(test)]
mod tests;
