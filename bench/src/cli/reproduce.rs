//! `vpmu reproduce`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use results::error::{Error, Exit};
use results::read;
use results::table::layout::columns;

use crate::console::{complain, print, print_json};
use crate::experiment::reproduce::compression;
use crate::experiment::reproduce::compression::measure::{self, CompressionSpec};
use crate::experiment::reproduce::measured;
use crate::experiment::reproduce::run::reproduce;
use crate::experiment::reproduce::show;
use crate::parse::number_in;

pub(super) const EXAMPLES: &str = "\
Examples:
  # published beside simulated figures
  vpmu reproduce
  # and measured ones, where they answer a figure
  vpmu reproduce --measured vpmu-results/nmi-*.json
  # record a guest at each level of compression, a minute or two
  vpmu reproduce --run record-compression

Exit codes: 0 done, 2 bad usage or input; with --run 3 a recording
ended early, 4 the host cannot record; 70 a bug of vpmu.";

/// Options of `vpmu reproduce`.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Result documents (.json of nmi-latency) to set beside the published figures
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub measured: Vec<PathBuf>,

    /// Measure on this host what a published figure says, in place of the table
    #[arg(long, value_name = "FIGURE", value_enum, conflicts_with = "measured")]
    pub run: Option<Measurable>,

    /// Rounds of --run, with every recording once; five have an interval [default: 5]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(1..=1000))]
    pub rounds: Option<u64>,

    /// Products of matrices that the guest of --run makes; some ms each [default: 1000]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(1..=1_000_000))]
    pub products: Option<u64>,

    /// Seed of the simulations; with --run of the order of recordings
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX))]
    pub seed: u64,

    /// Print Markdown in place of the table
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,
}

/// A figure that is measured here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measurable {
    /// What compressing a recording costs and saves, by level, beside stock perf
    RecordCompression,
}

/// Records a guest at each level of compression.
fn measured_compression(args: &ReproduceArgs) -> Result<Exit, Error> {
    let (rounds, products) = (args.rounds.unwrap_or(5), args.products.unwrap_or(1000));
    let found = measure::compression(&CompressionSpec { rounds, products, seed: args.seed })?;
    if args.json {
        print_json(&found)?;
    } else if args.markdown {
        print(&compression::show::markdown(&found))?;
    } else {
        print(&compression::show::text(&found, columns()))?;
    }
    Ok(Exit::Done)
}

pub(super) fn run(args: &ReproduceArgs) -> Result<Exit, Error> {
    if args.run == Some(Measurable::RecordCompression) {
        return measured_compression(args);
    }
    let documents = args.measured.iter().map(|file| read::document(file)).collect::<Result<Vec<_>, _>>()?;
    for (file, document) in args.measured.iter().zip(&documents) {
        if !measured::answers(document) {
            complain(&format!(
                "notice: {}: no published figure matches it (backend {}, workload {}, {}); docs/simulator.md has what does",
                file.display(),
                document.parameters.backend,
                document.parameters.workload,
                document.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", ")
            ));
        }
    }
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
