//! Which event rose, and by which one to sample: three rules.

use crate::counting::{Class, Event};

/// The name of switches that the program's own waiting made, by getrusage(2).
pub const VOLUNTARY: &str = "voluntary-switches";
/// The event of all switches.
const SWITCHES: &str = "context-switches";
/// An event that happens less often than this in a second of CPU time is no cause.
const OFTEN: f64 = 200.0;
/// A workload that uses less than this of one CPU waits.
const WAITS: f64 = 0.5;

/// Rates of an event, per second, by round: of threads that sleep, and of the workload. Without any it is not counted here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// The event's name.
    pub event: String,
    /// Rates while threads sleep.
    pub idle: Vec<f64>,
    /// Rates while the workload runs.
    pub busy: Vec<f64>,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the rate that the table has, too: one turn that others disturbed does not decide.
fn usual(values: &[f64]) -> f64 {
    results::stats::median(values).unwrap_or(0.0)
}

impl Rates {
    /// Returns whether every rate of the workload is above every one at rest, and their mean by half and more.
    pub fn rose(&self) -> bool {
        let highest = self.idle.iter().copied().fold(0.0, f64::max);
        let lowest = self.busy.iter().copied().fold(f64::INFINITY, f64::min);
        !self.busy.is_empty() && lowest > highest && mean(&self.busy) >= 1.5 * mean(&self.idle)
    }
}

fn find<'a>(all: &'a [Rates], name: &str) -> Option<&'a Rates> {
    all.iter().find(|rates| rates.event == name && !rates.busy.is_empty())
}

/// Chooses the event to sample by, and says why; `None` if none is counted.
pub fn choose(all: &[Rates]) -> Option<(&'static Event, String)> {
    let find = |name: &str| find(all, name);
    let clock = find("task-clock").or_else(|| find("cpu-clock"));
    // Seconds of CPU time in a second.
    let cpus = clock.map(|clock| usual(&clock.busy) / 1e9).filter(|cpus| *cpus > 0.0);
    let voluntary = find(VOLUNTARY);
    // A scheduler that shares a CPU among busy threads switches them, too: that says nothing about the program.
    let often = |event: &Event| {
        let rates = find(event.name).filter(|rates| event.class == Class::Cause && rates.rose())?;
        let own = if event.name == SWITCHES { voluntary.unwrap_or(rates) } else { rates };
        let often = (usual(&own.busy) - usual(&own.idle)) / cpus.unwrap_or(1.0);
        (often >= OFTEN).then_some((Event::named(event.name)?, often))
    };
    if let Some((event, often)) = crate::counting::ALL.iter().filter_map(often).max_by(|a, b| a.1.total_cmp(&b.1)) {
        let own = if event.name == SWITCHES && voluntary.is_some() { " by the program's own waiting" } else { "" };
        let why = format!("it rose most often of what happens to a program: {often:.0} in a second of CPU time{own}");
        return Some((event, why));
    }
    // One that another program keeps from its CPU uses little time, too, but does not wait by itself.
    let waits = voluntary.is_none_or(Rates::rose);
    if let (Some(cpus), Some(_)) = (cpus.filter(|cpus| waits && *cpus < WAITS), find(SWITCHES)) {
        let why = format!("the workload uses {cpus:.2} CPUs: it waits, and a switch is where that begins");
        return Some((Event::named(SWITCHES)?, why));
    }
    let time = ["cycles", "cpu-clock", "task-clock"].into_iter().find(|name| find(name).is_some())?;
    let why = match cpus {
        Some(cpus) if waits && voluntary.is_some() && find(SWITCHES).is_none() => format!(
            "the workload uses {cpus:.2} CPUs and waits ({VOLUNTARY} rose), but its switches cannot be sampled here"
        ),
        Some(cpus) => format!(
            "the workload uses {cpus:.2} CPUs, and nothing that it causes happens {OFTEN:.0} times in a second of CPU time: only time \
             says where it is"
        ),
        None => "no other event can be counted here".to_owned(),
    };
    Some((Event::named(time)?, why))
}

