//! `vpmu export`.

use std::path::{Path, PathBuf};

use super::internal;
use crate::cli::export::ExportArgs;
use crate::console::{complain, print};
use crate::error::{Error, Exit};
use crate::export::{Format, export, left_out};
use crate::load::{self, Record};
use results::write::replace;

pub(super) fn run(args: &ExportArgs) -> Result<Exit, Error> {
    let records = records(&args.sources)?;
    let bytes = export(args.format, &records)?;
    if args.format != Format::Csv {
        for line in left_out(&records) {
            complain(&format!("notice: {line}"));
        }
    }
    match args.output.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => write(file, &bytes)?,
        None => print(&String::from_utf8(bytes).map_err(|error| internal("cannot show the export", error))?)?,
    }
    Ok(Exit::Done)
}

/// Writes a file for `-o`, whole or not at all.
pub(super) fn write(file: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(file, bytes).map_err(|error| {
        Error::usage(format!("cannot write {}", file.display()), error.to_string(), "give -o another file")
    })
}

/// The documents of files and folders, in the order given.
pub(super) fn records(sources: &[PathBuf]) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for source in sources {
        if source.is_dir() {
            records.extend(load::folder(source)?);
        } else {
            records.push(load::record(source)?);
        }
    }
    Ok(records)
}
