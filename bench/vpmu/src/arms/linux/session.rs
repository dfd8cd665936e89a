//! One turn in a guest that has come up: settings, the task, and what was recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use results::document::Parameters;

use super::task;
use super::task::{DATA, PERF, Task, workload};
use super::trace::Trace;

/// A program of the guest that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// As a shell has it.
    pub status: i32,
    /// Its time by the guest's clock, ns.
    pub wall_ns: u64,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// The agent of a guest. Errors are lines for the user.
pub trait Shell {
    /// Runs a program to its end.
    ///
    /// # Errors
    /// The guest is gone, or has no such program.
    fn run(&mut self, command: &[String]) -> Result<Ended, String>;

    /// Writes to a file that exists.
    ///
    /// # Errors
    /// It does not exist, or refuses the text.
    fn write(&mut self, path: &str, text: &str) -> Result<(), String>;

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&mut self, path: &str) -> Result<String, String>;
}

/// Results of a turn in the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) trace: Trace,
    /// Units of work and their time of each process, without counters and with them.
    pub(super) without: Vec<(u64, u64)>,
    pub(super) with: Vec<(u64, u64)>,
    /// perf's records by kind.
    pub(super) records: BTreeMap<String, u64>,
    /// Samples of each event.
    pub(super) event_samples: Vec<u64>,
    pub(super) set_up_ns: Vec<u64>,
}

const TRACING: &str = "/sys/kernel/tracing";
const MUX_INTERVAL: &str = "/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms";
/// The workload without counters.
const BASELINE: Duration = Duration::from_millis(200);
/// Bytes of an entry in the trace's buffer, rounded up; each NMI has one for each of its handlers.
const ENTRY: u64 = 64;
const HANDLERS: u64 = 4;
/// NMIs beyond the samples: the workload looks at their number now and then.
const SPARE: u64 = 20_000;

/// Without a bound on perf's time: a slow guest's kernel would lower its rate of samples.
const KERNEL: [(&str, &str); 2] = [("perf_cpu_time_max_percent", "0"), ("perf_event_paranoid", "-1")];

/// Carries `task` out.
///
/// # Errors
/// A line for the user: the guest is gone, its kernel lacks something, or perf failed.
pub(super) fn carry_out(
    shell: &mut dyn Shell,
    task: &Task,
    parameters: &Parameters,
    samples: u64,
) -> Result<Recorded, String> {
    for (name, value) in KERNEL {
        shell.write(&format!("/proc/sys/kernel/{name}"), value)?;
    }
    shell.write(MUX_INTERVAL, &(parameters.mux_interval_ns / 1_000_000).to_string())?;
    let command = task.command(samples, parameters.vcpus);
    match task {
        Task::Record { .. } => record(shell, &command, parameters.vcpus, samples),
        Task::SetUp { limit, .. } => set_up(shell, &command, samples, *limit),
    }
}

fn record(shell: &mut dyn Shell, command: &[String], vcpus: u64, samples: u64) -> Result<Recorded, String> {
    let without = task::units(&done(shell, &workload(0, BASELINE, vcpus))?.out);
    let kib = (samples + SPARE) * ENTRY * HANDLERS / 1024;
    shell.write(&format!("{TRACING}/buffer_size_kb"), &kib.to_string())?;
    let switch = format!("{TRACING}/events/nmi/nmi_handler/enable");
    shell.write(&switch, "1")?;
    let ran = done(shell, command)?;
    shell.write(&switch, "0")?;
    let trace = Trace::parse(&shell.get(&format!("{TRACING}/trace"))?)?;
    let stats = done(shell, &[PERF, "report", "--stats", "-i", DATA].map(str::to_owned))?;
    let records = task::records(&stats.out);
    if records.is_empty() {
        return Err(format!("perf report --stats said nothing of its records: {}", last_line(&stats.err)));
    }
    let event_samples = task::event_samples(&stats.out);
    Ok(Recorded { trace, without, with: task::units(&ran.out), records, event_samples, set_up_ns: Vec::new() })
}

fn set_up(shell: &mut dyn Shell, command: &[String], samples: u64, limit: Duration) -> Result<Recorded, String> {
    // The first run has perf and its libraries read for the first time.
    done(shell, command)?;
    let (mut set_up_ns, mut passed) = (Vec::new(), Duration::ZERO);
    while (set_up_ns.len() as u64) < samples && (set_up_ns.is_empty() || passed < limit) {
        let took = done(shell, command)?.wall_ns;
        set_up_ns.push(took);
        passed += Duration::from_nanos(took);
    }
    Ok(Recorded { set_up_ns, ..Recorded::default() })
}

