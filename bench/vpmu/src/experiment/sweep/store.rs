//! File of finished points, appended line by line: a kill leaves complete lines and at most one truncated line.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::point::Point;
use crate::setting::process;
use results::error::Error;
use results::open::{self, Folder};
use results::write::{append, replace};

pub use results::sweep::{FILE, FRONT};
use results::sweep::{MAX_BYTES, SCHEMA};

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Complete lines with their keys.
    pub lines: Vec<(String, String)>,
    /// Bytes of a truncated last line.
    pub torn: usize,
}

impl Found {
    /// Reads the file in `dir`; empty if there is none.
    ///
    /// # Errors
    /// Exit 2 if the file cannot be read or a line does not belong to a sweep.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        /// Fields of a line of any revision.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
            key: String,
        }
        let path = dir.join(FILE);
        let refuse = |why: String| {
            let remedy = "move it away, or choose another folder with -o DIR";
            Error::usage(format!("cannot go on with {}", path.display()), why, remedy)
        };
        let text = match open::found(&path, MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file.and_then(open::bytes).map_err(|error| refuse(error.to_string()))?,
        };
        let mut text = String::from_utf8(text).map_err(|error| refuse(error.to_string()))?;
        let torn = text.len() - text.rfind('\n').map_or(0, |at| at + 1);
        text.truncate(text.len() - torn);
        let line = |(n, line): (usize, &str)| match serde_json::from_str(line) {
            Ok(Head { schema, key }) if schema == SCHEMA => Ok((key, line.to_owned())),
            Ok(Head { schema, .. }) => Err(refuse(format!("line {n}: its schema is {schema}, not {SCHEMA}"))),
            Err(error) => Err(refuse(format!("line {n}: {error}"))),
        };
        Ok(Self { lines: (1..).zip(text.lines()).map(line).collect::<Result<_, _>>()?, torn })
    }

    /// Returns the lines of points not in `points`: of another grid, model or revision.
    pub fn others(&self, points: &[Point]) -> impl Iterator<Item = &str> {
        let here: BTreeSet<&str> = points.iter().map(|point| point.key.as_str()).collect();
        let others = self.lines.iter().filter(move |(key, _)| !here.contains(key.as_str()));
        others.map(|(_, line)| line.as_str())
    }
}

/// The file, open for appending and locked against other sweeps.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// The folder, locked until drop.
    _locked: File,
}

impl Store {
    /// Opens or creates the file in `dir` and removes a truncated last line.
    ///
    /// # Errors
    /// Exit 2 for a file system error, or if another sweep holds the lock.
    pub fn open(dir: &Path) -> Result<(Self, Found), Error> {
        let failed = |error: &io::Error| cannot(dir, error);
        let path = dir.join(FILE);
        let locked = Folder::make(dir).and_then(|folder| folder.handle()).map_err(|error| failed(&error))?;
        if !process::try_lock(&locked).map_err(|error| failed(&error))? {
            return Err(Error::usage(
                format!("another sweep is writing to {}", dir.display()),
                "",
                "wait for it, or choose another folder with -o DIR",
            ));
        }
        let found = Found::read(dir)?;
        let file = append(&path).map_err(|error| failed(&error))?;
        let len = found.lines.iter().map(|(_, line)| line.len() as u64 + 1).sum();
        file.set_len(len).map_err(|error| failed(&error))?;
        Ok((Self { path, file, _locked: locked }, found))
    }

    /// Appends a line. An incomplete write is undone.
    ///
    /// # Errors
    /// Exit 2, with the file system's reason.
    pub fn append(&mut self, line: &str) -> Result<(), Error> {
        let end = self.file.metadata().map_err(|error| cannot(&self.path, &error))?.len();
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(|error| {
            // If this fails, too, the next sweep removes the truncated line.
            let _ = self.file.set_len(end);
            cannot(&self.path, &error)
        })
    }

    /// Replaces the file by `lines`.
    ///
    /// # Errors
    /// Exit 2 with the file unchanged.
    pub fn finish(self, lines: &[impl AsRef<str>]) -> Result<(), Error> {
        let text: String = lines.iter().flat_map(|line| [line.as_ref(), "\n"]).collect();
        replace(&self.path, text.as_bytes()).map_err(|error| cannot(&self.path, &error))
    }
}

fn cannot(path: &Path, error: &io::Error) -> Error {
    Error::output(format!("cannot write {}", path.display()), error, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_sweeps_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, found) = Store::open(&dir.path().join("new")).unwrap();
        assert_eq!(found, Found::default());
        store.append("a").unwrap();
        assert!(Store::open(&dir.path().join("new")).unwrap_err().to_string().contains("another sweep"));
    }
}
