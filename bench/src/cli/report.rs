//! Options of `vpmu report`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  vpmu report                                  every result of vpmu-results, as report.html
  vpmu report before.json after.json -o -      two results, the page on stdout
  vpmu report nightly sweep.jsonl -o nightly.html

The page needs no network and no script: open it in any browser, send it, print it.";

/// Options of `vpmu report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Result documents (.json), sweeps (.jsonl), or folders of them
    #[arg(value_name = "DIR|FILE", default_value = "vpmu-results")]
    pub sources: Vec<PathBuf>,

    /// The page; - for stdout
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,

    /// The page's title
    #[arg(long, value_name = "TEXT", default_value = "vPMU lab report")]
    pub title: String,
}
