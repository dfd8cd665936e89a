//! Perf's task in the guest.

use std::collections::BTreeMap;
use std::time::Duration;

use results::document::EventParameter;

/// Path of the workload in the guest; without arguments it does nothing, as true(1).
pub(super) const FTEST: &str = "/bin/ftest";
/// Path of perf in the guest.
pub(super) const PERF: &str = "/bin/perf";
/// perf's records in the guest.
pub(super) const DATA: &str = "/tmp/perf.data";

/// Task that is measured in a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// `perf record` of the workload.
    Record {
        /// The events.
        events: Vec<EventParameter>,
        /// A frequency in place of the events' periods.
        freq_hz: Option<u64>,
        /// The workload ends after its measured phase has lasted so long.
        limit: Duration,
    },
    /// `perf stat` of a program that does nothing, again and again.
    SetUp {
        /// The events.
        events: Vec<EventParameter>,
        /// No set-up begins after so long.
        limit: Duration,
    },
}

impl Task {
    /// The command that is measured, for a turn of so many samples on so many vCPUs.
    pub fn command(&self, samples: u64, vcpus: u64) -> Vec<String> {
        let list = |events: &[EventParameter], freq_hz| {
            events.iter().map(|parameter| event(parameter, freq_hz)).collect::<Vec<_>>().join(",")
        };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self {
            // Build ids are looked up in files that the guest does not have.
            Self::Record { events, freq_hz, limit } => {
                let list = list(events, *freq_hz);
                let mut command = words(&[PERF, "record", "-q", "-B", "-N", "-o", DATA, "-e", &list, "--"]);
                command.extend(workload(samples, *limit, vcpus));
                command
            }
            Self::SetUp { events, .. } => {
                words(&[PERF, "stat", "-x", ",", "-o", "/dev/null", "-e", &list(events, None), "--", FTEST])
            }
        }
    }
}

/// The workload alone.
pub(super) fn workload(nmis: u64, limit: Duration, vcpus: u64) -> Vec<String> {
    vec![FTEST.to_owned(), nmis.to_string(), limit.as_millis().max(1).to_string(), vcpus.to_string()]
}

/// Bits of PERFEVTSEL that perf sets by itself: USR, OS, INT.
const FLAGS: u64 = 0x13_0000;

/// An event in perf's syntax, by its code: names are those of a generation, codes are what the guest's driver programs.
pub(super) fn event(event: &EventParameter, freq_hz: Option<u64>) -> String {
    let selector = u64::from_str_radix(event.selector.trim_start_matches("0x"), 16).unwrap_or_default() & !FLAGS;
    let (code, umask) = (selector & 0xff, selector >> 8 & 0xff);
    let rate = match (freq_hz, event.period) {
        (Some(hz), 1..) => format!(",freq={hz}"),
        (None, period @ 1..) => format!(",period={period}"),
        (_, 0) => String::new(),
    };
    format!("cpu/event={code:#x},umask={umask:#x}{rate}/")
}

/// Kinds and counts of the first table of `perf report --stats`: that of all events together.
pub(super) fn records(text: &str) -> BTreeMap<String, u64> {
    let table = text.lines().skip_while(|line| !line.contains(" events:")).take_while(|line| line.contains(" events:"));
    table
        .filter_map(|line| {
            let (kind, count) = line.split_once(" events:")?;
            let count = count.split_whitespace().next()?.parse().ok()?;
            Some((kind.trim().to_owned(), count)).filter(|(kind, _)| kind != "TOTAL")
        })
        .collect()
}

/// Samples of each event, from the tables behind the first one of `perf report --stats`.
pub(super) fn event_samples(text: &str) -> Vec<u64> {
    let mut samples = Vec::new();
    for line in text.lines() {
        if line.trim_end().ends_with(" stats:") {
            samples.push(0);
        } else if let Some((kind, count)) = line.split_once(" events:")
            && let Some(last) = samples.last_mut().filter(|_| kind.trim() == "SAMPLE")
        {
            *last = count.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or(0);
        }
    }
    // The first is that of all events together.
    samples.drain(..samples.len().min(1));
    samples
}

/// Units of work and the time they took, of each process of ftest.
pub(super) fn units(text: &str) -> Vec<(u64, u64)> {
    text.lines()
        .filter_map(|line| {
            let (units, ns) = line.strip_prefix("ftest: ")?.split_once(" units in ")?;
            Some((units.parse().ok()?, ns.strip_suffix(" ns")?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(events: &[(&str, u64)]) -> Vec<EventParameter> {
        let event = |&(selector, period): &(&str, u64)| EventParameter {
            name: "cpu-cycles".to_owned(),
            selector: selector.to_owned(),
            fixed_counter: None,
            period,
        };
        events.iter().map(event).collect()
    }

    #[test]
    fn the_commands_are_those_of_stock_perf_with_events_by_their_codes() {
        let limit = Duration::from_secs(2);
        let record = Task::Record { events: events(&[("0x13412e", 7), ("0x13003c", 9)]), freq_hz: None, limit };
        assert_eq!(
            record.command(500, 2).join(" "),
            "/bin/perf record -q -B -N -o /tmp/perf.data -e cpu/event=0x2e,umask=0x41,period=7/,\
             cpu/event=0x3c,umask=0x0,period=9/ -- /bin/ftest 500 2000 2"
        );
        let by_frequency = Task::Record { events: events(&[("0x13003c", 9)]), freq_hz: Some(99), limit };
        assert!(by_frequency.command(5, 1).join(" ").contains("-e cpu/event=0x3c,umask=0x0,freq=99/ "));
        let set_up = Task::SetUp { events: events(&[("0x1300c5", 0)]), limit };
        assert_eq!(
            set_up.command(5, 1).join(" "),
            "/bin/perf stat -x , -o /dev/null -e cpu/event=0xc5,umask=0x0/ -- /bin/ftest"
        );
    }

    #[test]
    fn the_first_table_counts() {
        let text = "\nAggregated stats:\n           TOTAL events:        190\n            MMAP events:         73  (38.4%)\n\
                    \u{20}         SAMPLE events:         95  (50.0%)\n            LOST events:          2  ( 1.1%)\n\
                    cpu/event=0x3c/ stats:\n          SAMPLE events:         40\ncpu/event=0xc0/ stats:\n";
        let found = records(text);
        assert_eq!((found["SAMPLE"], found["LOST"], found["MMAP"], found.len()), (95, 2, 73, 3));
        assert!(records("nothing").is_empty());
        assert_eq!((event_samples(text), event_samples("nothing")), (vec![40, 0], Vec::new()));
    }
}
