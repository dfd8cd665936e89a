//! `vpmu history`.

use std::path::Path;
use std::process::Command;

use clap::Args;
use results::compare::CompareSpec;
use results::error::{Error, Exit};
use results::history::{self, Order};
use results::open;
use results::read::{Found, ends};
use results::stats::change_points::USUAL;

use super::files::records;
use super::options::SeriesOptions;
use crate::setting::options::{JsonOption, LimitOptions};
use crate::terminal::console;

/// Options of `vpmu history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// A folder of documents, or a baseline's name
    #[arg(value_name = "DIR")]
    pub source: String,

    /// Limits beyond which a difference is called a change.
    #[command(flatten)]
    pub limits: LimitOptions,

    /// Order of the runs: time, kernel, revision (by `git rev-list` here), or a file of revisions, the oldest first
    #[arg(long, value_name = "ORDER", default_value = "time")]
    pub by: String,

    /// Arms and metrics to follow.
    #[command(flatten)]
    pub series: SeriesOptions,

    /// JSON in place of the table.
    #[command(flatten)]
    pub json: JsonOption,
}

pub(super) fn run(args: &HistoryArgs) -> Result<Exit, Error> {
    let request = CompareSpec {
        limits: USUAL.with(args.limits.alpha, args.limits.threshold),
        arms: args.series.arm.clone(),
        metrics: args.series.metric.clone(),
        ..CompareSpec::default()
    };
    let order = order(&args.by)?;
    let Found { records, unsound, .. } = records(&[&args.source], false)?;
    let found = history::history(&args.source, &records, &request, &order)?;
    console::show(args.json.json, &history::report(&found), &found)?;
    Ok(ends(found.exit(), unsound))
}

/// Most bytes of a list of revisions: a million of them.
const MAX_LIST: u64 = 64 << 20;

/// Reads the order of runs.
fn order(by: &str) -> Result<Order, Error> {
    let refuse = |why: String| {
        let remedy =
            "--by FILE: a line for each revision, the oldest first, as git rev-list --reverse HEAD prints them";
        Error::usage(format!("cannot order runs by {by}"), why, remedy)
    };
    let list = match by {
        "time" => return Ok(Order::Time),
        "kernel" => return Ok(Order::Kernel),
        "revision" => {
            let listed = Command::new("git").args(["rev-list", "--topo-order", "--reverse", "--all", "HEAD"]).output();
            let listed = listed.map_err(|error| refuse(format!("git: {error}")))?;
            if !listed.status.success() {
                return Err(refuse(String::from_utf8_lossy(&listed.stderr).trim().to_owned()));
            }
            String::from_utf8_lossy(&listed.stdout).into_owned()
        }
        file => open::named_text(Path::new(file), MAX_LIST).map_err(|error| refuse(error.to_string()))?,
    };
    let list = list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect::<Vec<_>>();
    if list.is_empty() { Err(refuse("there is no revision".to_owned())) } else { Ok(Order::Revisions(list)) }
}
