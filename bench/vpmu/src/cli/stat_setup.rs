//! `vpmu stat-setup`.

use std::sync::atomic::Ordering;

use clap::Args;
use results::document::Status;
use results::error::{Error, Exit};
use results::table::{self, layout::columns};
use results::write::{OutputFolder, time_stamp};
use stat_setup::unit::Outcome;

use super::measure::Invocation;
use super::options::ResultOptions;
use super::options::{Baseline, BaselineOptions};
use crate::experiment::stat_setup::document::{Document, EventResult};
use crate::experiment::stat_setup::prepare::EventRequest;
use crate::experiment::stat_setup::spec::{NAME, StatSetupSpec};
use crate::experiment::stat_setup::{once, run as experiment, show};
use crate::sys;
use crate::terminal::console::{compact, complain, internal, print};
use crate::terminal::progress;

pub(super) const EXAMPLES: &str = "\
Examples:
  # 700 software events on every CPU, every strategy
  vpmu stat-setup
  # the same beside stock `perf stat -a`, shuffled, 15 rounds
  vpmu stat-setup --against perf
  # a list as perf writes it
  vpmu stat-setup --events context-switches:u,page-faults
  vpmu stat-setup --events events.txt --cpus 0-3 \\
    --strategy event-major,cpu-major,auto
  # tracepoints, each closed in tens of ms
  vpmu stat-setup --events tracepoints:700 --strategy auto \\
    --against perf --rounds 5
  # growth: a result each, and one plot of them
  vpmu stat-setup --events 100,200,400,800,1600 -o growth
  vpmu report growth

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive,
4 the host cannot do it, 70 a bug of vpmu.";

/// Options of `vpmu stat-setup`.
#[derive(Clone, Debug, Args)]
pub struct StatSetupArgs {
    /// The events, and the arms that set them up.
    #[command(flatten)]
    pub spec: StatSetupSpec,
    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
    /// The result as a baseline.
    #[command(flatten)]
    pub baseline: BaselineOptions,
}

pub(super) fn run(args: &StatSetupArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let spec = &args.spec;
    spec.strategies()?;
    let baseline = args.baseline.baseline(&args.result);
    let all = spec.each();
    if all.len() > 1 && (spec.once || baseline.is_some()) {
        let option = if spec.once { "--once" } else { "--save-baseline" };
        return Err(Error::usage(format!("{option} takes one number of events"), "", "give one, e.g. --events 100"));
    }
    if spec.once {
        return run_once(spec, args.result.quiet);
    }
    // All numbers are known to be good before the first is measured.
    all.iter().try_for_each(|one| EventRequest::read(&one.events).map(drop))?;
    let mut exit = Exit::Done;
    for one in &all {
        match compare(one, &args.result, baseline.as_ref(), invocation.command_line.clone())? {
            Exit::Done => {}
            other => exit = other,
        }
        if sys::interrupted().load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(exit)
}

fn run_once(spec: &StatSetupSpec, quiet: bool) -> Result<Exit, Error> {
    let found = once::run_once(spec, &mut print)?;
    for warning in &found.warnings {
        complain(&format!("warning: {warning}"));
    }
    if !quiet {
        complain(&found.phases);
    }
    Ok(if found.whole { Exit::Done } else { Exit::Inconclusive })
}

fn compare(
    spec: &StatSetupSpec,
    result: &ResultOptions,
    baseline: Option<&Baseline>,
    command_line: Vec<String>,
) -> Result<Exit, Error> {
    if let Some(baseline) = baseline {
        baseline.check(NAME)?;
    }
    let mut folder = if result.no_save { None } else { Some(OutputFolder::open(&result.output)?) };
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let mut progress = progress::shown(!result.quiet);
    let document = experiment::run(spec, command_line, progress.as_mut())?;
    let json = compact(&document)?;
    let mut saved = String::new();
    if let Some(folder) = &mut folder {
        let stem = format!("{}-{}", document.experiment, time_stamp(document.started_unix));
        let path = folder.write(&stem, json.as_bytes())?;
        saved = format!("saved: {}\n", path.display());
    }
    if result.json {
        print(&json)?;
    } else {
        print(&(show::report(&document).text(columns()) + &saved))?;
    }
    for warning in table::warnings(&document.warnings) {
        complain(&format!("warning: {warning}"));
    }
    match baseline {
        Some(_) if !document.extra.agree => {
            complain("warning: no baseline is kept: the counts of the strategies differ");
        }
        Some(baseline) => baseline.keep(&document, verdict(&document))?,
        None => {}
    }
    Ok(verdict(&document))
}

/// Judges whether the document answers its question: not if it was cut short, if the strategies' counts differ, if its rounds
/// are too few for an interval, or if an event of the list cannot be counted here.
fn verdict(document: &Document) -> Exit {
    let lacks = |event: &EventResult| matches!(event.outcome, Outcome::NotSupported { .. });
    let all = !document.extra.events.iter().any(lacks);
    let answered = document.extra.ratios.iter().all(|one| !one.like_for_like || one.interval.is_some());
    let whole = document.status == Status::Complete && document.extra.agree && all && answered;
    if whole { Exit::Done } else { Exit::Inconclusive }
}
