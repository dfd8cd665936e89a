//! `vpmu report`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::export::{records, write};
use crate::cli::report::ReportArgs;
use crate::console::{complain, print};
use crate::error::{Error, Exit};
use crate::report::{Sources, html};

/// What `vpmu sweep` writes to a folder.
const SWEEP: &str = "jsonl";

pub(super) fn run(args: &ReportArgs) -> Result<Exit, Error> {
    let sources = sources(&args.sources)?;
    let page = html(&sources, &args.title)?;
    if args.output == Path::new("-") {
        return print(&page).map(|()| Exit::Done);
    }
    write(&args.output, page.as_bytes())?;
    complain(&format!(
        "{} results, {} sweeps in {} ({:.1} MB)",
        sources.records.len(),
        sources.sweeps.len(),
        args.output.display(),
        page.len() as f64 / 1e6
    ));
    Ok(Exit::Done)
}

fn is_sweep(path: &Path) -> bool {
    path.extension() == Some(OsStr::new(SWEEP))
}

/// The results and sweeps of files and folders. A folder may have either.
fn sources(given: &[PathBuf]) -> Result<Sources, Error> {
    let mut sources = Sources { records: Vec::new(), sweeps: Vec::new() };
    for source in given {
        if is_sweep(source) {
            sources.sweeps.push(source.clone());
            continue;
        }
        let below = if source.is_dir() { sweeps_of(source)? } else { Vec::new() };
        if below.is_empty() || has_results(source) {
            sources.records.extend(records(std::slice::from_ref(source))?);
        }
        sources.sweeps.extend(below);
    }
    Ok(sources)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: std::io::Error| {
        Error::usage(format!("cannot read {}", dir.display()), error.to_string(), "give a folder of results")
    };
    let entries = std::fs::read_dir(dir).map_err(unreadable)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(unreadable)).collect()
}

fn sweeps_of(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut sweeps: Vec<PathBuf> = entries(dir)?.into_iter().filter(|path| is_sweep(path)).collect();
    sweeps.sort();
    Ok(sweeps)
}

fn has_results(dir: &Path) -> bool {
    entries(dir).is_ok_and(|paths| paths.iter().any(|path| path.extension() == Some(OsStr::new("json"))))
}
