//! `vpmu stat-setup`.

use std::sync::atomic::Ordering;

use clap::Args;
use results::document::{Record, Status};
use results::error::{Error, Exit};
use stat_setup::list::sysfs::Sysfs;

use super::measure::{Invocation, Shown, measure_then};
use super::options::{BaselineOptions, ResultOptions};
use crate::experiment::stat_setup::arms::prepare;
use crate::experiment::stat_setup::{NAME, StatSetupSpec};
use crate::experiment::stat_setup::{events, show};
use crate::sys;

pub(super) const EXAMPLES: &str = "\
Examples:
  # 700 software events on every CPU, every strategy
  vpmu stat-setup
  # the same beside stock `perf stat -a`, shuffled, 15 rounds
  vpmu stat-setup --against perf
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
    let StatSetupArgs { spec, result, baseline } = args;
    let (all, baseline) = (spec.each(), baseline.baseline(result));
    if all.len() > 1 && baseline.is_some() {
        return Err(Error::usage("--save-baseline takes one number of events", "", "give one, e.g. --events 100"));
    }
    if let Some(baseline) = &baseline {
        baseline.check(NAME)?;
    }
    // All numbers are known to be good before the first is measured.
    all.iter().try_for_each(|one| events::text(&one.events, &Sysfs::host()).map(drop))?;
    let mut exit = Exit::Done;
    for one in &all {
        let (experiment, arms, whole) = prepare(one)?;
        // A run answers its question if it was not cut short, its strategies' counts agree, its rounds are enough for an interval,
        // and every event of the list can be counted here.
        let mut conclude = |document: &mut Record| {
            if document.status != Status::Complete || !whole || !show::is_answered(document) {
                exit = Exit::Inconclusive;
                document.exit = Some(exit.code());
            }
        };
        let shown = Shown::of(result);
        let document = measure_then((experiment, arms), &shown, invocation, &mut conclude, &show::report)?;
        if let Some(baseline) = &baseline {
            baseline.keep(&document, &document.experiment, exit)?;
        }
        if sys::interrupted().load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(exit)
}
