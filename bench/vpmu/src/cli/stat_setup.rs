//! `vpmu stat-setup`.

use clap::Args;
use results::answers::over;
use results::document::{Record, Status};
use results::error::{Error, Exit};
use results::metric::TOTAL;
use serde_json::json;
use stat_setup::list::sysfs::Sysfs;

use super::measure::measure_then;
use super::options::{BaselineOptions, ResultOptions};
use crate::experiment::stat_setup::StatSetupSpec;
use crate::experiment::stat_setup::arms::prepare;
use crate::experiment::stat_setup::{events, show};
use crate::sys;
use crate::terminal::console;

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

pub(super) fn run(args: &StatSetupArgs, command_line: &[String]) -> Result<Exit, Error> {
    let StatSetupArgs { spec, result, baseline } = args;
    let all = spec.each();
    if all.len() > 1 && baseline.save_baseline.is_some() {
        return Err(Error::usage("--save-baseline takes one number of events", "", "give one, e.g. --events 100"));
    }
    baseline.check(result)?;
    // perf is asked for its version before anything is measured, which takes a second.
    console::catch_interrupts()?;
    // All numbers are known to be good before the first is measured.
    all.iter().try_for_each(|one| events::text(&one.events, &Sysfs::host()).map(drop))?;
    let mut exit = Exit::Done;
    for one in &all {
        let (experiment, arms, whole) = prepare(one)?;
        // A run answers its question if it was not cut short, its strategies' counts agree, every event of the list can be counted
        // here, and, beside stock perf, its rounds are enough for an interval.
        let mut conclude = |document: &mut Record| {
            // As the first line and the table.
            let over_auto = over(document, TOTAL.key, document.arm("auto").or(document.arms.first()));
            let has_times = |arm: &str| document.arm(arm).and_then(show::too_short).is_none();
            document.answer = over_auto.iter().filter(|one| has_times(&one.arm)).map(|answer| json!(answer)).collect();
            if document.status != Status::Complete || !whole || !show::is_answered(document) {
                exit = Exit::Inconclusive;
                document.exit = Some(exit.code());
            }
        };
        let document = measure_then((experiment, arms), result, command_line, &mut conclude, &show::report)?;
        baseline.keep(result, &document, &document.experiment, exit)?;
        if sys::stopped() {
            break;
        }
    }
    Ok(exit)
}