/// Returns the share of missed branches if a stand-in counts in the place of hardware events, as backend `cpu-clock` does: no
/// program misses more than half of its branches.
pub fn stand_in(all: &[Rates]) -> Option<f64> {
    let rate = |name: &str| find(all, name).map(|rates| usual(&rates.busy)).filter(|rate| *rate > 0.0);
    Some(rate("branch-misses")? / rate("branches")?).filter(|missed| *missed > 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::ALL;

    /// Lists every event as countable, at rest but for those given; negative: not countable.
    fn rates(given: &[(&str, f64)]) -> Vec<Rates> {
        let of = |event: &str| {
            let busy = given.iter().find(|(name, _)| *name == event).map_or(1.0, |(_, rate)| *rate);
            let busy = if busy < 0.0 { Vec::new() } else { vec![busy; 2] };
            Rates { event: event.to_owned(), idle: vec![1.0; 2], busy }
        };
        let voluntary = given.iter().find(|(name, _)| *name == VOLUNTARY).map(|(name, _)| *name);
        ALL.iter().map(|event| event.name).chain(voluntary).map(of).collect()
    }

    #[test]
    fn each_kind_of_workload_has_its_event() {
        let two_cpus = ("task-clock", 1.9e9);
        let spins = [two_cpus, ("context-switches", 6000.0), (VOLUNTARY, 20.0), ("cycles", 4e9)];
        let starved = [("task-clock", 2e8), ("context-switches", 900.0), (VOLUNTARY, 1.0), ("cycles", -1.0)];
        let none: Vec<_> = ALL.iter().map(|event| (event.name, -1.0)).collect();
        for (given, event) in [
            (&[two_cpus, ("context-switches", 2e5), ("page-faults", 900.0)][..], Some("context-switches")),
            (&[two_cpus, ("page-faults", 5e5), ("context-switches", 4000.0)], Some("page-faults")),
            // Switches that the program did not ask for are the scheduler's.
            (&spins, Some("cycles")),
            (&[&spins[..3], &[("cycles", -1.0)]].concat(), Some("cpu-clock")),
            (&[two_cpus, ("context-switches", 6000.0), (VOLUNTARY, 600.0)], Some("context-switches")),
            // Little CPU time: what happens in it happens often, and where nothing does, it waits.
            (&[("task-clock", 2e7), ("context-switches", 500.0)], Some("context-switches")),
            (&[("task-clock", 2e7)], Some("context-switches")),
            (&starved, Some("cpu-clock")),
            // What cannot be counted is not chosen.
            (&[two_cpus, ("context-switches", -1.0)], Some("cycles")),
            (&none, None),
        ] {
            assert_eq!(choose(&rates(given)).map(|(event, _)| event.name), event, "{given:?}");
        }
        assert!(choose(&rates(&[two_cpus, ("page-faults", 1.9e5)])).unwrap().1.contains(" 99999 in a second"));
    }

    #[test]
    fn only_rates_that_are_apart_rose() {
        let rose = |idle: &[f64], busy: &[f64]| {
            Rates { event: String::new(), idle: idle.to_vec(), busy: busy.to_vec() }.rose()
        };
        assert!(rose(&[1.0, 2.0], &[4.0, 3.5]) && rose(&[0.0], &[0.1]));
        assert!(!rose(&[1.0, 2.0], &[9.0, 1.9]) && !rose(&[10.0], &[11.0]) && !rose(&[], &[]));
    }

    #[test]
    fn a_clock_in_the_place_of_hardware_events_is_seen() {
        let with = |misses| stand_in(&rates(&[("branches", 4e8), ("branch-misses", misses)]));
        assert_eq!((with(4e8), with(1e7), with(-1.0)), (Some(1.0), None, None));
    }
}
