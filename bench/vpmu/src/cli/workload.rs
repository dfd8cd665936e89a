//! `vpmu workload`.

use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use triage::child::{Done, Job, MOST_THREADS, gate, set, this_program};
use triage::workloads::{ALL, Workload};

use crate::inspect::triage::cpus;
use crate::setting::options::JsonOption;
use crate::setting::parse::{duration_in, number_in, one_of};
use crate::terminal::console::{print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  # two threads that contend for one generator, then one each
  vpmu workload rand --threads 2 --duration 2s
  vpmu workload rand --threads 2 --duration 2s --apart
  # under stock perf
  perf stat -e context-switches -- vpmu workload rand

Exit codes: 0 done, 2 bad usage or input, 4 the host cannot do
it, 70 a bug of vpmu.";

/// Shortest and longest time that a workload may be asked for.
const DURATIONS: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);

/// Threads of a workload.
#[derive(Clone, Copy, Debug, Args)]
pub struct ThreadsOption {
    /// Threads [default: as many as CPUs, two or more]
    #[arg(short, long, value_name = "N", value_parser = number_in(1..=MOST_THREADS as u64))]
    pub threads: Option<u64>,
}

/// Options of `vpmu workload`.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArgs {
    /// The workload
    #[arg(value_name = "NAME", value_parser = one_of(&ALL, |workload| workload.name, |workload| workload.about))]
    pub workload: Workload,

    /// Its threads.
    #[command(flatten)]
    pub threads: ThreadsOption,

    /// Time that it works
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = duration_in(DURATIONS))]
    pub duration: Duration,

    /// The variant without the bottleneck (docs/triage.md)
    #[arg(long)]
    pub apart: bool,

    /// JSON in place of the table.
    #[command(flatten)]
    pub json: JsonOption,

    /// Say "ready" on stdout, make threads at a line on stdin, say "set", begin at another, and end with the parent
    #[arg(long, hide = true)]
    pub gated: bool,
}

/// Returns the threads asked for, or the workload's own number for the CPUs of this process.
pub(super) fn threads(workload: &Workload, asked: Option<u64>, cpus: usize) -> Result<usize, Error> {
    let asked = asked.map(|threads| usize::try_from(threads).unwrap_or(MOST_THREADS));
    let threads = asked.unwrap_or_else(|| workload.default_threads(cpus));
    let refuse = |why| Error::usage(format!("{} cannot have these --threads", workload.name), why, "");
    workload.check_threads(threads).map_err(refuse).map(|()| threads)
}

pub(super) fn run(args: &WorkloadArgs) -> Result<Exit, Error> {
    let workload = &args.workload;
    let failed = |error: std::io::Error| {
        Error::host(format!("cannot run the workload {}", workload.name), error.to_string(), "try fewer --threads")
    };
    let asked = args.threads.threads;
    let cpus = if asked.is_some() { 0 } else { cpus(&HostFacts::read(&HostFs::default())).len() };
    let threads = threads(workload, asked, cpus)?;
    let program = this_program().map_err(failed)?;
    let job = Job { threads, duration: args.duration, apart: args.apart, program };
    if args.gated {
        gate().map_err(failed)?;
    }
    let mut set = || if args.gated { set() } else { Ok(()) };
    let done = workload.run(&job, &mut set).map_err(failed)?;
    if args.json.json { print_json(&done) } else { print(&text(workload, &done)) }.map(|()| Exit::Done)
}

fn text(workload: &Workload, done: &Done) -> String {
    let variant = if done.apart { " --apart" } else { "" };
    format!(
        "{}{variant}: {} {} in {:.3} s by {} threads: {:.0} a second\n",
        done.workload,
        done.operations,
        workload.operation,
        done.seconds,
        done.threads,
        done.rate()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_the_workloads_own_number_unless_asked_for() {
        let pairs = Workload::named("context-switch").unwrap();
        assert_eq!(threads(pairs, None, 3), Ok(4));
        assert_eq!(threads(pairs, Some(6), 3), Ok(6));
        assert!(threads(pairs, Some(3), 3).unwrap_err().to_string().contains("even"));
    }
}
