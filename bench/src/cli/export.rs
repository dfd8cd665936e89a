//! Options of `vpmu export`.

use std::path::PathBuf;

use clap::Args;

use super::parse::one_of;
use crate::export::Format;

pub(super) const EXAMPLES: &str = "\
Examples:
  vpmu export vpmu-results/X.json --format csv           rows on stdout
  vpmu export vpmu-results --format benchstat -o new.txt every result of the folder
  vpmu export X.json --format prometheus -o /var/lib/node_exporter/textfile/vpmu.prom";

/// Options of `vpmu export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Result documents (.json), or folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub sources: Vec<PathBuf>,

    /// What to write
    #[arg(short, long, value_name = "FORMAT", value_parser = one_of(&Format::ALL, Format::name, Format::about))]
    pub format: Format,

    /// Write to FILE instead of stdout, whole or not at all
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
