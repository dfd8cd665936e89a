//! `vpmu triage`.

use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use triage::workloads::{WITH_BOTTLENECK, Workload};

use super::measure::{Invocation, Shown, measure_then};
use super::options::ResultOptions;
use super::workload::{ThreadsOption, threads};
use crate::inspect::triage::{SAMPLES_PER_SECOND, Spec, Triage, Variant, cpus, show};
use crate::setting::parse::{duration_in, number_in, one_of};
use crate::terminal::console::internal;

pub(super) const EXAMPLES: &str = "\
Examples:
  # two threads in rand(): what rose, where they wait, the fix
  vpmu triage rand --threads 2
  # shorter and fewer turns, no file
  vpmu triage setup --turn 50ms --rounds 5 --no-save

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive:
interrupted, no sample, too few rounds for an interval, or no
difference that is sure, 4 the host cannot do it, 70 a bug of
vpmu.";

/// Shortest and longest turn.
const TURNS: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(60);

/// Options of `vpmu triage`.
#[derive(Clone, Debug, Args)]
pub struct TriageArgs {
    /// The workload; docs/triage.md says what its variant is
    #[arg(value_name = "WORKLOAD",
          value_parser = one_of(&WITH_BOTTLENECK, |workload| workload.name, |workload| workload.about))]
    pub workload: Workload,

    /// Its threads.
    #[command(flatten)]
    pub threads: ThreadsOption,

    /// Rounds, each of five turns: idle, and both variants with and without events that count
    ///
    /// With fewer than five there is no interval, and the end is inconclusive.
    #[arg(long, value_name = "N", default_value = "10", value_parser = number_in(1..=1000))]
    pub rounds: u64,

    /// Length of a turn; the run that is sampled is five times as long
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration_in(TURNS))]
    pub turn: Duration,

    /// Samples a second of all threads, about; fewer where each costs much, as in an emulated guest
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = SAMPLES_PER_SECOND, value_parser = number_in(1..=10_000))]
    pub frequency: u64,

    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
}

pub(super) fn run(args: &TriageArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let cpus = cpus(&HostFacts::read(&HostFs::default()));
    let workload =
        Workload::named(args.workload.name).ok_or_else(|| internal("a workload without a name", args.workload.name))?;
    let spec = Spec {
        workload,
        threads: threads(workload, args.threads.threads, cpus.len())?,
        rounds: args.rounds,
        turn: args.turn,
        frequency: args.frequency,
        seed: 1,
        event: None,
        sampled: vec![Variant::Workload],
    };
    let triage = Triage::prepare(spec, cpus)?;
    let then = &mut |document: &mut _| triage.sample(document);
    measure_then(triage.experiment(), &Shown::of(&args.result), invocation, then, &show::report)
        .map(|document| show::exit(&document))
}
