//! `vpmu reproduce`.

use std::path::PathBuf;

use clap::Args;
use results::error::{Error, Exit};
use results::read;
use results::table::layout::columns;

use crate::console::{print, print_json};
use crate::experiment::reproduce::run::reproduce;
use crate::experiment::reproduce::show;
use crate::parse::number_in;

pub(super) const EXAMPLES: &str = "\
Examples:
  # published beside simulated figures
  vpmu reproduce
  # and measured ones, where they answer a figure
  vpmu reproduce --measured vpmu-results/nmi-*.json

Exit codes: 0 done, 2 bad usage or input, 70 a bug of vpmu.";

/// Options of `vpmu reproduce`.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Result documents (.json of nmi-latency) to set beside the published figures
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub measured: Vec<PathBuf>,

    /// Seed of the simulations
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX))]
    pub seed: u64,

    /// Print Markdown in place of the table
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &ReproduceArgs) -> Result<Exit, Error> {
    let documents = args.measured.iter().map(|file| read::document(file)).collect::<Result<Vec<_>, _>>()?;
    let found = reproduce(args.seed, &documents)?;
    if args.json {
        print_json(&found)?;
    } else if args.markdown {
        print(&show::markdown(&found))?;
    } else {
        print(&show::text(&found, columns()))?;
    }
    Ok(Exit::Done)
}
