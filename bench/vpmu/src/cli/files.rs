//! Files that commands read and write.

use std::path::Path;

use results::document::{Document, Experiment};
use results::error::Error;
use results::read::{self, Found, RESULTS};
use results::write::{OutputFolder, Target, now_unix, replace, time_stamp};

use super::options::ResultOptions;
use crate::terminal::console::complain;

/// Writes a file for `-o`, whole or not at all.
pub(super) fn write(file: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(file, bytes).map_err(|error| cannot(file, &error))
}

/// Writes to a path that was checked before.
pub(super) fn write_to(target: &Target, bytes: &[u8]) -> Result<(), Error> {
    target.replace(bytes).map_err(|error| cannot(target.path(), &error))
}

fn cannot(file: &Path, error: &std::io::Error) -> Error {
    Error::output(format!("cannot write {}", file.display()), error, "give -o another file")
}

/// Writes the cases of a report for `--junit`.
pub(super) fn write_junit(file: Option<&Path>, xml: &str) -> Result<(), Error> {
    let Some(file) = file else { return Ok(()) };
    write(file, xml.as_bytes()).map_err(|error| Error { remedy: "give --junit another file".to_owned(), ..error })
}

/// Reads the documents of files, folders and baselines, in the order given, and says what is left out: of much a few names, or `all`.
pub(super) fn records<P: AsRef<Path>>(sources: &[P], all: bool) -> Result<Found, Error> {
    let mut found = Found::default();
    for source in sources {
        let Found { records, left_out, unsound } = read::gather(source.as_ref())?;
        found.records.extend(records);
        found.left_out.extend(left_out);
        found.unsound += unsound;
    }
    say_left_out(&found.left_out, all);
    Ok(found)
}

/// Says which documents are left out.
pub(super) fn say_left_out<'a>(refused: impl IntoIterator<Item = &'a Error>, all: bool) {
    for line in read::left_out(refused, all) {
        complain(&format!("left out: {line}"));
    }
}

/// The document of a run, as a file. A full disk neither ends the run nor hides its table.
pub(super) struct Kept {
    folder: Option<OutputFolder>,
    opened_unix: u64,
    /// Why the last write failed, if it did.
    pub(super) failed: Option<Error>,
}

impl Kept {
    /// Opens the folder of results, if there is to be one.
    pub(super) fn of(options: &ResultOptions) -> Result<Self, Error> {
        let folder = if options.no_save { None } else { Some(OutputFolder::open(&options.output.or(RESULTS))?) };
        Ok(Self { folder, opened_unix: now_unix(), failed: None })
    }

    /// Writes the document as it is now.
    pub(super) fn save<E: Experiment>(&mut self, document: &Document<E>) -> Result<(), Error> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        // A simulated document has no date; the name of its file has one.
        let unix = if document.started_unix == 0 { self.opened_unix } else { document.started_unix };
        let stem = format!("{}-{}", document.experiment, time_stamp(unix));
        let failed = folder.write(&stem, document.to_json()?.as_bytes()).err();
        if let (Some(error), None) = (&failed, &self.failed) {
            complain(&format!("warning: {error}; measuring goes on, and the table comes at the end"));
        }
        self.failed = failed;
        Ok(())
    }

    /// Returns the document's path, once it is written.
    pub(super) fn path(&self) -> Option<&Path> {
        self.folder.as_ref().and_then(OutputFolder::path).filter(|_| self.failed.is_none())
    }

    /// Formats a line that names what was written.
    pub(super) fn line(&self) -> String {
        self.path().map_or_else(String::new, |path| format!("saved: {}\n", path.display()))
    }
}
