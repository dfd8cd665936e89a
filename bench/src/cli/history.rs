//! Options of `vpmu history`.

use std::path::PathBuf;

use clap::Args;

use super::parse::{number_in, one_of};
use crate::compare::Statistic;

pub(super) const EXAMPLES: &str = "\
Examples:
  vpmu history vpmu-results                    every arm and metric
  vpmu history --metric nmi_handler_ns --arm reuse --json vpmu-results

Exit codes: 0 done, 2 bad usage or input, 3 too few runs. `vpmu compare` is what judges.";

/// Options of `vpmu history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// A folder of documents, or a baseline's name
    #[arg(value_name = "DIR")]
    pub source: String,

    /// p values of the t-test below this are significant
    #[arg(long, value_name = "P", default_value = "0.001")]
    pub p: f64,

    /// A change of the mean by at least this share is strong
    #[arg(long, value_name = "SHARE", default_value = "0.05")]
    pub strength: f64,

    /// Runs looked at together
    #[arg(long, value_name = "N", default_value = "50", value_parser = number_in(6..=1000))]
    pub window: u64,

    /// Which number of each round the run's value is the median of
    #[arg(long, value_name = "NAME", default_value = "p50", value_parser = one_of(&Statistic::ALL, Statistic::name, Statistic::about))]
    pub statistic: Statistic,

    /// Only these arms
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub arm: Vec<String>,

    /// Only these metrics, e.g. nmi_handler_ns
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub metric: Vec<String>,

    /// The results folder in whose baselines/ the names are
    #[arg(long, value_name = "DIR", default_value = "vpmu-results")]
    pub results: PathBuf,

    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,
}
