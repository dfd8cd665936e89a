//! `vpmu compare`.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use clap::Args;
use results::compare::{self, CompareSpec, Comparison, Rules, Statistic};
use results::document::Record;
use results::error::{Error, Exit};
use results::read;
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host;
use super::files::write_junit;
use super::options::SeriesOptions;
use crate::setting::options::{FormOptions, GateOptions, LimitOptions};
use crate::terminal::console::{self, complain};

pub(super) const EXAMPLES: &str = "\
Examples:
  # measure, and keep the result as baseline v1
  vpmu --save-baseline v1
  # judge a new result by it
  vpmu compare v1 vpmu-results/nmi-latency-20260131T120000Z.json
  # folders of runs; 8 a side and more, best taken in turns,
  # also judge what all arms have in common
  vpmu compare before/ after/
  # two arms of one result; the first is the reference
  vpmu compare --arms reuse,gate new.json
  # a table for a pull request
  vpmu compare --markdown v1 new.json
  # a gate for any host: × floor within a factor of 2
  vpmu compare --threshold 100% --ignore-host-differences \\
    --metric nmi_handler_ns v1 new.json
  # two campaigns, or folders of many hosts: as pairs of hosts
  vpmu compare --by-host baseline/ nightly/
  # limits by metric, and a JUnit report
  vpmu compare --rules rules.toml --junit report.xml v1 new.json

Exit codes: 0 no regression, 1 regression: slower, or more
host operations for a PMI, 2 bad usage or input,
3 inconclusive: too few rounds, different hosts, noise,
figures that are not whole, 70 a bug of vpmu.";

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

    /// What is called a change.
    #[command(flatten)]
    pub limits: LimitOptions,

    /// TOML file with limits, also by metric: alpha, threshold, bound, report-only
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,

    /// Arms, metrics and statistic to compare.
    #[command(flatten)]
    pub series: SeriesOptions,

    /// Judge although hosts or builds differ
    #[arg(long)]
    pub ignore_host_differences: bool,

    /// Compare each host with itself, then average over hosts; implied for campaigns
    #[arg(long, requires = "new", conflicts_with_all = ["arms", "arm", "metric", "quantile", "all_metrics", "ignore_host_differences"])]
    pub by_host: bool,

    /// Folder of results; baseline names are looked up in its baselines/
    #[arg(long, value_name = "DIR", default_value = "vpmu-results")]
    pub results: PathBuf,

    /// How the result is passed on.
    #[command(flatten)]
    pub gate: GateOptions,

    /// Form of the result.
    #[command(flatten)]
    pub form: FormOptions,
}

pub(super) fn run(args: &CompareArgs) -> Result<Exit, Error> {
    let rules = Rules::read(args.rules.as_deref(), args.limits.alpha, args.limits.threshold)?;
    if let Some(new) = &args.new {
        let (base, new) = (Path::new(&args.base), Path::new(new));
        if [base, new].into_iter().any(|source| by_host::is_wanted(source, args.by_host)) {
            return hosts(args, base, new, &rules);
        }
    }
    let request = CompareSpec {
        rules,
        statistic: args.series.quantile,
        arms: args.series.arm.clone(),
        metrics: args.series.metric.clone(),
        unlike_hosts_allowed: args.ignore_host_differences,
    };
    // The process ends with the comparison: giving the memory of a thousand documents back piece by piece would take a tenth of it.
    let base = ManuallyDrop::new(read::gather(&args.base, &args.results)?);
    let Some(name) = &args.new else {
        let [record] = base.as_slice() else {
            let why = format!("it holds {} results", base.len());
            return Err(Error::usage(format!("cannot compare arms of {}", args.base), why, "give one result"));
        };
        let found = compare::arms(&args.base, record, &args.arms, &request)?;
        return show(args, base.iter().map(|record| &record.path).chain(&args.rules), &found);
    };
    let mut new = ManuallyDrop::new(read::gather(name, &args.results)?);
    if !Path::new(&args.base).exists()
        && *name != args.base
        && let Some(left) = leave_out_older(&base, &mut new)
    {
        complain(&format!("note: {left} of {name} left out: not newer than baseline {}", args.base));
    }
    let sides = ((args.base.as_str(), base.as_slice()), (name.as_str(), new.as_slice()));
    let found = compare::compare(sides.0, sides.1, &request)?;
    show(args, base.iter().chain(&*new).map(|record| &record.path).chain(&args.rules), &found)
}

/// Leaves out of the new results those that were there when the baseline of their experiment was saved, its own run
/// among them, and says how many. Where all are such, they are meant.
fn leave_out_older(base: &[Record], new: &mut Vec<Record>) -> Option<String> {
    let saved = |experiment: &str| base.iter().filter(|of| of.experiment == experiment).map(|of| of.started_unix).max();
    let newer = |record: &Record| {
        record.is_simulated() || saved(&record.experiment).is_none_or(|last| record.started_unix > last)
    };
    let old = new.iter().filter(|record| !newer(record)).count();
    if old == 0 || old == new.len() {
        return None;
    }
    new.retain(newer);
    Some(plural(old, "result"))
}

/// Compares per host.
fn hosts(args: &CompareArgs, base: &Path, new: &Path, rules: &Rules) -> Result<Exit, Error> {
    let of_results = [
        ("--arm", !args.series.arm.is_empty()),
        ("--metric", !args.series.metric.is_empty()),
        ("--quantile", args.series.quantile != Statistic::default()),
        ("--ignore-host-differences", args.ignore_host_differences),
        ("--all-metrics", args.gate.all_metrics),
    ];
    by_host::refuse(base, &of_results)?;
    let gathered = [by_host::gather(base)?, by_host::gather(new)?];
    let inputs = [gathered[0].files(base), gathered[1].files(new)].concat();
    let [base, new] = [base, new].map(|source| source.to_string_lossy());
    let found = fleet::compare((&base, &gathered[0].runs), (&new, &gathered[1].runs), rules)?;
    let exit = show(args, inputs.iter().chain(&args.rules), &found)?;
    Ok(gathered[0].exit(gathered[1].exit(exit)))
}

/// Prints a comparison, and writes it for `--junit`, which may be none of the inputs.
fn show<'a>(args: &CompareArgs, inputs: impl Iterator<Item = &'a PathBuf>, found: &Comparison) -> Result<Exit, Error> {
    let report = compare::report(found, args.gate.all_metrics);
    args.gate.junit.as_deref().map_or(Ok(()), |file| check_no_input(file, inputs))?;
    write_junit(args.gate.junit.as_deref(), &report.junit())?;
    console::show(args.form.form(), &report, found)?;
    Ok(found.exit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::rounds::mock;

    fn record(started: u64) -> Record {
        let mut document = mock::finished(&[]).document;
        document.started_unix = started;
        serde_json::from_value(serde_json::to_value(document).unwrap()).unwrap()
    }

    #[test]
    fn results_that_were_there_before_the_baseline_are_left_out() {
        let base = [record(100)];
        let mut new = vec![record(50), record(100), record(200)];
        assert_eq!(leave_out_older(&base, &mut new).as_deref(), Some("2 results"));
        assert_eq!(new.iter().map(|record| record.started_unix).collect::<Vec<_>>(), [200]);
        assert_eq!(leave_out_older(&base, &mut new), None);
        let mut old = vec![record(50), record(60)];
        assert_eq!((leave_out_older(&base, &mut old), old.len()), (None, 2), "only older ones are meant");
    }
}