/// Runs a program that is to end with status 0.
fn done(shell: &mut dyn Shell, command: &[String]) -> Result<Ended, String> {
    let ended = shell.run(command)?;
    if ended.status == 0 {
        return Ok(ended);
    }
    let name: Vec<_> = command.iter().take(2).map(String::as_str).collect();
    Err(format!("`{}` ended with status {} in the guest: {}", name.join(" "), ended.status, last_line(&ended.err)))
}

fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::arms::rounds::mock;

    /// A guest that answers as Linux and perf do, and notes what it is asked.
    #[derive(Default)]
    pub(in crate::arms::linux) struct Fake {
        pub(in crate::arms::linux) asked: Vec<String>,
        /// A command that fails, by its second word.
        pub(in crate::arms::linux) fails: &'static str,
    }

    const TRACE: &str = "# entries-in-buffer/entries-written: 3/3   #P:1\n\
        t-1 [000] d.Z1. 1.000010: nmi_handler: perf_event_nmi_handler() delta_ns: 4000 handled: 2\n\
        t-1 [000] d.Z1. 1.000030: nmi_handler: perf_event_nmi_handler() delta_ns: 90 handled: 0\n\
        t-1 [000] d.Z1. 1.000090: nmi_handler: perf_event_nmi_handler() delta_ns: 5000 handled: 1\n";

    impl Shell for Fake {
        fn run(&mut self, command: &[String]) -> Result<Ended, String> {
            self.asked.push(command[..2.min(command.len())].join(" "));
            let second = command.get(1).map_or("", String::as_str);
            if second == self.fails {
                return Ok(Ended { status: 129, err: "Error:\nno such event\n\n".to_owned(), ..Ended::default() });
            }
            let out = match second {
                "report" => "Aggregated stats:\n  SAMPLE events: 3\n  LOST events: 1\n",
                "stat" => "",
                _ => "ftest: 100 units in 2000 ns\n",
            };
            Ok(Ended { out: out.to_owned(), wall_ns: 70 + self.asked.len() as u64, ..Ended::default() })
        }

        fn write(&mut self, path: &str, text: &str) -> Result<(), String> {
            let name = path.rsplit('/').next().unwrap_or_default();
            self.asked.push(format!("{name}={text}"));
            Ok(())
        }

        fn get(&mut self, path: &str) -> Result<String, String> {
            self.asked.push(path.to_owned());
            Ok(TRACE.to_owned())
        }
    }

    /// Carries a task out for three samples of one vCPU.
    fn carry_out(shell: &mut dyn Shell, task: &Task) -> Result<Recorded, String> {
        super::carry_out(shell, task, &mock::plan(&[]).unwrap().parameters, 3)
    }

    fn task() -> Task {
        Task::Record { events: Vec::new(), freq_hz: None, limit: Duration::from_secs(1) }
    }

    #[test]
    fn the_trace_is_on_while_perf_records_and_the_guest_lets_it() {
        let mut fake = Fake::default();
        let recorded = carry_out(&mut fake, &task()).unwrap();
        let asked = fake.asked.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(
            asked,
            [
                "perf_cpu_time_max_percent=0",
                "perf_event_paranoid=-1",
                "perf_event_mux_interval_ms=4",
                "/bin/ftest 0",
                "buffer_size_kb=5000",
                "enable=1",
                "/bin/perf record",
                "enable=0",
                "/sys/kernel/tracing/trace",
                "/bin/perf report",
            ]
        );
        assert_eq!((recorded.trace.handlers.len(), recorded.records["LOST"], recorded.set_up_ns.len()), (3, 1, 0));
        assert_eq!((recorded.without, recorded.with), (vec![(100, 2000)], vec![(100, 2000)]));
    }

    #[test]
    fn a_set_up_is_timed_by_the_guest_after_a_first_one() {
        let mut fake = Fake::default();
        let task = |ns| Task::SetUp { events: Vec::new(), limit: Duration::from_nanos(ns) };
        let recorded = carry_out(&mut fake, &task(1000)).unwrap();
        assert_eq!(recorded.set_up_ns, [75, 76, 77]);
        assert_eq!(carry_out(&mut Fake::default(), &task(76)).unwrap().set_up_ns, [75, 76]);
    }
}
