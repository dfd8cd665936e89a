//! `vpmu triage`, and the workloads that it runs, which are processes of their own.

use std::time::Duration;

use ::triage::child::{Job, MOST_THREADS, gate, set, this_program};
use ::triage::workloads::{ALL, Workload};
use clap::Args;
use results::document::Record;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};

use super::measure::measure_then;
use super::options::ResultOptions;
use crate::experiment::triage::{Spec, Triage, cpus, exit, report, threads};
use crate::setting::parse::{duration_in, number_in, one_of};
use crate::terminal::console::{self, indented};

/// Options of `vpmu triage`.
#[derive(Clone, Debug, Args)]
pub struct TriageArgs {
    /// The workload, and its turns.
    #[command(flatten)]
    pub spec: Spec,

    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
}

pub(super) fn run(args: &TriageArgs, command_line: &[String]) -> Result<Exit, Error> {
    let triage = Triage::prepare(args.spec.clone())?;
    let then = &mut |document: &mut Record| {
        triage.sample(document);
        document.exit = Some(exit(document).code());
    };
    measure_then(triage.experiment(), &args.result, command_line, then, &report).map(|document| exit(&document))
}

/// Options of `vpmu workload`.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArgs {
    /// The workload
    #[arg(value_name = "NAME", value_parser = one_of(&ALL, |workload| workload.name, |workload| workload.about))]
    pub workload: Workload,

    /// Threads [default: as many as CPUs, two or more]
    #[arg(value_name = "THREADS", value_parser = number_in(1..=MOST_THREADS as u64))]
    pub threads: Option<u64>,

    /// Time that it works
    #[arg(value_name = "TIME", default_value = "2s",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(600)))]
    pub duration: Duration,

    /// The variant without the bottleneck
    #[arg(long)]
    pub apart: bool,

    /// Say "ready", make threads at a line on stdin, say "set", begin at another, and end with the parent
    #[arg(long)]
    pub gated: bool,
}

/// Prints what the workload did as JSON.
pub(super) fn run_workload(args: &WorkloadArgs) -> Result<Exit, Error> {
    let &WorkloadArgs { ref workload, threads, duration, apart, gated } = args;
    let failed = |error: std::io::Error| {
        Error::host(format!("cannot run the workload {}", workload.name), error.to_string(), "try fewer threads")
    };
    let cpus = if threads.is_some() { 0 } else { cpus(&HostFacts::read(&HostFs::default())).len() };
    let threads = self::threads(threads, workload, cpus)?;
    let job = Job { threads, duration, apart, program: this_program().map_err(failed)? };
    if gated {
        gate().map_err(failed)?;
    }
    let done = workload.run(&job, &mut || if gated { set() } else { Ok(()) }).map_err(failed)?;
    console::print(&indented(&done)?).map(|()| Exit::Done)
}
