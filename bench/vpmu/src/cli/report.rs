//! `vpmu report`.

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use clap::Args;
use results::document::Record;
use results::error::{Error, Exit};
use results::open::Folder;
use results::read::{LeftOut, files, folder_beside, record};
use results::report::{self, Sources, html, measured};
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host;
use super::files::write;
use crate::experiment::reproduce::{self, run::Simulated};
use crate::removed;
use crate::setting::options::OutputOption;
use crate::setting::process;
use crate::terminal::console::{complain, print};

pub(super) const EXAMPLES: &str = "\
Examples:
  # every result of vpmu-results, as report.html
  vpmu report
  # two results, the page on stdout
  vpmu report before.json after.json -o -
  # a folder and a sweep
  vpmu report nightly sweep.jsonl -o nightly.html

  # many hosts
  vpmu report --by-host fleet/ -o fleet.html

The page needs no network and no script: open it in any browser,
send it, print it.

Exit codes: 0 done, 2 bad usage or input, 3 a document
could not be used, 70 a bug of vpmu.";

/// Options of `vpmu report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Result documents (.json), sweeps (.jsonl), or folders of them
    #[arg(value_name = "DIR|FILE", default_value = "vpmu-results")]
    pub sources: Vec<PathBuf>,

    /// The page.
    #[command(flatten)]
    pub output: OutputOption,

    /// A page by host: the level of each, and hosts that stand apart; always so for campaigns
    #[arg(long)]
    pub by_host: bool,

    /// The title of the page
    #[arg(long, value_name = "TEXT", default_value = "vPMU lab report")]
    pub title: String,
}

/// Extension of the file that `vpmu sweep` writes to a folder.
const SWEEP: &str = "jsonl";

pub(super) fn run(args: &ReportArgs) -> Result<Exit, Error> {
    if let [source] = &args.sources[..]
        && by_host::is_wanted(source, args.by_host)
    {
        return hosts(args, source);
    }
    if args.by_host || args.sources.iter().any(|source| by_host::is_wanted(source, false)) {
        return Err(Error::usage("a page by host has one source", "several are given", "give one campaign or folder"));
    }
    // As in `compare`, memory is not given back piece by piece at the end.
    let (sources, done) = sources(&args.sources)?;
    let sources = ManuallyDrop::new(sources);
    let page = html(&sources, &args.title)?;
    let inputs = sources.records.iter().map(|record| &record.path).chain(&sources.sweeps);
    let sweeps = format!(", {}", plural(sources.sweeps.len(), "sweep"));
    put(args, &page, inputs, &(plural(sources.records.len(), "result") + &sweeps))?;
    Ok(done)
}

/// Reports per host.
fn hosts(args: &ReportArgs, source: &Path) -> Result<Exit, Error> {
    let gathered = by_host::gather(source)?;
    let page = report::page(&fleet::report(&fleet::analyse(&gathered.runs)), &args.title, &process::tool())?;
    put(args, &page, gathered.files(source), &plural(gathered.runs.len(), "result"))?;
    Ok(gathered.exit(Exit::Done))
}

/// Prints a page, or writes it, to none of its inputs, and says what is in it.
fn put<P: AsRef<Path>>(
    args: &ReportArgs,
    page: &str,
    inputs: impl IntoIterator<Item = P>,
    what: &str,
) -> Result<(), Error> {
    let output = args.output.or("report.html");
    if output == Path::new("-") {
        return print(page);
    }
    check_no_input(&output, inputs)?;
    write(&output, page.as_bytes())?;
    complain(&format!("{what} in {} ({:.1} MB)", output.display(), page.len() as f64 / 1e6));
    Ok(())
}

fn is_sweep(path: &Path) -> bool {
    path.extension() == Some(OsStr::new(SWEEP))
}

/// Reads the results and sweeps of files and folders, beside the published figures, and says what is left out.
fn sources(given: &[PathBuf]) -> Result<(Sources, Exit), Error> {
    let (records, sweeps, left_out) = read(given)?;
    for (path, why) in &left_out {
        complain(&format!("left out: {} ({})", path.display(), why.why));
    }
    let done = if left_out.is_empty() { Exit::Done } else { Exit::Inconclusive };
    let published = reproduce::show::report(&Simulated::stored()?.beside(&measured(&records))?, true);
    Ok((Sources { records, sweeps, published, tool: process::tool() }, done))
}

/// Results, sweeps, and files that are neither.
type Read = (Vec<Record>, Vec<PathBuf>, Vec<LeftOut>);

/// Reads the results and sweeps of files and folders. A folder may have either.
fn read(given: &[PathBuf]) -> Result<Read, Error> {
    let (mut all, mut sweeps, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for source in given {
        if is_sweep(source) {
            sweeps.push(source.clone());
        } else if source.is_dir() {
            let here = sweeps_of(source)?;
            match folder_beside(source) {
                Ok((records, others)) => {
                    all.extend(records);
                    left_out.extend(others);
                }
                Err(_) if !here.is_empty() && files(source).is_err() => {}
                Err(error) => return Err(error),
            }
            sweeps.extend(here);
        } else {
            all.push(record(source).map_err(|error| removed::recording(source).unwrap_or(error))?);
        }
    }
    Ok((all, sweeps, left_out))
}

/// Lists the sweeps of a folder in order of their names. The index that `--by-host` keeps there is none.
fn sweeps_of(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: std::io::Error| {
        Error::usage(format!("cannot read {}", dir.display()), error.to_string(), "give a folder of results")
    };
    let names = Folder::open(dir).and_then(|folder| folder.names()).map_err(unreadable)?;
    let mut paths: Vec<PathBuf> = names
        .iter()
        .filter(|name| *name != fleet::index::INDEX)
        .map(|name| dir.join(name))
        .filter(|path| is_sweep(path))
        .collect();
    paths.sort();
    Ok(paths)
}
