//! Which runs belong together in time, although the clocks of hosts may differ.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use crate::run::Run;
use results::stats::median;
use results::write::utc;

/// Seconds of a day.
const DAY: u64 = 86_400;
/// A clock that is further off is named, s.
const OFF: f64 = 3600.0;

/// Names of periods, whether they are repetitions, and the period of each run. Periods are repetitions where each run has one and a host
/// has no two runs of one setting in the same; else UTC days by the hosts' clocks.
pub(super) fn of(runs: &[Run]) -> (Vec<String>, bool, Vec<usize>) {
    let by_repetition = !runs.is_empty() && runs.iter().all(|run| run.labels.repetition.is_some()) && {
        let key = |run: &Run| (run.host.clone(), run.key.clone(), run.labels.variant.clone(), run.labels.repetition);
        let mut seen = std::collections::HashSet::with_capacity(runs.len());
        runs.iter().all(|run| seen.insert(key(run)))
    };
    let number = |run: &Run| match run.labels.repetition {
        Some(repetition) if by_repetition => repetition,
        _ => run.started_unix / DAY,
    };
    let all: BTreeSet<u64> = runs.iter().map(number).collect();
    let place: HashMap<u64, usize> = all.iter().enumerate().map(|(place, number)| (*number, place)).collect();
    let of_run: Vec<usize> = runs.iter().map(|run| place[&number(run)]).collect();
    let mut starts: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    // A simulation has no date.
    for (run, period) in runs.iter().zip(&of_run).filter(|(run, _)| run.started_unix > 0) {
        starts[*period].push(run.started_unix as f64);
    }
    let name = |(number, starts): (u64, Vec<f64>)| match median(&starts).map(date) {
        Some(date) if by_repetition => format!("repetition {number} ({date})"),
        Some(date) => date,
        None if by_repetition => format!("repetition {number}"),
        None => "no date".to_owned(),
    };
    (all.into_iter().zip(starts).map(name).collect(), by_repetition, of_run)
}

/// The date of a time, UTC.
#[expect(clippy::cast_sign_loss, reason = "no time is before 1970")]
fn date(unix: f64) -> String {
    utc(unix as u64).chars().take(10).collect()
}

/// A host whose clock differs from the others'.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clock {
    /// The host.
    pub host: String,
    /// Median over repetitions of its start less the median start of all hosts, s.
    pub seconds: f64,
    /// Repetitions.
    pub repetitions: usize,
}

/// Hosts that began more than an hour off the other hosts in the middle of their repetitions. Without repetitions nobody can know.
pub(super) fn clocks(runs: &[Run], by_repetition: bool) -> Vec<Clock> {
    if !by_repetition {
        return Vec::new();
    }
    let mut starts: BTreeMap<u64, BTreeMap<&str, f64>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.started_unix > 0) {
        let repetition = starts.entry(run.labels.repetition.unwrap_or(0)).or_default();
        repetition.entry(&run.host).or_insert(run.started_unix as f64);
    }
    let mut off: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    // Two hosts do not show which of them is off.
    for hosts in starts.values().filter(|hosts| hosts.len() > 2) {
        let middle = median(&hosts.values().copied().collect::<Vec<_>>()).unwrap_or(0.0);
        for (host, start) in hosts {
            off.entry(host).or_default().push(start - middle);
        }
    }
    let clock = |(host, off): (&str, Vec<f64>)| {
        let seconds = median(&off).filter(|seconds| seconds.abs() > OFF)?;
        Some(Clock { host: host.to_owned(), seconds, repetitions: off.len() })
    };
    off.into_iter().filter_map(clock).collect()
}
