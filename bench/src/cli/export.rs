//! `vpmu export`.

use std::path::{Path, PathBuf};

use clap::Args;
use results::error::{Error, Exit};
use results::export::{ALL, Format, export, left_out};

use super::files::{records, write};
use super::values::one_of;
use crate::console::{complain, internal, print};

pub(super) const EXAMPLES: &str = "\
Examples:
  # rows on stdout
  vpmu export vpmu-results/X.json --format csv
  # every result of the folder
  vpmu export vpmu-results --format benchstat -o new.txt
  # a picture of strategies against the floor
  vpmu export vpmu-results/X.json --format svg -o x.svg
  # for a node exporter
  vpmu export X.json --format prometheus \\
    -o /var/lib/node_exporter/textfile/vpmu.prom

Exit codes: 0 done, 2 bad usage or input, 70 a bug of vpmu.";

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
    let records = records(&args.sources)?;
    let bytes = export(args.format, &records)?;
    if !args.format.shows_empty_arms() {
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
