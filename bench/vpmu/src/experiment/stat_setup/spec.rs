//! The options of `stat-setup`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use cpu_list::CpuList;
use stat_setup::method::Use;

use crate::setting::parse::{duration_in, number_in, suggestion};
use results::error::Error;

/// The experiment's name in documents.
pub const NAME: &str = "stat-setup";

/// Names of the strategies.
pub const STRATEGIES: [&str; 5] = ["event-major", "cpu-major", "threads", "packed", "auto"];

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

/// Options of `vpmu stat-setup`, apart from where the result goes.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct StatSetupSpec {
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

    /// The events: numbers, a list as perf writes it, or a file of such lists
    ///
    /// N: that many software events, a mix. N,N: an experiment and a result for each number. tracepoints:N: that many tracepoint events over as many distinct tracepoints as the
    /// host has, 90 at most. LIST: names, groups {a,b}:W, software, hardware, raw (r1a8), tracepoints (sched:sched_switch), sysfs
    /// PMU events (cpu/event=0x3c,umask=0/, msr/tsc/, uncore_imc/.../ for all instances), vendor names that the installed perf knows
    /// (inst_retired.any), type and config (1:3), breakpoints (mem:0x1000:w), duration_time, with terms (cs/name='a,b'/) and modifiers
    /// (:u :k :W ...). FILE: lists, one a line; # begins a comment.
    #[arg(long, value_name = "N,..|LIST|FILE", default_value = "700", help_heading = "Events")]
    pub events: String,

    /// CPUs to count on, e.g. 0-3 [default: all online]
    #[arg(long, value_name = "CPULIST", help_heading = "Events")]
    pub cpus: Option<CpuList>,

    /// Open, enable, read, disable, close (stat), or open, mmap, enable, disable, munmap, close (mmap)
    #[arg(long, value_enum, default_value = "stat", hide_possible_values = true, help_heading = "Events")]
    pub mode: Mode,

    /// Time that events count between enable and read
    #[arg(long, value_name = "TIME", default_value = "0ms", help_heading = "Events",
          value_parser = duration_in(Duration::ZERO..=Duration::from_secs(60)))]
    pub count: Duration,

    /// Set up once, print the counts on stdout as `perf stat -x,` does, then close; nothing is compared
    #[arg(long, conflicts_with_all = ["against", "mode", "json", "save_baseline"], help_heading = "Events")]
    pub once: bool,

    /// Rounds that count; every arm runs once in each
    #[arg(long, value_name = "N", default_value = "15", value_parser = number_in(1..=10_000), help_heading = "Rounds")]
    pub rounds: u64,

    /// Rounds before those; their figures are discarded [default: 0, after two runs of each arm that check it]
    #[arg(long, value_name = "N", default_value = "0", value_parser = number_in(0..=1000), help_heading = "Rounds",
          hide_default_value = true)]
    pub warmup: u64,

    /// Bound on the rounds: they end after the one in which this time passes
    #[arg(long, value_name = "TIME", help_heading = "Rounds",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(7 * 86_400)))]
    pub duration: Option<Duration>,

    /// Seed of the order of the arms within each round
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX), help_heading = "Rounds")]
    pub seed: u64,
}

impl StatSetupSpec {
    /// Returns the strategies without duplicates, in the order given.
    ///
    /// # Errors
    /// Exit 2 for an unknown name.
    pub fn strategies(&self) -> Result<Vec<String>, Error> {
        known(&self.strategies)
    }

    /// Returns the experiments that are asked for: one for each of several numbers of events.
    pub fn each(&self) -> Vec<Self> {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let of = |events: &str| Self { events: events.to_owned(), ..self.clone() };
        let numbers = self.events.split(',').map(str::trim);
        if numbers.clone().all(is_number) { numbers.map(of).collect() } else { vec![self.clone()] }
    }

    pub(crate) fn purpose(&self) -> Use {
        if self.mode == Mode::Mmap { Use::Mmap } else { Use::Stat }
    }
}

fn known(names: &[String]) -> Result<Vec<String>, Error> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !STRATEGIES.contains(&name.as_str()) {
            return Err(Error::usage(format!("unknown strategy '{name}'"), "", suggestion(name, &STRATEGIES, "")));
        }
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_known_and_distinct() {
        let chosen = |names: &[&str]| known(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&["auto", "packed", "auto"]).unwrap(), ["auto", "packed"]);
        let error = chosen(&["auto", "pool"]).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("unknown strategy 'pool'"), "{error}");
    }
}
