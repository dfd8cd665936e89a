//! `vpmu stat-setup`.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cpu_list::CpuList;
use results::document::Status;
use results::error::{Error, Exit};
use results::table::{self, layout::columns};
use results::write::{OutputFolder, time_stamp};
use stat_setup::unit::Outcome;

use super::baseline::{Baseline, BaselineOptions};
use super::measure::Invocation;
use super::options::ResultOptions;
use crate::experiment::stat_setup::document::{Document, EventResult};
use crate::experiment::stat_setup::spec::{self, NAME, StatSetupSpec};
use crate::experiment::stat_setup::{once, run as experiment, show};
use crate::setting::parse::{duration_in, number_in};
use crate::sys;
use crate::terminal::console::{complain, internal, print};
use crate::terminal::progress;

pub(super) const EXAMPLES: &str = "\
Examples:
  # 700 software events on every CPU, every strategy
  vpmu stat-setup
  # the same beside stock `perf stat -a`, shuffled, 15 rounds
  vpmu stat-setup --against perf
  # a list as perf writes it
  vpmu stat-setup --events context-switches:u,page-faults
  vpmu stat-setup --events events.txt --cpus 0-3 \\
    --strategy event-major,cpu-major,auto
  # tracepoints, each closed in tens of ms
  vpmu stat-setup --events tracepoints:700 --strategy auto \\
    --against perf --rounds 5 --last-close
  # growth over N, with its exponent
  vpmu stat-setup --scale 100,200,400,800,1600 \\
    --strategy auto,packed

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive,
4 the host cannot do it, 70 a bug of vpmu.";

/// A peer that runs in the same rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// The `perf` of $PATH.
    Perf,
}

/// Use of the events once they are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Open, enable, read, disable, close, as `perf stat`.
    Stat,
    /// Open, mmap, enable, disable, munmap, close, as `perf bench internals evlist-open-close`.
    Mmap,
}

/// Options of `vpmu stat-setup`.
#[derive(Clone, Debug, Args)]
pub struct StatSetupArgs {
    /// Strategies to compare: event-major, cpu-major, threads, packed, auto
    #[arg(
        long = "strategy",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "event-major,cpu-major,threads,packed,auto",
        help_heading = "Comparison"
    )]
    pub strategies: Vec<String>,

    /// Also time stock perf, in the same rounds
    #[arg(long, value_name = "PEER", value_enum, help_heading = "Comparison")]
    pub against: Option<Peer>,

    /// Measure growth over these numbers of events and over CPUs, too
    ///
    /// none leaves it out [default: 100,200,400,800,1600; none for tracepoints: their closes take seconds]
    #[arg(long, value_name = "LIST|none", help_heading = "Comparison")]
    pub scale: Option<Scale>,

    /// Also measure how far the last close of each tracepoint can be shortened
    ///
    /// One by one, by threads, by processes, at exit.
    #[arg(long, help_heading = "Comparison")]
    pub last_close: bool,

    /// The events: a number, a list as perf writes it, or a file of such lists
    ///
    /// N: that many software events, a mix. tracepoints:N: that many tracepoint events over as many distinct tracepoints as the
    /// host has, 90 at most. LIST: names, groups {a,b}:W, software, hardware, raw (r1a8), tracepoints (sched:sched_switch), sysfs
    /// PMU events (cpu/event=0x3c,umask=0/, msr/tsc/) with modifiers (:u :k :W ...). FILE: lists, one a line; # begins a comment.
    #[arg(long, value_name = "N|LIST|FILE", default_value = "700", help_heading = "Events")]
    pub events: String,

    /// CPUs to count on, e.g. 0-3 [default: all online]
    #[arg(long, value_name = "CPULIST", help_heading = "Events")]
    pub cpus: Option<CpuList>,

    /// Open, enable, read, disable, close (stat), or open, mmap, enable, disable, munmap, close (mmap)
    #[arg(long, value_enum, default_value = "stat", hide_possible_values = true, help_heading = "Events")]
    pub mode: Mode,

    /// How long events count between enable and read
    #[arg(long, value_name = "TIME", default_value = "0ms", help_heading = "Events",
          value_parser = duration_in(Duration::ZERO..=Duration::from_secs(60)))]
    pub count: Duration,

    /// Set up once, print the counts on stdout as `perf stat -x,` does, then close; nothing is compared
    #[arg(long, conflicts_with_all = ["against", "scale", "last_close", "mode", "json", "save_baseline"], help_heading = "Events")]
    pub once: bool,

    /// Rounds that count; every arm runs once in each
    #[arg(long, value_name = "N", default_value = "15", value_parser = number_in(1..=10_000), help_heading = "Rounds")]
    pub rounds: u64,

    /// Rounds before those; their figures are discarded [default: 0, after two runs of each arm that check it]
    #[arg(long, value_name = "N", default_value = "0", value_parser = number_in(0..=1000), help_heading = "Rounds",
          hide_default_value = true)]
    pub warmup: u64,

    /// Bound on all rounds: they end after the one in which this time passes
    #[arg(long, value_name = "TIME", help_heading = "Rounds",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(7 * 86_400)))]
    pub duration: Option<Duration>,

    /// Seed of the order of the arms within each round
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX), help_heading = "Rounds")]
    pub seed: u64,

    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
    /// The result as a baseline.
    #[command(flatten)]
    pub baseline: BaselineOptions,
}

