//! `vpmu workload`.

use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use triage::child::{APART, GATED, Job, MOST_THREADS, gate, set, this_program};
use triage::workloads::{ALL, Workload};

use crate::experiment::triage::cpus;
use crate::experiment::triage::spec::ThreadsOption;
use crate::setting::parse::{duration_in, number_in, one_of};
use crate::terminal::console::print_json;

/// Shortest and longest time that a workload may be asked for.
const DURATIONS: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);

/// Options of `vpmu workload`.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArgs {
    /// The workload
    #[arg(value_name = "NAME", value_parser = one_of(&ALL, |workload| workload.name, |workload| workload.about))]
    pub workload: Workload,

    /// Words: a number of threads, the time that it works, apart (without the bottleneck), gated
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
}

/// Prints what the workload did as JSON. With `gated` it says "ready", makes threads at a line on stdin, says "set", begins at another,
/// and ends with the parent.
pub(super) fn run(args: &WorkloadArgs) -> Result<Exit, Error> {
    let workload = &args.workload;
    let failed = |error: std::io::Error| {
        Error::host(format!("cannot run the workload {}", workload.name), error.to_string(), "try fewer threads")
    };
    let (mut threads, mut duration) = (None, Duration::from_secs(2));
    for word in args.words.iter().filter(|word| ![APART, GATED].contains(&word.as_str())) {
        let bad = |why| Error::usage(format!("'{word}'"), why, "give threads, a time, apart or gated");
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            threads = Some(number_in(1..=MOST_THREADS as u64)(word).map_err(bad)?);
        } else {
            duration = duration_in(DURATIONS)(word).map_err(bad)?;
        }
    }
    let [apart, gated] = [APART, GATED].map(|word| args.words.iter().any(|given| given == word));
    let cpus = if threads.is_some() { 0 } else { cpus(&HostFacts::read(&HostFs::default())).len() };
    let threads = ThreadsOption { threads }.of(workload, cpus)?;
    let job = Job { threads, duration, apart, program: this_program().map_err(failed)? };
    if gated {
        gate().map_err(failed)?;
    }
    let done = workload.run(&job, &mut || if gated { set() } else { Ok(()) }).map_err(failed)?;
    print_json(&done).map(|()| Exit::Done)
}
