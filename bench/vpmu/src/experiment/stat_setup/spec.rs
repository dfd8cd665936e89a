//! The specification of `stat-setup`.

use std::time::Duration;

use cpu_list::CpuList;

use crate::setting::parse::suggestion;
use results::error::Error;

/// The experiment's name in documents.
pub const NAME: &str = "stat-setup";

/// Names of the strategies.
pub const STRATEGIES: [&str; 5] = ["event-major", "cpu-major", "threads", "packed", "auto"];

/// Way in which the events are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Open, enable, read, disable, close, as `perf stat`.
    #[default]
    Stat,
    /// Open, mmap, enable, disable, munmap, close, as `perf bench internals evlist-open-close`.
    Mmap,
}

/// Parameters of `stat-setup`; the defaults are those of the command.
#[derive(Clone, Debug, PartialEq)]
pub struct StatSetupSpec {
    /// A number of software events, `tracepoints:N`, a list in perf's syntax, or a file of lists.
    pub events: String,
    /// Strategies to compare, of [`STRATEGIES`].
    pub strategies: Vec<String>,
    /// CPUs to count on; `None` = all online CPUs.
    pub cpus: Option<CpuList>,
    /// Way in which the events are used.
    pub mode: Mode,
    /// Time between enable and read.
    pub count: Duration,
    /// Rounds that count; every strategy runs once in each.
    pub rounds: u64,
    /// Rounds before those; their figures are discarded.
    pub warmup: u64,
    /// Bound on all rounds: they end after the one in which this time passes.
    pub duration: Option<Duration>,
    /// Seed of the order of strategies within each round.
    pub seed: u64,
    /// True if stock perf takes part in the rounds.
    pub against_perf: bool,
    /// Numbers of events to measure growth over; `None` = a default, empty = none.
    pub scale: Option<Vec<usize>>,
    /// True if ways to shorten the last close of tracepoints are measured.
    pub last_close: bool,
}

impl Default for StatSetupSpec {
    fn default() -> Self {
        Self {
            events: "700".to_owned(),
            strategies: STRATEGIES.map(str::to_owned).to_vec(),
            cpus: None,
            mode: Mode::Stat,
            count: Duration::ZERO,
            rounds: 15,
            warmup: 0,
            duration: None,
            seed: 1,
            against_perf: false,
            scale: None,
            last_close: false,
        }
    }
}

impl StatSetupSpec {
    /// Returns the strategies without duplicates, in the order given.
    ///
    /// # Errors
    /// Exit 2 for an unknown name.
    pub fn strategies(&self) -> Result<Vec<String>, Error> {
        let mut found: Vec<String> = Vec::new();
        for name in &self.strategies {
            if !STRATEGIES.contains(&name.as_str()) {
                return Err(Error::usage(format!("unknown strategy '{name}'"), "", suggestion(name, &STRATEGIES, "")));
            }
            if !found.contains(name) {
                found.push(name.clone());
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_known_and_distinct() {
        let chosen = |names: &[&str]| {
            let strategies = names.iter().map(|&name| name.to_owned()).collect();
            StatSetupSpec { strategies, ..StatSetupSpec::default() }.strategies()
        };
        assert_eq!(chosen(&["auto", "packed", "auto"]).unwrap(), ["auto", "packed"]);
        let error = chosen(&["auto", "pool"]).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("unknown strategy 'pool'"), "{error}");
    }
}
