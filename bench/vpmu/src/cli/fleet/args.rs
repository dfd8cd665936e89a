//! Options of `vpmu fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::setting::parse;
use fleet::campaign::trust::Trust;

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  # what would run, and how long
  vpmu fleet plan nightly.toml
  # here, one element after the other; the report at the end
  vpmu fleet nightly.toml
  # on the nodes of a cluster
  vpmu fleet submit nightly.toml --on slurm -o /shared/nightly
  vpmu fleet status /shared/nightly
  vpmu fleet wait /shared/nightly --timeout 7h
  vpmu fleet report /shared/nightly

A plan (docs/fleet.md has all keys):
  name = 'nightly'
  hosts = [{ names = 'clx[001-004]' }, { constraint = 'icx' }]
  repeat = { times = 3, every = '6h' }
  [[experiment]]
  run = 'nmi-latency'
  options = { workload = 'sampling4', rounds = 160 }
  [[variant]]
  name = 'before'
  binary = 'vpmu-1.0'
  [[variant]]
  name = 'after'

Exit codes: 0 done, 1 an element failed or a figure is slower,
2 bad usage or plan, 3 elements without an outcome or an
inconclusive one, 4 Slurm is not there or does not answer,
70 a bug of vpmu.";

/// Options of `vpmu fleet`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FleetArgs {
    /// Command to carry out.
    #[command(subcommand)]
    pub command: Option<FleetCommand>,
    /// The plan.
    #[command(flatten)]
    pub submit: Option<SubmitArgs>,
}

/// Commands for a campaign.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// List a plan's elements and how long they take; run nothing
    Plan(PlanArgs),
    /// Run the elements of a plan that have no outcome
    Submit(SubmitArgs),
    /// Show how far a campaign is
    Status(StatusArgs),
    /// Wait until no element runs or waits for a node
    Wait(WaitArgs),
    /// Check results, put parts of sweeps together, bring the index up to date
    Collect(DirArgs),
    /// Cancel a campaign's jobs
    Cancel(DirArgs),
    /// Collect, then judge: failed elements, odd hosts, variants; writes report.html, summary.md, junit.xml
    Report(ReportArgs),
    /// Run one element, as its job does
    #[command(hide = true)]
    Element(ElementArgs),
}

/// Options of `vpmu fleet plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,
    /// Print the elements as JSON
    #[arg(long)]
    pub json: bool,
}

impl SubmitArgs {
    // Not flattened: clap leaves the arguments of a struct that is optional (`FleetArgs::submit`) unseen once it flattens another.
    pub(super) fn trust(&self) -> TrustArgs {
        TrustArgs { trust_group: self.trust_group }
    }
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
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,

    /// Where elements run: local, one after the other, or slurm
    #[arg(long, value_enum, default_value_t, value_name = "PLACE", hide_possible_values = true)]
    pub on: On,

    /// Folder of the campaign, on a file system that every node has [default: vpmu-campaigns/NAME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Run failed elements again, too
    #[arg(long)]
    pub retry_failed: bool,

    /// Go on with the vpmu of the first submission, although this one is another
    #[arg(long)]
    pub keep_binary: bool,

    /// Act on a folder that a group of yours can change: whatever its members put there runs as you
    #[arg(long)]
    pub trust_group: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Whom a command trusts that acts on a campaign's folder.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct TrustArgs {
    /// Act on a folder that a group of yours can change: whatever its members put there runs as you
    #[arg(long)]
    pub trust_group: bool,
}

impl TrustArgs {
    pub(super) fn trust(self) -> Trust {
        if self.trust_group { Trust::Group } else { Trust::Own }
    }
}

/// A campaign's folder.
#[derive(Clone, Debug, Args)]
pub struct DirArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Its folder
    #[command(flatten)]
    pub trust: TrustArgs,
}

/// Options of `vpmu fleet status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// List every element
    #[arg(long)]
    pub all: bool,
    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,
}

/// Options of `vpmu fleet report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON in place of the table
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Its folder
    #[command(flatten)]
    pub trust: TrustArgs,
}

/// Options of `vpmu fleet element`.
#[derive(Clone, Debug, Args)]
pub struct ElementArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Number of the element
    #[arg(value_name = "NUMBER")]
    pub number: u64,
    /// Its folder
    #[command(flatten)]
    pub trust: TrustArgs,
}

/// Options of `vpmu fleet wait`.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Give up after this time: exit 3
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub timeout: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::usage::parsed;

    #[test]
    fn a_plan_needs_no_subcommand() {
        let args: FleetArgs = parsed(&["plan.toml", "--trust-group", "-o", "out"]).unwrap();
        let submit = args.submit.expect("the plan");
        assert_eq!(
            (submit.plan.to_str(), submit.trust().trust(), args.command.is_none()),
            (Some("plan.toml"), Trust::Group, true)
        );
        assert!(parsed::<FleetArgs>(&["status", "out"]).unwrap().submit.is_none());
    }
}