/// Numbers of events to measure growth over; empty: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale(pub Vec<usize>);

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let number = number_in(1..=100_000);
        let read = |part: &str| number(part.trim()).map(|n| n as usize);
        let mut sizes = text.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 2 {
            return Err("growth needs two different numbers at least, e.g. 100,1600".to_owned());
        }
        Ok(Self(sizes))
    }
}

/// Returns the experiment that the options specify.
fn spec_of(args: &StatSetupArgs) -> StatSetupSpec {
    StatSetupSpec {
        events: args.events.clone(),
        strategies: args.strategies.clone(),
        cpus: args.cpus.clone(),
        mode: match args.mode {
            Mode::Stat => spec::Mode::Stat,
            Mode::Mmap => spec::Mode::Mmap,
        },
        count: args.count,
        rounds: args.rounds,
        warmup: args.warmup,
        duration: args.duration,
        seed: args.seed,
        against_perf: args.against == Some(Peer::Perf),
        scale: args.scale.as_ref().map(|scale| scale.0.clone()),
        last_close: args.last_close,
    }
}

/// Checks the strategies' names.
pub(super) fn check_names(args: &StatSetupArgs) -> Result<(), Error> {
    spec_of(args).strategies().map(drop)
}

pub(super) fn run(args: &StatSetupArgs, invocation: Invocation) -> Result<Exit, Error> {
    let spec = spec_of(args);
    spec.strategies()?;
    if args.once {
        return run_once(&spec, args.result.quiet);
    }
    compare(&spec, &args.result, args.baseline.baseline(&args.result).as_ref(), invocation.command_line)
}

fn run_once(spec: &StatSetupSpec, quiet: bool) -> Result<Exit, Error> {
    let found = once::run_once(spec, &mut print)?;
    for warning in &found.warnings {
        complain(&format!("warning: {warning}"));
    }
    if !quiet {
        complain(&found.phases);
    }
    Ok(if found.whole { Exit::Done } else { Exit::Inconclusive })
}

fn compare(
    spec: &StatSetupSpec,
    result: &ResultOptions,
    baseline: Option<&Baseline>,
    command_line: Vec<String>,
) -> Result<Exit, Error> {
    if let Some(baseline) = baseline {
        baseline.check(NAME)?;
    }
    let mut folder = if result.no_save { None } else { Some(OutputFolder::open(&result.output)?) };
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let mut progress = progress::shown(!result.quiet);
    let document = experiment::run(spec, command_line, progress.as_mut())?;
    let json =
        serde_json::to_string_pretty(&document).map_err(|error| internal("cannot show the result", error))? + "\n";
    let mut saved = String::new();
    if let Some(folder) = &mut folder {
        let stem = format!("{}-{}", document.experiment, time_stamp(document.started_unix));
        let path = folder.write(&stem, "json", json.as_bytes())?;
        saved = format!("saved: {}\n", path.display());
    }
    if result.json {
        print(&json)?;
    } else {
        print(&(show::text(&document, columns()) + &saved))?;
    }
    for warning in table::warnings(&document.warnings) {
        complain(&format!("warning: {warning}"));
    }
    match baseline {
        Some(_) if !document.extra.agree => {
            complain("warning: no baseline is kept: the counts of the strategies differ");
        }
        Some(baseline) => baseline.keep(&document, verdict(&document))?,
        None => {}
    }
    Ok(verdict(&document))
}

/// Judges whether the document answers its question: not if it was cut short, if the strategies' counts differ, or if an event of the list
/// cannot be counted here.
fn verdict(document: &Document) -> Exit {
    let lacks = |event: &EventResult| matches!(event.outcome, Outcome::NotSupported { .. });
    let all = !document.extra.events.iter().any(lacks);
    if document.status == Status::Complete && document.extra.agree && all { Exit::Done } else { Exit::Inconclusive }
}

#[cfg(test)]
mod tests {
    use super::super::usage::parsed;
    use super::*;

    #[test]
    fn scales() {
        assert_eq!("1600,100".parse(), Ok(Scale(vec![100, 1600])));
        assert_eq!("none".parse(), Ok(Scale::default()));
        for bad in ["", "100", "100,100", "0,1", "a,b", "1,999999999"] {
            assert!(bad.parse::<Scale>().is_err(), "{bad}");
        }
    }

    #[test]
    fn defaults_of_options_are_those_of_the_specification() {
        assert_eq!(spec_of(&parsed(&[]).unwrap()), StatSetupSpec::default());
    }
}
