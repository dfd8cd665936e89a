//! `vpmu workload`.

use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use triage::child::{Done, Job, gate, set, this_program};
use triage::workloads::{ALL, Workload};

use crate::experiment::triage::cpus;
use crate::experiment::triage::spec::ThreadsOption;
use crate::setting::options::JsonOption;
use crate::setting::parse::{duration_in, one_of};
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

pub(super) fn run(args: &WorkloadArgs) -> Result<Exit, Error> {
    let workload = &args.workload;
    let failed = |error: std::io::Error| {
        Error::host(format!("cannot run the workload {}", workload.name), error.to_string(), "try fewer --threads")
    };
    let asked = args.threads.threads.is_some();
    let cpus = if asked { 0 } else { cpus(&HostFacts::read(&HostFs::default())).len() };
    let threads = args.threads.of(workload, cpus)?;
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
