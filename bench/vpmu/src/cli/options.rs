//! Options that several commands share; each means the same everywhere.

use std::path::PathBuf;

use clap::Args;
use results::compare::Statistic;

use crate::setting::parse::{folder, one_of};

/// Arms, metrics and statistic to compare or follow.
#[derive(Clone, Debug, Args)]
pub struct SeriesOptions {
    /// Per-round statistic
    #[arg(long, value_name = "NAME", default_value = "p50", value_parser = one_of(&Statistic::ALL, Statistic::name, Statistic::about))]
    pub quantile: Statistic,

    /// Only these arms
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub arm: Vec<String>,

    /// Only these metrics, e.g. nmi_handler_ns
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub metric: Vec<String>,
}

/// Place and form of an experiment's result.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Result")]
pub struct ResultOptions {
    /// Folder for the results
    #[arg(short = 'o', long = "output", value_name = "DIR", default_value = "vpmu-results", value_parser = folder)]
    pub output: PathBuf,

    /// Write no results; a baseline of --save-baseline is kept
    #[arg(long)]
    pub no_save: bool,

    /// Print the result document in place of the table
    #[arg(long)]
    pub json: bool,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}
