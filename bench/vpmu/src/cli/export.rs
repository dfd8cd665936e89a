//! `vpmu export`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use crate::setting::parse::one_of;
use clap::Args;
use fleet::{gather, parquet};
use results::document::Record;
use results::error::{Error, Exit};
use results::export::{ALL, Format, export, left_out};
use results::write::check_no_input;

use super::by_host;
use super::files::{records, write};

use crate::terminal::console::{complain, internal, print, print_bytes};

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

/// A value of `--format`.
#[derive(Clone, Copy, Debug)]
pub enum ExportFormat {
    /// Made of whole documents.
    Documents(Format),
    /// Made of what each document is reduced to, so any number of them fits in memory.
    Parquet,
}

const FORMATS: [ExportFormat; ALL.len() + 1] = {
    let mut formats = [ExportFormat::Parquet; ALL.len() + 1];
    let mut at = 0;
    while at < ALL.len() {
        formats[at] = ExportFormat::Documents(ALL[at]);
        at += 1;
    }
    formats
};

impl ExportFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Documents(format) => format.name(),
            Self::Parquet => parquet::NAME,
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Documents(format) => format.about(),
            Self::Parquet => parquet::ABOUT,
        }
    }
}

/// Options of `vpmu export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Result documents (.json), or folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub sources: Vec<PathBuf>,

    /// The format
    #[arg(short, long, value_name = "FORMAT", value_parser = one_of(&FORMATS, ExportFormat::name, ExportFormat::about))]
    pub format: ExportFormat,

    /// Write to FILE instead of stdout, whole or not at all
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

pub(super) fn run(args: &ExportArgs) -> Result<Exit, Error> {
    let (bytes, inputs, exit) = match args.format {
        ExportFormat::Parquet => export_runs(args)?,
        ExportFormat::Documents(format) => {
            let records = records(&args.sources)?;
            let bytes = export_records(&records, format)?;
            (bytes, records.into_iter().map(|record| record.path).collect(), Exit::Done)
        }
    };
    match args.output.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => {
            check_no_input(file, inputs)?;
            write(file, &bytes)?;
        }
        None if matches!(args.format, ExportFormat::Documents(_)) => {
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

fn export_records(records: &[Record], format: Format) -> Result<Vec<u8>, Error> {
    let bytes = export(format, records)?;
    if !format.shows_empty_arms() {
        for line in left_out(records) {
            complain(&format!("notice: {line}"));
        }
    }
    Ok(bytes)
}

/// Exports result documents, reducing each one as it is read. Campaigns and large folders are read through their index, where a bad
/// document is left out with a line and the exit code says so. Beside the bytes are the files that they are made of.
fn export_runs(args: &ExportArgs) -> Result<(Vec<u8>, Vec<PathBuf>, Exit), Error> {
    let (mut runs, mut inputs, mut exit) = (Vec::new(), Vec::new(), Exit::Done);
    for source in &args.sources {
        if by_host::is_wanted(source, false) {
            let gathered = by_host::gather(source, true)?;
            exit = gathered.exit(exit);
            inputs.extend(gathered.files(source));
            runs.extend(gathered.runs);
        } else {
            let gathered = gather(source)?;
            inputs.extend(gathered.iter().map(|run| PathBuf::from(&run.file)));
            runs.extend(gathered);
        }
    }
    Ok((parquet::of_runs(&runs)?, inputs, exit))
}
