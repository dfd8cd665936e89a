//! `vpmu export`.

use std::path::{Path, PathBuf};

use clap::Args;
use results::error::{Error, Exit};
use results::export::{ALL, Format, export};
use results::read::{Found, ends};
use results::write::check_no_input;

use super::files::{records, write};
use crate::setting::options::OutputOption;
use crate::setting::parse::one_of;
use crate::terminal::console::print;

/// Options of `vpmu export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Result documents (.json), or folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub sources: Vec<PathBuf>,

    /// The format
    #[arg(short, long, value_name = "FORMAT", value_parser = one_of(&ALL, |format| format.name, |format| format.about))]
    pub format: Format,

    /// The file in place of stdout, whole or not at all.
    #[command(flatten)]
    pub output: OutputOption,
}

pub(super) fn run(args: &ExportArgs) -> Result<Exit, Error> {
    let Found { records, unsound, .. } = records(&args.sources, false)?;
    let text = export(args.format, &records)?;
    match args.output.output.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => {
            check_no_input(file, records.iter().map(|record| &record.path))?;
            write(file, text.as_bytes())?;
        }
        None => print(&text)?,
    }
    Ok(ends(Exit::Done, unsound))
}
