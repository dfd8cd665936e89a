//! One turn in a guest that has come up: settings, what perf does, and what was recorded.

use std::collections::BTreeMap;

use linux_guest::agent::Agent;
use results::document::{EventParameter, Parameters};

use super::trace::Trace;
use crate::machine::linux::guest::{Failure, Tail};
use crate::setting::workload::event_spec;

/// Results of a turn in the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) trace: Trace,
    /// perf's records by kind.
    pub(super) records: BTreeMap<String, u64>,
}

/// Path of the workload in the guest.
pub(super) const FTEST: &str = "/bin/ftest";
/// Path of perf in the guest.
pub(super) const PERF: &str = "/bin/perf";
/// perf's records in the guest.
const DATA: &str = "/tmp/perf.data";

const TRACING: &str = "/sys/kernel/tracing";
const MUX_INTERVAL: &str = "/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms";
/// Bytes of an entry in the trace's buffer, rounded up; each NMI has one for each of its handlers.
const ENTRY: u64 = 64;
const HANDLERS: u64 = 4;
/// NMIs beyond the samples: the workload looks at their number now and then.
const SPARE: u64 = 20_000;

/// Without a bound on perf's time: a slow guest's kernel would lower its rate of samples.
const KERNEL: [(&str, &str); 2] = [("perf_cpu_time_max_percent", "0"), ("perf_event_paranoid", "-1")];

/// Most bytes of the trace: some million lines.
const MOST_OF_TRACE: u64 = 256 << 20;

/// Lets perf record the workload.
///
/// # Errors
/// The guest is gone, its kernel lacks something, or perf failed.
pub(super) fn carry_out(agent: &mut Agent<'_>, parameters: &Parameters, samples: u64) -> Result<Recorded, Failure> {
    for (name, value) in KERNEL {
        set(agent, &format!("/proc/sys/kernel/{name}"), value)?;
    }
    set(agent, MUX_INTERVAL, &(parameters.mux_interval_ns / 1_000_000).to_string())?;
    let kib = (samples + SPARE) * ENTRY * HANDLERS / 1024;
    set(agent, &format!("{TRACING}/buffer_size_kb"), &kib.to_string())?;
    let switch = format!("{TRACING}/events/nmi/nmi_handler/enable");
    set(agent, &switch, "1")?;
    done(agent, &command(parameters, samples))?;
    set(agent, &switch, "0")?;
    let what = "cannot read the guest's trace";
    let trace = agent.get(&format!("{TRACING}/trace"), MOST_OF_TRACE).map_err(Failure::of(what))?;
    let trace =
        Trace::parse(&String::from_utf8_lossy(&trace)).map_err(|why| Failure::of_program(what.to_owned(), why))?;
    let (stats, said) = done(agent, &[PERF, "report", "--stats", "-i", DATA].map(str::to_owned))?;
    let records = records(&stats);
    if records.is_empty() {
        let what = "perf report --stats said nothing of its records".to_owned();
        return Err(Failure::of_program(what, last_line(&said).to_owned()));
    }
    Ok(Recorded { trace, records })
}

/// Gives a value to a file of the guest's kernel.
fn set(agent: &mut Agent<'_>, path: &str, value: &str) -> Result<(), Failure> {
    agent.write(path, value.as_bytes()).map_err(Failure::of("cannot set the guest up"))
}

/// Runs a program that is to end with status 0, and returns its output.
fn done(agent: &mut Agent<'_>, command: &[String]) -> Result<(String, String), Failure> {
    let (mut out, mut err) = (Tail::default(), Tail::default());
    let name: Vec<_> = command.iter().take(2).map(String::as_str).collect();
    let name = format!("`{}`", name.join(" "));
    let ended = agent.run(command, None, &mut out, &mut err).map_err(Failure::of(format!("{name} did not end")))?;
    let [out, err] = [out, err].map(|mut kept| kept.text());
    if ended.status == 0 {
        return Ok((out, err));
    }
    let what = format!("{name} ended with status {} in the guest", ended.status);
    Err(Failure::of_program(what, last_line(&err).to_owned()))
}

fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing")
}

/// The command that is measured, for a turn of so many samples: its workload ends after the time limit of a run at the latest.
pub(super) fn command(parameters: &Parameters, samples: u64) -> Vec<String> {
    let list: Vec<_> = parameters.events.iter().map(|one| event(one, parameters.freq_hz)).collect();
    // Build ids are looked up in files that the guest does not have.
    let words = [PERF, "record", "-q", "-B", "-N", "-o", DATA, "-e", &list.join(","), "--", FTEST].map(str::to_owned);
    let limit_ms = (parameters.time_limit_ns / 1_000_000).max(1);
    words.into_iter().chain([samples, limit_ms, parameters.vcpus].map(|number| number.to_string())).collect()
}

