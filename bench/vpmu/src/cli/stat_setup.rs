//! `vpmu stat-setup`.

use std::sync::atomic::Ordering;

use clap::Args;
use results::document::Status;
use results::error::{Error, Exit};

use super::measure::{Invocation, Shown, measure_plain};
use super::options::{Baseline, BaselineOptions, ResultOptions};
use crate::experiment::stat_setup::arms::SetUp;
use crate::experiment::stat_setup::events::EventRequest;
use crate::experiment::stat_setup::spec::{NAME, StatSetupSpec};
use crate::experiment::stat_setup::{once, show};
use crate::sys;
use crate::terminal::console::{Form, complain, print};

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
        match compare(one, &args.result, baseline.as_ref(), invocation)? {
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
    invocation: &Invocation,
) -> Result<Exit, Error> {
    if let Some(baseline) = baseline {
        baseline.check(NAME)?;
    }
    let set_up = SetUp::prepare(spec)?;
    let folder = (!result.no_save).then_some(result.output.as_path());
    let shown = Shown { folder, form: Form::of(result.json, false), quiet: result.quiet };
    let document = measure_plain(set_up.experiment(), shown, invocation, &show::report)?;
    // A run answers its question if it was not cut short, its strategies' counts agree, its rounds are enough for an interval, and
    // every event of the list can be counted here.
    let answered = show::ratios(&document).iter().all(|one| !one.like_for_like || one.ratio.interval.is_some());
    let whole = document.status == Status::Complete && set_up.agree && set_up.whole && answered;
    let exit = if whole { Exit::Done } else { Exit::Inconclusive };
    if let Some(baseline) = baseline {
        baseline.keep(&document, exit)?;
    }
    Ok(exit)
}
