//! `--once`: one set-up that prints its counts as soon as it has them, as `perf stat -x,` does, and closes afterwards.

use std::fmt::Write as _;

use stat_setup::choose::choose;
use stat_setup::costs::calibrate;
use stat_setup::job::Job;
use stat_setup::list::{Event, EventList};
use stat_setup::outcome::Outcome;
use stat_setup::phase::{Phase, Use};
use stat_setup::run::run;

use super::measure::method;
use super::prepare::{self, Request};
use crate::cli::stat_setup::StatSetupArgs;
use crate::console::{complain, print};
use crate::error::{Error, Exit};
use crate::table::layout::time;
use stat_setup::list::sysfs::Sysfs;

/// Runs it.
pub(crate) fn run_once(args: &StatSetupArgs) -> Result<Exit, Error> {
    let mut sysfs = Sysfs::host();
    let mut warnings = Vec::new();
    let list = Request::read(&args.events)?.list(&mut sysfs)?;
    let cpus = prepare::cpus(args.host.cpus.as_ref(), &mut sysfs, &mut warnings)?;
    prepare::room(list.events.len(), cpus.len(), &mut warnings)?;
    let strategy = match args.host.strategies.as_slice() {
        [one] => one.as_str(),
        _ => "auto",
    };
    let calibration = calibrate(&cpus, 1);
    let choice = choose(&list, cpus.len(), &calibration.costs);
    let method = method(strategy, &list, cpus.len(), &calibration.costs, &choice);
    let mut printed = Ok(());
    let mut whole = true;
    let job = Job { list: &list, cpus: &cpus, method, purpose: Use::Stat, ring_pages: 1 };
    let finished = run(&job, &mut |phase, outcomes| {
        if phase == Phase::Enable {
            std::thread::sleep(args.host.count);
        }
        if let Some(outcomes) = outcomes {
            whole = outcomes.iter().all(Outcome::is_whole);
            printed = print(&csv(&list, outcomes));
        }
    });
    printed?;
    if !args.quiet {
        for warning in warnings {
            complain(&format!("warning: {}", warning.message));
        }
        for (event, outcome) in list.events.iter().zip(&finished.outcomes) {
            if let Outcome::NotSupported { why } | Outcome::NotCounted { why } = outcome {
                complain(&format!("warning: {}: {why}", event.name));
            }
        }
        let phases: Vec<String> = finished
            .phases
            .iter()
            .map(|cost| format!("{} {}", cost.phase.name(), time(cost.wall.as_nanos() as f64)))
            .collect();
        complain(&format!("{method}: {}", phases.join(", ")));
    }
    Ok(if whole { Exit::Done } else { Exit::Inconclusive })
}

/// `value,unit,event,running,percent`, a line an event, in perf's own format.
fn csv(list: &EventList, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for (event, outcome) in list.events.iter().zip(outcomes) {
        let (value, running, percent) = shown(event, outcome);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{value},{},{},{running},{percent:.2},,", event.unit, event.name);
    }
    text
}

/// A count as perf shows it: scaled to the whole time where it was multiplexed; its running time, and the share in percent.
pub(crate) fn shown(event: &Event, outcome: &Outcome) -> (String, u64, f64) {
    match *outcome {
        Outcome::Counted { value, enabled_ns, running_ns } => {
            let multiplexed = running_ns < enabled_ns;
            let share = if enabled_ns == 0 { 1.0 } else { running_ns as f64 / enabled_ns as f64 };
            let scaled = value as f64 / share;
            let value = if event.scale.to_bits() != 1.0_f64.to_bits() {
                format!("{:.2}", scaled * event.scale)
            } else if multiplexed {
                format!("{scaled:.0}")
            } else {
                value.to_string()
            };
            (value, running_ns, 100.0 * share)
        }
        Outcome::Opened => ("<not read>".to_owned(), 0, 0.0),
        Outcome::NotSupported { .. } => ("<not supported>".to_owned(), 0, 100.0),
        Outcome::NotCounted { .. } => ("<not counted>".to_owned(), 0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stat_setup::list::{parse::parse, resolve::resolve};

    #[test]
    fn counts_are_shown_as_perf_shows_them() {
        let list = resolve(&parse("cs,cpu-clock,cycles,nothing").unwrap(), &mut Sysfs::at("/nonexistent"));
        let outcomes = [
            Outcome::Counted { value: 7, enabled_ns: 100, running_ns: 100 },
            Outcome::Counted { value: 2_850_000, enabled_ns: 100, running_ns: 100 },
            Outcome::Counted { value: 1000, enabled_ns: 100, running_ns: 25 },
            Outcome::NotSupported { why: String::new() },
        ];
        let text = csv(&list, &outcomes);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "7,,cs,100,100.00,,");
        assert_eq!(lines[1], "2.85,msec,cpu-clock,100,100.00,,");
        assert_eq!(lines[2], "4000,,cycles,25,25.00,,", "a multiplexed count is scaled, and says so");
        assert_eq!(lines[3], "<not supported>,,nothing,0,100.00,,");
    }
}
