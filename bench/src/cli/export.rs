//! `vpmu export`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;
use results::error::{Error, Exit};
use results::export::{ALL, Format, export, export_runs, left_out};
use results::fleet::gather;

use super::by_host;
use super::files::{records, write};
use super::values::one_of;
use crate::console::{complain, internal, print, print_bytes};

pub(super) const EXAMPLES: &str = "\
Examples:
  # rows on stdout
  vpmu export vpmu-results/X.json --format csv
  # every result of the folder
  vpmu export vpmu-results --format benchstat -o new.txt
  # a picture of strategies against the floor
  vpmu export vpmu-results/X.json --format svg -o x.svg
  # every figure, for pandas and DuckDB
  vpmu export vpmu-results --format parquet -o figures.parquet
  # for a node exporter
  vpmu export X.json --format prometheus \\
    -o /var/lib/node_exporter/textfile/vpmu.prom

Exit codes: 0 done, 2 bad usage or input, 3 a bad document of a
campaign was left out (parquet), 70 a bug of vpmu.";

/// Options of `vpmu export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Result documents (.json), or folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub sources: Vec<PathBuf>,

    /// The format
    #[arg(short, long, value_name = "FORMAT", value_parser = one_of(&ALL, Format::name, Format::about))]
    pub format: Format,

    /// Write to FILE instead of stdout, whole or not at all
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

pub(super) fn run(args: &ExportArgs) -> Result<Exit, Error> {
    let (bytes, exit) = if args.format.takes_runs() { of_runs(args)? } else { (of_records(args)?, Exit::Done) };
    match args.output.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => write(file, &bytes)?,
        None if args.format.is_text() => {
            print(&String::from_utf8(bytes).map_err(|error| internal("cannot show the export", error))?)?;
        }
        None if std::io::stdout().is_terminal() => {
            let what = format!("cannot show {}", args.format.name());
            return Err(Error::usage(what, "it is no text, and stdout is a terminal", "give -o FILE"));
        }
        None => print_bytes(&bytes)?,
    }
    Ok(exit)
}

fn of_records(args: &ExportArgs) -> Result<Vec<u8>, Error> {
    let records = records(&args.sources)?;
    let bytes = export(args.format, &records)?;
    if !args.format.shows_empty_arms() {
        for line in left_out(&records) {
            complain(&format!("notice: {line}"));
        }
    }
    Ok(bytes)
}

/// Of any number of documents: each is reduced to what the format needs. Those of campaigns and of large folders by way of their
/// index; a bad one among them is left out with a line, and the exit code says so.
fn of_runs(args: &ExportArgs) -> Result<(Vec<u8>, Exit), Error> {
    let (mut runs, mut exit) = (Vec::new(), Exit::Done);
    for source in &args.sources {
        if by_host::is_wanted(source, false) {
            let gathered = by_host::gather(source, true)?;
            exit = gathered.exit(exit);
            runs.extend(gathered.runs);
        } else {
            runs.extend(gather(source)?);
        }
    }
    Ok((export_runs(args.format, &runs)?, exit))
}
