//! `vpmu report`.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use clap::Args;
use results::error::{Error, Exit};
use results::read::{folder_beside, record};
use results::report::{self, Sources, html};
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host;
use super::files::write;
use crate::experiment::reproduce::{self, run::Simulated};
use crate::setting::options::OutputOption;
use crate::setting::process;
use crate::terminal::console::{complain, print};

pub(super) const EXAMPLES: &str = "\
Examples:
  # every result of vpmu-results, as report.html
  vpmu report
  # two results, the page on stdout
  vpmu report before.json after.json -o -

  # many hosts
  vpmu report --by-host fleet/ -o fleet.html

The page needs no network and no script: open it in any browser,
send it, print it.

Exit codes: 0 done, 2 bad usage or input, 3 a document
could not be used, 70 a bug of vpmu.";

/// Options of `vpmu report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Result documents (.json), or folders of them
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

pub(super) fn run(args: &ReportArgs) -> Result<Exit, Error> {
    if let [source] = &args.sources[..]
        && by_host::is_wanted(source, args.by_host)
    {
        let gathered = by_host::gather(source)?;
        let page = report::page(&fleet::report(&fleet::analyse(&gathered.runs)), &args.title, &process::tool())?;
        put(args, &page, gathered.files(source), gathered.runs.len())?;
        return Ok(gathered.exit(Exit::Done));
    }
    if args.by_host || args.sources.iter().any(|source| by_host::is_wanted(source, false)) {
        return Err(Error::usage("a page by host has one source", "several are given", "give one campaign or folder"));
    }
    let (sources, done) = sources(&args.sources)?;
    // As in `compare`, memory is not given back piece by piece at the end.
    let sources = ManuallyDrop::new(sources);
    let page = html(&sources, &args.title)?;
    put(args, &page, sources.records.iter().map(|record| &record.path), sources.records.len())?;
    Ok(done)
}

/// Prints a page, or writes it, to none of its inputs, and says what is in it.
fn put<P: AsRef<Path>>(
    args: &ReportArgs,
    page: &str,
    inputs: impl IntoIterator<Item = P>,
    results: usize,
) -> Result<(), Error> {
    let output = args.output.or("report.html");
    if output == Path::new("-") {
        return print(page);
    }
    check_no_input(&output, inputs)?;
    write(&output, page.as_bytes())?;
    let (what, size) = (plural(results, "result"), page.len() as f64 / 1e6);
    complain(&format!("{what} in {} ({size:.1} MB)", output.display()));
    Ok(())
}

/// Reads the results of files and folders, beside the published figures, and says what is left out.
fn sources(given: &[PathBuf]) -> Result<(Sources, Exit), Error> {
    let (mut records, mut done) = (Vec::new(), Exit::Done);
    for source in given {
        if !source.is_dir() {
            records.push(record(source)?);
            continue;
        }
        let (sound, left_out) = folder_beside(source)?;
        records.extend(sound);
        for (path, why) in left_out {
            complain(&format!("left out: {} ({})", path.display(), why.why));
            done = Exit::Inconclusive;
        }
    }
    let published = reproduce::show::report(&Simulated::stored()?.beside()?, false);
    Ok((Sources { records, published, tool: process::tool() }, done))
}
