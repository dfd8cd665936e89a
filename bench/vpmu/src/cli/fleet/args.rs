//! Options of `vpmu fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::setting::options::{FormOptions, JsonOption, QuietOption};
use crate::setting::parse;

/// Commands for a campaign.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// List a plan's elements and their time limits; run nothing
    Plan {
        /// The plan
        plan: PathBuf,
        /// The elements as JSON.
        #[command(flatten)]
        json: JsonOption,
    },
    /// Run the elements of a plan that have no outcome
    Submit(SubmitArgs),
    /// Show how far a campaign is
    Status {
        /// Folder of the campaign
        dir: PathBuf,
        /// Wait until no element runs or waits for a node; exit 4 for jobs that never start
        #[arg(long)]
        wait: bool,
        /// JSON in place of the table.
        #[command(flatten)]
        json: JsonOption,
    },
    /// Judge: failed elements, hosts that stand apart, variants; writes report.html, summary.md, junit.xml
    Report {
        /// Folder of the campaign
        dir: PathBuf,
        /// Form of the report.
        #[command(flatten)]
        form: FormOptions,
    },
    /// Run one element, as its job does
    #[command(hide = true)]
    Element {
        /// Folder of the campaign
        dir: PathBuf,
        /// Number of the element
        number: u64,
    },
}

/// Place at which elements run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On this machine, one after the other; the plan's hosts and times are names only.
    #[default]
    Local,
    /// As Slurm's array jobs.
    Slurm,
}

/// Options of `vpmu fleet submit`.
#[derive(Clone, Debug, Args)]
pub struct SubmitArgs {
    /// The plan
    pub plan: PathBuf,

    /// Place where elements run: local, one after the other, or slurm
    #[arg(long, value_enum, default_value_t, value_name = "PLACE", hide_possible_values = true)]
    pub on: On,

    /// Folder of the campaign, on a file system that every node has [default: vpmu-campaigns/NAME]
    #[arg(short, long, value_name = "DIR", value_parser = parse::folder)]
    pub output: Option<PathBuf>,

    /// No progress.
    #[command(flatten)]
    pub quiet: QuietOption,
}
