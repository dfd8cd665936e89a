//! `vpmu triage`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::table::layout::columns;
use results::table::wrapped;
use results::write::check_file;
use triage::child::{MOST_THREADS, this_program};
use triage::counting::{ALL, Event};
use triage::run::{Place, SAMPLES_PER_SECOND, Spec, steps};
use triage::show::text;
use triage::workloads::{WITH_BOTTLENECK, Workload};

use super::files::write_to;

use super::workload::{cpus, threads};
use crate::setting::parse::{duration_in, number_in, one_of};
use crate::setting::process::VERSION;
use crate::sys;
use crate::terminal::console::{indented, internal, print};
use crate::terminal::progress;

pub(super) const EXAMPLES: &str = "\
Examples:
  # two threads in rand(): what rose, where they wait, the fix
  vpmu triage rand --threads 2
  # where the CPU time goes in place of what causes it
  vpmu triage pagefault --event cpu-clock
  vpmu triage setup --json > setup.json

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

    /// Threads [default: as many as CPUs, two or more]
    #[arg(short, long, value_name = "N", value_parser = number_in(1..=MOST_THREADS as u64))]
    pub threads: Option<u64>,

    /// Rounds, each of five turns: idle, and both variants with and without events that count
    ///
    /// With fewer than five there is no interval, and the end is inconclusive.
    #[arg(long, value_name = "N", default_value = "10", value_parser = number_in(1..=1000))]
    pub rounds: u64,

    /// Length of a turn; the run that is sampled is five times as long
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration_in(TURNS))]
    pub turn: Duration,

    /// Sample by this event in place of the one that the counts name
    #[arg(short, long, value_name = "EVENT", value_parser = event)]
    pub event: Option<&'static Event>,

    /// Samples a second of all threads, about; fewer where each costs much, as in an emulated guest
    #[arg(short = 'F', long, value_name = "HZ", default_value = "1000", value_parser = number_in(1..=10_000))]
    pub frequency: u64,

    /// Write the account to this file, too, as JSON
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// The account as JSON on stdout in place of the text
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

fn event(name: &str) -> Result<&'static Event, String> {
    let names: Vec<&str> = ALL.iter().map(|event| event.name).collect();
    Event::named(name).ok_or_else(|| crate::setting::parse::suggestion(name, &names, ""))
}

/// Builds the place at which workloads run.
pub(super) fn place(facts: HostFacts, cpus: Vec<u32>) -> Result<Place, Error> {
    let program = this_program().map_err(|error| Error::host("cannot find this program", error.to_string(), ""))?;
    Ok(Place { program, tool: VERSION.to_owned(), cpus, facts })
}

pub(super) fn run(args: &TriageArgs) -> Result<Exit, Error> {
    let facts = HostFacts::read(&HostFs::default());
    let cpus = cpus(&facts);
    let workload =
        Workload::named(args.workload.name).ok_or_else(|| internal("a workload without a name", args.workload.name))?;
    let spec = Spec {
        workload,
        threads: threads(workload, args.threads, cpus.len())?,
        rounds: usize::try_from(args.rounds).unwrap_or(usize::MAX),
        turn: args.turn,
        event: args.event,
        frequency: u32::try_from(args.frequency).unwrap_or(SAMPLES_PER_SECOND),
        sample_apart: false,
    };
    let output = args.output.as_deref().map(check_file).transpose()?;
    let place = place(facts, cpus)?;
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let mut progress = progress::shown(!args.quiet);
    progress.begin(steps(&spec));
    let mut first = true;
    let account = triage::run::run(&spec, &place, sys::interrupted(), &mut |what| {
        if !std::mem::take(&mut first) {
            progress.step();
        }
        progress.run(what);
    });
    progress.end();
    let account = account?;
    let json = indented(&account)?;
    let saved = output.map_or(Ok(()), |target| write_to(&target, json.as_bytes()));
    let lines = || text(&account).lines().map(|line| wrapped(line, columns(), "    ") + "\n").collect();
    print(&if args.json { json } else { lines() })?;
    saved?;
    Ok(account.exit())
}
