//! Files that commands read and write.

use std::path::{Path, PathBuf};

use results::document::Record;
use results::error::Error;
use results::read;
use results::write::{Target, replace};

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

/// Reads the documents of files and folders, in the order given.
pub(super) fn records(sources: &[PathBuf]) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for source in sources {
        if source.is_dir() {
            records.extend(read::folder(source)?);
        } else {
            records.push(read::record(source)?);
        }
    }
    Ok(records)
}
