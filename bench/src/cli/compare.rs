//! Options of `vpmu compare`.

use std::path::PathBuf;

use clap::Args;

use super::parse::{number_in, one_of};
use crate::compare::Statistic;
use crate::stats::permutation::MIN_RESAMPLES;

pub(super) const EXAMPLES: &str = "\
Examples:
  vpmu --save-baseline v1                      measure, and keep the result as baseline v1
  vpmu compare v1 vpmu-results/nmi-latency-20260131T120000Z.json
  vpmu compare before/ after/                  folders: all their rounds, or their runs where both hold 8 or more
  vpmu compare --markdown v1 new.json          for a pull request
  vpmu compare --ratios 3 results/baselines/development-host vpmu-results
                                               only × floor, within a factor: a gate for any host
  vpmu compare --thresholds limits.toml --junit report.xml v1 new.json

Exit codes: 0 no regression, 1 regression, 2 bad usage or input, 3 it cannot be told: too few rounds, unlike hosts, too noisy.";

/// Options of `vpmu compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// What it was: a document, a folder of documents, or a baseline's name
    #[arg(value_name = "BASE")]
    pub base: String,

    /// What it is now, likewise
    #[arg(value_name = "NEW")]
    pub new: String,

    /// Adjusted p values below this are significant [default: 0.01]
    #[arg(long, value_name = "P")]
    pub p: Option<f64>,

    /// A change of the median by at least this share is strong [default: 0.05]
    #[arg(long, value_name = "SHARE")]
    pub strength: Option<f64>,

    /// TOML file with thresholds, also by metric: p, strength, least-change-ns, report-only
    #[arg(long, value_name = "FILE")]
    pub thresholds: Option<PathBuf>,

    /// Which number of each round is compared
    #[arg(long, value_name = "NAME", default_value = "p50", value_parser = one_of(&Statistic::ALL, Statistic::name, Statistic::about))]
    pub statistic: Statistic,

    /// Compare only these arms
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub arm: Vec<String>,

    /// Compare only these metrics, e.g. nmi_handler_ns
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub metric: Vec<String>,

    /// Judge although hosts or builds differ
    #[arg(long)]
    pub allow_unlike_hosts: bool,

    /// Instead, only bound each arm's ratio to the floor: NEW's may be FACTOR times BASE's; hosts may differ
    #[arg(long, value_name = "FACTOR", conflicts_with_all = ["markdown", "junit", "thresholds", "p", "strength"])]
    pub ratios: Option<f64>,

    /// Resamples of the permutation test where it cannot be counted exactly, and of the bootstrap
    #[arg(long, value_name = "N", default_value = "9999", value_parser = number_in(MIN_RESAMPLES.into()..=10_000_000))]
    pub resamples: u64,

    /// Seed of the resamples
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX))]
    pub seed: u64,

    /// The results folder in whose baselines/ the names are
    #[arg(long, value_name = "DIR", default_value = "vpmu-results")]
    pub results: PathBuf,

    /// Print Markdown in place of the table
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,

    /// Also write a JUnit report
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}
