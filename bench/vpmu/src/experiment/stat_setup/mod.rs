//! `stat-setup`: setting up N events on M CPUs of this host, by strategy and beside stock perf.

pub(crate) mod arms;
pub(crate) mod events;
pub(crate) mod peer;
pub(crate) mod show;

use clap::Args;
use clap::builder::PossibleValuesParser;
use cpu_list::CpuList;

use crate::setting::options::{DurationOption, SeedOption};
use crate::setting::parse::number_in;

/// The experiment's name in documents.
pub const NAME: &str = "stat-setup";

/// Names of the strategies.
pub const STRATEGIES: [&str; 5] = ["event-major", "cpu-major", "threads", "packed", "auto"];

/// Options of `vpmu stat-setup`, apart from where the result goes.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct StatSetupSpec {
    /// Strategies to compare
    #[arg(long = "strategy", value_name = "LIST", value_delimiter = ',', default_values = STRATEGIES, help_heading = "Comparison",
          value_parser = PossibleValuesParser::new(STRATEGIES))]
    pub strategies: Vec<String>,

    /// Also time the `perf` of $PATH, in the same rounds
    #[arg(long, value_name = "PEER", value_parser = ["perf"], help_heading = "Comparison")]
    pub against: Option<String>,

    /// The events: numbers, a list as perf writes it, or a file of such lists
    ///
    /// N: that many software events, a mix. N,N: an experiment and a result for each number. tracepoints:N: that many tracepoint events over as many distinct tracepoints as the
    /// host has, 90 at most. LIST: names, groups {a,b}:W, software, hardware, raw (r1a8), tracepoints (sched:sched_switch), sysfs
    /// PMU events (cpu/event=0x3c,umask=0/, msr/tsc/, uncore_imc/.../ for all instances), names that the installed perf knows
    /// (inst_retired.any, LLC-loads), type and config (1:3), with terms (cs/name='a,b'/) and modifiers (:u :k :W ...). FILE: lists, one
    /// a line; # begins a comment.
    #[arg(long, value_name = "N,..|LIST|FILE", default_value = "700", help_heading = "Events")]
    pub events: String,

    /// CPUs to count on, e.g. 0-3 [default: all online]
    #[arg(long, value_name = "CPULIST", help_heading = "Events")]
    pub cpus: Option<CpuList>,

    /// Measured rounds; every arm runs once in each
    #[arg(long, value_name = "N", default_value = "15", value_parser = number_in(1..=10_000), help_heading = "Rounds")]
    pub rounds: u64,

    /// Bound on the whole run.
    #[command(flatten)]
    pub duration: DurationOption,

    /// Seed of the order of the arms within each round.
    #[command(flatten)]
    pub seed: SeedOption,
}

impl StatSetupSpec {
    /// Returns the experiments that are asked for: one for each of several numbers of events.
    pub fn each(&self) -> Vec<Self> {
        let of = |events: &str| Self { events: events.to_owned(), ..self.clone() };
        let numbers = self.events.split(',').map(str::trim);
        if numbers.clone().all(events::is_number) { numbers.map(of).collect() } else { vec![self.clone()] }
    }
}
