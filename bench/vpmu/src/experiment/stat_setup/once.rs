//! `--once`: one set-up with the counts printed as soon as they are read, as `perf stat -x,`, before the close.

use std::fmt::Write as _;

use results::error::Error;
use results::table::layout::time;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{Event, EventList};
use stat_setup::method::Phase;
use stat_setup::run::run;
use stat_setup::unit::Outcome;
use stat_setup::verify::alike;

use super::arms::Setting;
use super::events;
use super::spec::StatSetupSpec;

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
    let strategy = match spec.strategies()?.as_slice() {
        [one] => one.clone(),
        _ => "auto".to_owned(),
    };
    let setting = Setting::of(spec, vec![strategy.clone()], &mut Sysfs::host())?;
    let (list, method) = (&setting.list, setting.method(&strategy));
    let mut printed = Ok(());
    let mut whole = true;
    let finished = run(&setting.job(method), &mut |phase, outcomes| {
        if phase == Phase::Enable {
            std::thread::sleep(spec.count);
        }
        if let Some(outcomes) = outcomes {
            whole = outcomes.iter().all(Outcome::is_whole);
            printed = print(&perf_csv(list, outcomes));
        }
    });
    printed?;
    if let Some(why) = finished.short {
        return Err(events::short(why));
    }
    let mut warnings = setting.notes.clone();
    let fates = list.events.iter().zip(&finished.outcomes).filter_map(|(event, outcome)| match outcome {
        Outcome::NotSupported { why } | Outcome::NotCounted { why } => Some((event.name.as_str(), why.clone())),
        _ => None,
    });
    warnings.extend(alike(fates));
    if finished.threadless > 0 {
        warnings.push(events::threadless(finished.threadless));
    }
    let phases: Vec<String> = finished
        .phases
        .iter()
        .map(|cost| format!("{} {}", cost.phase.name(), time(cost.wall.as_nanos() as f64)))
        .collect();
    Ok(Once { whole, warnings, phases: format!("{method}: {}", phases.join(", ")) })
}

/// Formats one line per event as of `perf stat -x,`: value, unit, event, running time, percent.
pub(super) fn perf_csv(list: &EventList, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for (event, outcome) in list.events.iter().zip(outcomes) {
        let (value, running, percent) = shown(event, outcome);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{value},{},{},{running},{percent:.2},,", event.unit, event.name);
    }
    text
}

/// Returns the count scaled to the enabled time, the running time in ns, and its share in percent.
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
    use stat_setup::list::parse::parse;
    use stat_setup::list::resolve::resolve;
    use stat_setup::list::sysfs::Sysfs;

    use super::*;

    #[test]
    fn counts_are_shown_as_perf_shows_them() {
        let list = resolve(&parse("cs,cpu-clock,cycles,nothing").unwrap(), &mut Sysfs::at("/nonexistent"));
        let outcomes = [
            Outcome::Counted { value: 7, enabled_ns: 100, running_ns: 100 },
            Outcome::Counted { value: 2_850_000, enabled_ns: 100, running_ns: 100 },
            Outcome::Counted { value: 1000, enabled_ns: 100, running_ns: 25 },
            Outcome::NotSupported { why: String::new() },
        ];
        let text = perf_csv(&list, &outcomes);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "7,,cs,100,100.00,,");
        assert_eq!(lines[1], "2.85,msec,cpu-clock,100,100.00,,");
        assert_eq!(lines[2], "4000,,cycles,25,25.00,,", "a multiplexed count is scaled, and says so");
        assert_eq!(lines[3], "<not supported>,,nothing,0,100.00,,");
    }
}
