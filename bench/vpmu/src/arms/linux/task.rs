//! Perf's task in the guest.

use std::time::Duration;

use results::document::EventParameter;

use super::perf;

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
    #[must_use]
    pub fn command(&self, samples: u64, vcpus: u64) -> Vec<String> {
        let list = |events: &[EventParameter], freq_hz| {
            events.iter().map(|event| perf::event(event, freq_hz)).collect::<Vec<_>>().join(",")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn events(periods: &[u64]) -> Vec<EventParameter> {
        let event = |&period: &u64| EventParameter {
            name: "cpu-cycles".to_owned(),
            selector: "0x13003c".to_owned(),
            fixed_counter: None,
            period,
        };
        periods.iter().map(event).collect()
    }

    #[test]
    fn the_commands_are_those_of_stock_perf() {
        let record = Task::Record { events: events(&[7, 9]), freq_hz: None, limit: Duration::from_secs(2) };
        assert_eq!(
            record.command(500, 2).join(" "),
            "/bin/perf record -q -B -N -o /tmp/perf.data -e cpu/event=0x3c,umask=0x0,period=7/,\
             cpu/event=0x3c,umask=0x0,period=9/ -- /bin/ftest 500 2000 2"
        );
        let set_up = Task::SetUp { events: events(&[0]), limit: Duration::MAX };
        assert_eq!(
            set_up.command(5, 1).join(" "),
            "/bin/perf stat -x , -o /dev/null -e cpu/event=0x3c,umask=0x0/ -- /bin/ftest"
        );
    }
}
