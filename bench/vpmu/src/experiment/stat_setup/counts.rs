//! Counts in the format of `perf stat -x,`.

use std::fmt::Write as _;

use stat_setup::list::{Event, EventList};
use stat_setup::unit::Outcome;

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
    use super::*;
    use stat_setup::list::{parse::parse, resolve::resolve, sysfs::Sysfs};

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
