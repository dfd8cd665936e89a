//! Options of `vpmu stat-setup`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse::{CpuList, duration_in, number_in};
use super::stat_setup_guest::StatSetupGuestArgs;

/// Examples that end `vpmu stat-setup --help`.
pub const EXAMPLES: &str = "\
Examples:
  vpmu stat-setup                              700 software events on every CPU, every strategy
  vpmu stat-setup --against perf               the same beside stock `perf stat -a`, shuffled, 15 rounds
  vpmu stat-setup --events '{context-switches,cpu-migrations}:W,page-faults,sched:sched_switch'
  vpmu stat-setup --events events.txt --cpus 0-3 --strategy event-major,cpu-major,auto
  vpmu stat-setup --events tracepoints:700 --strategy auto --against perf --rounds 5 --last-close
                                               tracepoints, whose last close waits tens of ms
  vpmu stat-setup --scale 100,200,400,800,1600 --strategy auto,packed
                                               growth over N, with its exponent
  vpmu stat-setup --in guest --events 20       a guest's own set-up, on its vPMU

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive, 4 the host cannot do it.";

/// Where the events are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// On this host, by perf_event_open.
    Host,
    /// Inside a guest, on its vPMU.
    Guest,
}

/// What the figures stand beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// The `perf` of $PATH.
    Perf,
}

/// How the events are used.
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
    /// Set up host events, or let a guest set up events on its vPMU
    #[arg(long = "in", value_name = "WHERE", value_enum, default_value = "host")]
    pub place: Place,

    /// The events: a number, a list as perf writes it, or a file of such lists
    ///
    /// N: that many software events, a mix. tracepoints:N: that many tracepoint events over as many distinct tracepoints as
    /// the host has, 90 at most. With --in guest only a number, 10 unless given. LIST: names, groups {a,b}:W, software, hardware, raw (r1a8), tracepoints (sched:sched_switch), sysfs PMU events
    /// (cpu/event=0x3c,umask=0/, msr/tsc/) with modifiers (:u :k :W ...). FILE: lists, one a line; # begins a comment.
    #[arg(long, value_name = "N|LIST|FILE", default_value = "700", default_value_if("place", "guest", "10"))]
    pub events: String,

    /// Seed of the order of the arms within each round
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX))]
    pub seed: u64,

    /// Folder for the results
    #[arg(short = 'o', long = "output", value_name = "DIR", default_value = "vpmu-results")]
    pub output: PathBuf,

    /// Do not write a results folder
    #[arg(long)]
    pub no_save: bool,

    /// Also write the result document to FILE, or with - or nothing to stdout, in place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,

    /// Rounds that count; every arm runs once in each, after a warm-up; 5 with --in guest
    #[arg(long, value_name = "N", default_value = "15", default_value_if("place", "guest", "5"), value_parser = number_in(1..=10_000))]
    pub rounds: u64,

    /// Options of `--in host`.
    #[command(flatten)]
    pub host: StatSetupHostArgs,

    /// Options of `--in guest`.
    #[command(flatten)]
    pub guest: StatSetupGuestArgs,
}

/// Options of `--in host`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "With --in host")]
pub struct StatSetupHostArgs {
    /// Strategies to compare: event-major, cpu-major, threads, packed, auto
    ///
    /// With --in guest: how host events are kept behind the guest's counters, presets of nmi-latency or .toml files, by default
    /// recreate,reuse,reuse-lazy,deferred,pool; the floor always comes along.
    #[arg(
        long = "strategy",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "event-major,cpu-major,threads,packed,auto",
        default_value_if("place", "guest", "recreate,reuse,reuse-lazy,deferred,pool")
    )]
    pub strategies: Vec<String>,

    /// CPUs to count on, e.g. 0-3 [default: all online]
    #[arg(long, value_name = "CPULIST")]
    pub cpus: Option<CpuList>,

    /// Open, enable, read, disable, close (stat), or open, mmap, enable, disable, munmap, close (mmap)
    #[arg(long, value_enum, default_value = "stat")]
    pub mode: Mode,

    /// How long events count between enable and read
    #[arg(long, value_name = "TIME", default_value = "0ms",
          value_parser = duration_in(Duration::ZERO..=Duration::from_secs(60)))]
    pub count: Duration,

    /// Set stock perf beside it, in the same run
    #[arg(long, value_name = "PEER", value_enum)]
    pub against: Option<Peer>,

    /// Measure growth over these numbers of events and over CPUs, too; none leaves it out [default: 100,200,400,800,1600;
    /// none for tracepoints, whose closes take seconds]
    #[arg(long, value_name = "LIST|none")]
    pub scale: Option<Scale>,

    /// Set up once, print the counts on stdout as `perf stat -x,` does, then close; nothing is compared
    #[arg(long, conflicts_with_all = ["against", "scale", "last_close", "mode"])]
    pub once: bool,

    /// Also measure how far the last close of each tracepoint can be shortened: one by one, by threads, by processes, at exit
    #[arg(long)]
    pub last_close: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales() {
        assert_eq!("1600,100".parse(), Ok(Scale(vec![100, 1600])));
        assert_eq!("none".parse(), Ok(Scale::default()));
        for bad in ["", "100", "100,100", "0,1", "a,b", "1,999999999"] {
            assert!(bad.parse::<Scale>().is_err(), "{bad}");
        }
    }
}
