//! Perf's task in the guest.

use std::collections::BTreeMap;
use std::time::Duration;

use results::document::{EventParameter, Parameters};

use crate::setting::workload::event_spec;

/// Path of the workload in the guest.
pub(super) const FTEST: &str = "/bin/ftest";
/// Path of perf in the guest.
pub(super) const PERF: &str = "/bin/perf";
/// perf's records in the guest.
pub(super) const DATA: &str = "/tmp/perf.data";

/// The command that is measured, for a turn of so many samples: it ends after the time limit of a run at the latest.
pub(super) fn command(parameters: &Parameters, samples: u64) -> Vec<String> {
    let list: Vec<_> = parameters.events.iter().map(|one| event(one, parameters.freq_hz)).collect();
    let limit = Duration::from_nanos(parameters.time_limit_ns);
    // Build ids are looked up in files that the guest does not have.
    let words = [PERF, "record", "-q", "-B", "-N", "-o", DATA, "-e", &list.join(","), "--"].map(str::to_owned);
    words.into_iter().chain(workload(samples, limit, parameters.vcpus)).collect()
}

/// The workload alone.
pub(super) fn workload(nmis: u64, limit: Duration, vcpus: u64) -> Vec<String> {
    vec![FTEST.to_owned(), nmis.to_string(), limit.as_millis().max(1).to_string(), vcpus.to_string()]
}

/// An event in perf's syntax, by its code: names are those of a generation, codes are what the guest's driver programs.
fn event(event: &EventParameter, freq_hz: Option<u64>) -> String {
    let selector = event_spec(event).selector;
    let (code, umask) = (selector & 0xff, selector >> 8 & 0xff);
    let rate = freq_hz.map_or_else(|| format!("period={}", event.period), |hz| format!("freq={hz}"));
    format!("cpu/event={code:#x},umask={umask:#x},{rate}/")
}

/// Reads `perf report --stats`: kinds and counts of the first table, which is that of all events together, and the samples of
/// each event, from the tables behind it.
pub(super) fn records(text: &str) -> (BTreeMap<String, u64>, Vec<u64>) {
    let (mut all, mut samples) = (BTreeMap::new(), Vec::new());
    let mut tables = 0;
    for line in text.lines() {
        if line.trim_end().ends_with(" stats:") {
            tables += 1;
            samples.extend((tables > 1).then_some(0));
        } else if let Some((kind, count)) = line.split_once(" events:")
            && let Some(count) = count.split_whitespace().next().and_then(|count| count.parse().ok())
        {
            match (kind.trim(), samples.last_mut()) {
                ("TOTAL", _) => {}
                (kind, None) => _ = all.insert(kind.to_owned(), count),
                ("SAMPLE", Some(last)) => *last = count,
                _ => {}
            }
        }
    }
    (all, samples)
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
    use crate::arms::rounds::mock;

    #[test]
    fn the_commands_are_those_of_stock_perf_with_events_by_their_codes() {
        let event = |&(selector, period): &(&str, u64)| EventParameter {
            name: "cpu-cycles".to_owned(),
            selector: selector.to_owned(),
            fixed_counter: None,
            period,
        };
        for (freq_hz, events, expected) in [
            (
                None,
                &[("0x13412e", 7), ("0x13003c", 9)][..],
                "/bin/perf record -q -B -N -o /tmp/perf.data -e cpu/event=0x2e,umask=0x41,period=7/,\
                 cpu/event=0x3c,umask=0x0,period=9/ -- /bin/ftest 500 2000 2",
            ),
            (
                Some(99),
                &[("0x13003c", 9)],
                "/bin/perf record -q -B -N -o /tmp/perf.data -e cpu/event=0x3c,umask=0x0,freq=99/ -- /bin/ftest 500 2000 2",
            ),
        ] {
            let parameters = Parameters {
                events: events.iter().map(event).collect(),
                freq_hz,
                vcpus: 2,
                time_limit_ns: 2_000_000_000,
                ..mock::plan(&[]).unwrap().parameters
            };
            assert_eq!(command(&parameters, 500).join(" "), expected);
        }
    }

    #[test]
    fn the_first_table_counts_records_and_the_others_samples_of_an_event() {
        let text = "\nAggregated stats:\n           TOTAL events:        190\n            MMAP events:         73  (38.4%)\n\
                    \u{20}         SAMPLE events:         95  (50.0%)\n            LOST events:          2  ( 1.1%)\n\
                    cpu/event=0x3c/ stats:\n          SAMPLE events:         40\ncpu/event=0xc0/ stats:\n";
        let (all, samples) = records(text);
        assert_eq!((all["SAMPLE"], all["LOST"], all["MMAP"], all.len(), samples), (95, 2, 73, 3, vec![40, 0]));
        assert_eq!(records("nothing"), Default::default());
    }
}
