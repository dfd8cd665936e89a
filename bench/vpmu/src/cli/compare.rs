//! `vpmu compare`.

use std::path::{Path, PathBuf};

use clap::Args;
use results::compare::{self, CompareSpec, Comparison};
use results::error::{Error, Exit};
use results::read::Found;
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host;
use super::files::{records, write_junit};
use super::options::SeriesOptions;
use crate::setting::options::{FormOptions, GateOptions, LimitOptions};
use crate::terminal::console;

/// Options of `vpmu compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// The reference: a document, a folder of documents, or a baseline's name
    #[arg(value_name = "BASE")]
    pub base: String,

    /// The result to judge, likewise; none with --arms
    #[arg(value_name = "NEW", required_unless_present = "arms")]
    pub new: Option<String>,

    /// Compare these arms of one result with the first of them
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["new", "arm"])]
    pub arms: Vec<String>,

    /// Limits beyond which a difference is called a change.
    #[command(flatten)]
    pub limits: LimitOptions,

    /// Arms and metrics to compare.
    #[command(flatten)]
    pub series: SeriesOptions,

    /// Judge although hosts or builds differ
    #[arg(long)]
    pub ignore_host_differences: bool,

    /// Compare each host with itself, then average over hosts; implied for campaigns
    #[arg(long, requires = "new", conflicts_with = "arms")]
    pub by_host: bool,

    /// How the result is passed on.
    #[command(flatten)]
    pub gate: GateOptions,

    /// Form of the result.
    #[command(flatten)]
    pub form: FormOptions,
}

pub(super) fn run(args: &CompareArgs) -> Result<Exit, Error> {
    if let Some(new) = &args.new {
        let sides = [Path::new(&args.base), Path::new(new)];
        if args.by_host || sides.into_iter().any(by_host::is_wanted) {
            return hosts(args, sides);
        }
    }
    let request = CompareSpec {
        limits: args.limits.limits(),
        arms: if args.new.is_none() { args.arms.clone() } else { args.series.arm.clone() },
        metrics: args.series.metric.clone(),
        unlike_hosts_allowed: args.ignore_host_differences,
        turns: false,
    };
    let all = args.gate.all_metrics;
    let Found { records: base, unsound: a, .. } = records(&[&args.base], all)?;
    let Found { records: new, unsound: b, .. } = records(args.new.as_slice(), all)?;
    let found = match (&args.new, &base[..]) {
        (Some(name), _) => compare::compare((&args.base, &base), (name, &new), &request)?,
        (None, [record]) => compare::arms(&args.base, record, &request)?,
        (None, several) => {
            let why = format!("it holds {} results", several.len());
            return Err(Error::usage(format!("cannot compare arms of {}", args.base), why, "give one result"));
        }
    };
    show(args, base.iter().chain(&new).map(|record| &record.path), found, a + b)
}

/// Compares per host.
fn hosts(args: &CompareArgs, sides: [&Path; 2]) -> Result<Exit, Error> {
    let SeriesOptions { arm, metric } = &args.series;
    let whole = arm.is_empty() && metric.is_empty();
    if !whole || args.ignore_host_differences || args.gate.all_metrics {
        let what = "--arm, --metric, -v and --ignore-host-differences are not for results by host";
        return Err(Error::usage(what, "each host is compared with itself, in all arms", "leave them out"));
    }
    let [base, new] = [by_host::gather(sides[0])?, by_host::gather(sides[1])?];
    let names = sides.map(Path::to_string_lossy);
    let found = fleet::compare((&names[0], &base.runs), (&names[1], &new.runs), &args.limits.limits())?;
    show(args, base.files.iter().chain(&new.files), found, base.bad + new.bad)
}

/// Prints a comparison without so many results, and writes it for `--junit`, which may be none of the inputs.
fn show<'a>(
    args: &'a CompareArgs,
    inputs: impl Iterator<Item = &'a PathBuf>,
    mut found: Comparison,
    unsound: usize,
) -> Result<Exit, Error> {
    if unsound > 0 {
        found.doubt(&format!("{} left out", plural(unsound, "result")));
    }
    let report = compare::report(&found, args.gate.all_metrics);
    let junit = args.gate.junit.as_deref();
    junit.map_or(Ok(()), |file| check_no_input(file, inputs))?;
    write_junit(junit, &report.junit()?)?;
    console::show(args.form.form(), &report, &found)?;
    Ok(found.exit())
}