/// An event in perf's syntax, by its code: names are those of a generation, codes are what the guest's driver programs.
fn event(event: &EventParameter, freq_hz: Option<u64>) -> String {
    let selector = event_spec(event).selector;
    let (code, umask) = (selector & 0xff, selector >> 8 & 0xff);
    let rate = freq_hz.map_or_else(|| format!("period={}", event.period), |hz| format!("freq={hz}"));
    format!("cpu/event={code:#x},umask={umask:#x},{rate}/")
}

/// Reads `perf report --stats`: kinds and counts of the first table, which is that of all events together.
fn records(text: &str) -> BTreeMap<String, u64> {
    let mut tables = 0;
    let first = text.lines().take_while(|line| {
        tables += u64::from(line.trim_end().ends_with(" stats:"));
        tables < 2
    });
    let count = |line: &str| {
        let (kind, count) = line.split_once(" events:")?;
        Some((kind.trim().to_owned(), count.split_whitespace().next()?.parse().ok()?))
    };
    first.filter_map(count).filter(|(kind, _)| kind != "TOTAL").collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::arms::rounds::mock;
    use crate::machine::linux::fake::{self, FILE, file, frame};

    const TRACE: &str = "# entries-in-buffer/entries-written: 3/3   #P:1\n\
        t-1 [000] d.Z1. 1.000010: nmi_handler: perf_event_nmi_handler() delta_ns: 4000 handled: 2\n\
        t-1 [000] d.Z1. 1.000030: nmi_handler: perf_event_nmi_handler() delta_ns: 90 handled: 0\n\
        t-1 [000] d.Z1. 1.000090: nmi_handler: perf_event_nmi_handler() delta_ns: 5000 handled: 1\n";

    /// Carries a task out for three samples of one vCPU, in a guest that answers as Linux and perf do; and what it was asked.
    fn carry_out(fails: &'static str) -> (Result<Recorded, Failure>, Vec<String>) {
        let (note, asked) = mpsc::channel();
        let (mut agent, guest) = fake::start(move |number, kind, payload| {
            let words: Vec<_> = payload.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
            let last = words[0].rsplit('/').next().unwrap_or_default();
            let second = words.get(1).map_or("", |word| word);
            note.send(format!("{last} {second}")).unwrap();
            let (out, status) = match (kind, second) {
                (fake::GET, _) => return file(FILE, "", 0o644, TRACE.as_bytes()),
                (fake::WRITE, _) => return Vec::new(),
                (_, second) if second == fails => ("", 129_u32),
                (_, "report") => ("Aggregated stats:\n  SAMPLE events: 3\n  LOST events: 1\n", 0),
                _ => ("ftest: 100 units in 2000 ns\n", 0),
            };
            let ended = [&(status << 8).to_le_bytes()[..], &(70 + number).to_le_bytes()].concat();
            let said = frame(fake::ERR, b"Error:\nno such event\n\n");
            [frame(fake::OUT, out.as_bytes()), said, frame(fake::ENDED, &ended)].concat()
        });
        let recorded = super::carry_out(&mut agent, &mock::plan(&[]).unwrap().parameters, 3);
        drop(agent);
        guest.join().unwrap();
        (recorded, asked.iter().collect())
    }

    #[test]
    fn the_trace_is_on_while_perf_records_and_the_guest_lets_it() {
        let (recorded, asked) = carry_out("none");
        let expected = "perf_cpu_time_max_percent 0, perf_event_paranoid -1, perf_event_mux_interval_ms 4, \
            buffer_size_kb 5000, enable 1, perf record, enable 0, trace , perf report";
        assert_eq!(asked.join(", "), expected);
        let recorded = recorded.unwrap();
        assert_eq!((recorded.trace.handlers.len(), recorded.records["LOST"]), (3, 1));
        let (failed, _) = carry_out("record");
        let Failure { what, why, .. } = failed.unwrap_err();
        assert_eq!([what, why], ["`/bin/perf record` ended with status 129 in the guest", "no such event"]);
    }

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
    fn the_first_table_counts_records() {
        let text = "\nAggregated stats:\n           TOTAL events:        190\n            MMAP events:         73  (38.4%)\n\
                    \u{20}         SAMPLE events:         95  (50.0%)\n            LOST events:          2  ( 1.1%)\n\
                    cpu/event=0x3c/ stats:\n          SAMPLE events:         40\ncpu/event=0xc0/ stats:\n";
        let all = records(text);
        assert_eq!((all["SAMPLE"], all["LOST"], all["MMAP"], all.len()), (95, 2, 73, 3));
        assert!(records("nothing").is_empty());
    }
}
