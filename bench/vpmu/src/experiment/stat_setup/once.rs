//! `--once`: one set-up with the counts printed as soon as they are read, as `perf stat -x,`, before the close.

use results::error::Error;
use results::table::layout::time;
use stat_setup::choose::choose;
use stat_setup::costs::{Costs, calibrate};
use stat_setup::list::sysfs::Sysfs;
use stat_setup::method::{Job, Phase, Use};
use stat_setup::run::run;
use stat_setup::unit::Outcome;

use super::counts::perf_csv;
use super::measure::method;
use super::prepare::{self, EventRequest};
use super::spec::StatSetupSpec;

/// Predicted time of a set-up from which on the costs of calls are measured first, ns: measuring takes some 3 ms, and a better choice may
/// save a part of this.
const CALIBRATION_PAYS: f64 = 20e6;

/// Result of a single set-up.
#[derive(Clone, Debug)]
pub struct Once {
    /// True if every event has a count.
    pub whole: bool,
    /// Events without a count, and limits of the host.
    pub warnings: Vec<String>,
    /// The method and the duration of each phase.
    pub phases: String,
}

/// Sets up once and hands the counts to `print` before the events are closed.
///
/// # Errors
/// Exit 2 for bad input, exit 4 if the host cannot do it, errors of `print`.
pub fn run_once(spec: &StatSetupSpec, print: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<Once, Error> {
    let mut sysfs = Sysfs::host();
    let mut warnings = Vec::new();
    let strategies = spec.strategies()?;
    let list = EventRequest::read(&spec.events)?.list(&mut sysfs)?;
    let cpus = prepare::cpus(spec.cpus.as_ref(), &mut sysfs, &mut warnings)?;
    prepare::room(list.events.len(), cpus.len(), &mut warnings)?;
    let strategy = match strategies.as_slice() {
        [one] => one.as_str(),
        _ => "auto",
    };
    let mut costs = Costs { online: sysfs.online().len() as f64, ..Costs::USUAL };
    let mut choice = choose(&list, cpus.len(), &costs, Use::Stat);
    if choice.candidates.first().is_some_and(|best| best.predicted_ns > CALIBRATION_PAYS) {
        costs = calibrate(&cpus, 1).costs;
        choice = choose(&list, cpus.len(), &costs, Use::Stat);
    }
    let method = method(strategy, &list, cpus.len(), &costs, &choice, Use::Stat);
    let mut printed = Ok(());
    let mut whole = true;
    let job = Job { list: &list, cpus: &cpus, method, purpose: Use::Stat, ring_pages: 1 };
    let finished = run(&job, &mut |phase, outcomes| {
        if phase == Phase::Enable {
            std::thread::sleep(spec.count);
        }
        if let Some(outcomes) = outcomes {
            whole = outcomes.iter().all(Outcome::is_whole);
            printed = print(&perf_csv(&list, outcomes));
        }
    });
    printed?;
    let mut warnings: Vec<String> = warnings.into_iter().map(|warning| warning.message).collect();
    for (event, outcome) in list.events.iter().zip(&finished.outcomes) {
        if let Outcome::NotSupported { why } | Outcome::NotCounted { why } = outcome {
            warnings.push(format!("{}: {why}", event.name));
        }
    }
    let phases: Vec<String> = finished
        .phases
        .iter()
        .map(|cost| format!("{} {}", cost.phase.name(), time(cost.wall.as_nanos() as f64)))
        .collect();
    Ok(Once { whole, warnings, phases: format!("{method}: {}", phases.join(", ")) })
}
