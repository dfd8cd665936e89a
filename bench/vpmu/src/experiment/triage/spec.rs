//! The options of `triage`.

use clap::{Args, ValueEnum};
use results::error::Error;
use triage::child::MOST_THREADS;
use triage::counting::Event;
use triage::workloads::{WITH_BOTTLENECK, Workload};

use crate::setting::options::SeedOption;
use crate::setting::parse::{number_in, one_of};

/// A kind of turn, by what runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// Threads that sleep.
    Idle,
    /// The workload.
    Workload,
    /// The workload without its bottleneck.
    Apart,
}

/// Threads of a workload.
#[derive(Clone, Copy, Debug, Args)]
pub struct ThreadsOption {
    /// Threads [default: as many as CPUs, two or more]
    #[arg(short, long, value_name = "N", value_parser = number_in(1..=MOST_THREADS as u64))]
    pub threads: Option<u64>,
}

impl ThreadsOption {
    /// Returns the threads that are asked for, or the workload's own number for so many CPUs.
    ///
    /// # Errors
    /// Exit 2 if it cannot have as many.
    pub fn of(self, workload: &Workload, cpus: usize) -> Result<usize, Error> {
        let threads = self.threads.map_or_else(|| workload.default_threads(cpus), |threads| threads as usize);
        let refuse = |why| Error::usage(format!("{} cannot have these --threads", workload.name), why, "");
        workload.check_threads(threads).map_err(refuse).map(|()| threads)
    }
}

/// Options of `vpmu triage`, apart from where the result goes.
#[derive(Clone, Debug, Args)]
pub struct Spec {
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

    /// Samples a second of all threads, about; fewer where each costs much, as in an emulated guest
    #[arg(short = 'F', long, value_name = "HZ", default_value = "1000", value_parser = number_in(1..=10_000))]
    pub frequency: u64,

    /// Seed of the order of turns.
    #[command(flatten)]
    pub seed: SeedOption,

    /// The event to sample by, in place of the one that the counts name
    #[arg(long = "sampled-by", hide = true, value_parser = |name: &str| Event::named(name).ok_or("no such event"))]
    pub event: Option<&'static Event>,

    /// What is sampled
    #[arg(long, hide = true, value_enum, value_delimiter = ',', default_value = "workload")]
    pub sampled: Vec<Variant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_the_workloads_own_number_unless_asked_for() {
        let pairs = Workload::named("context-switch").unwrap();
        let of = |threads| ThreadsOption { threads }.of(pairs, 3);
        assert_eq!((of(None), of(Some(6))), (Ok(4), Ok(6)));
        assert!(of(Some(3)).unwrap_err().to_string().contains("even"));
    }
}
