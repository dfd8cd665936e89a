//! Which event rose, and by which one to sample.

use crate::account::{Choice, EventRow, figure};
use crate::counting::Class;

/// The row of switches that the program's own waiting made, by getrusage(2).
pub const VOLUNTARY: &str = "voluntary-switches";
/// An event that happens less often than this in a second of CPU time is no cause.
const OFTEN: f64 = 200.0;
/// A workload that uses less than this of one CPU waits.
const WAITS: f64 = 0.5;

/// The event of all switches.
const SWITCHES: &str = "context-switches";

/// Hardware events that cost a program cycles, and how many each: estimates, of the order of what processors' manuals
/// say (a mispredicted branch 15 to 20, a miss of the last cache a hundred and more).
const MISSES: [(&str, f64); 2] = [("cache-misses", 100.0), ("branch-misses", 15.0)];
/// Misses that take less than this share of the cycles are no cause.
const TAKES: f64 = 0.3;

fn row<'a>(events: &'a [EventRow], name: &str) -> Option<&'a EventRow> {
    events.iter().find(|row| row.event == name && row.not_counted.is_none())
}

/// Returns whether the rates of a workload are above those of the baseline: every one above every other, and their
/// middle by half and more.
pub fn rose(idle: &[f64], busy: &[f64]) -> bool {
    let highest = idle.iter().copied().fold(0.0, f64::max);
    let lowest = busy.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    !busy.is_empty() && lowest > highest && mean(busy) >= 1.5 * mean(idle)
}

/// Returns the share of missed branches if a stand-in counts in the place of hardware events, as backend `cpu-clock` does: no
/// program misses more than half of its branches.
pub fn stand_in(events: &[EventRow]) -> Option<f64> {
    let rate = |name: &str| row(events, name)?.workload.map(|rate| rate.per_second).filter(|rate| *rate > 0.0);
    let missed = rate("branch-misses")? / rate("branches")?;
    (missed > 0.5).then_some(missed)
}

/// Finds the misses that take most of the cycles, with the share that they take.
fn misses(events: &[EventRow]) -> Option<(&EventRow, f64, f64)> {
    if stand_in(events).is_some() {
        return None;
    }
    let rate = |row: &EventRow| row.workload.map(|rate| rate.per_second).filter(|rate| *rate > 0.0);
    let cycles = rate(row(events, "cycles")?)?;
    let takes = MISSES.iter().filter_map(|&(name, each)| {
        let row = row(events, name)?;
        Some((row, each, rate(row)? * each / cycles))
    });
    takes.filter(|(row, _, share)| row.rose && *share >= TAKES).max_by(|a, b| a.2.total_cmp(&b.2))
}

/// Chooses the event to sample by; `None` if none can be.
pub fn choose(events: &[EventRow]) -> Option<Choice> {
    let row = |name| row(events, name);
    let busy = |row: &EventRow| row.workload.map_or(0.0, |rate| rate.per_second);
    let idle = |row: &EventRow| row.idle.map_or(0.0, |rate| rate.per_second);
    // Seconds of CPU time in a second.
    let clock = row("task-clock").or_else(|| row("cpu-clock"));
    let cpus = clock.map(|row| busy(row) / 1e9).filter(|cpus| *cpus > 0.0);
    // A scheduler that shares a CPU among busy threads switches them, too: that says nothing about the program.
    let own = |row: &EventRow| match self::row(events, VOLUNTARY) {
        Some(voluntary) if row.event == SWITCHES => busy(voluntary) - idle(voluntary),
        _ => busy(row) - idle(row),
    };
    let rate = |row: &EventRow| own(row) / cpus.unwrap_or(1.0);

    let causes = events.iter().filter(|row| row.class == Class::Cause && row.rose && rate(row) >= OFTEN);
    if let Some(first) = causes.max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        let (is, was) = (figure(busy(first)), figure(idle(first)));
        let part = if first.event == SWITCHES && row(VOLUNTARY).is_some() {
            format!(", {}/s by the program's own waiting", figure(own(first)))
        } else {
            String::new()
        };
        let why = format!(
            "{is}/s against {was}/s idle{part}, one in {} of CPU time; no other event that happens to a program is as frequent",
            // At least OFTEN of them in a second.
            if rate(first) > 1e3 {
                format!("{} µs", figure(1e6 / rate(first)))
            } else {
                format!("{} ms", figure(1e3 / rate(first)))
            },
        );
        return Some(Choice { event: first.event.clone(), why });
    }
    // One that another program keeps from its CPU uses little time, too, but does not wait by itself.
    let waits = row(VOLUNTARY).is_none_or(|voluntary| voluntary.rose);
    if let (Some(cpus), Some(switches)) = (cpus.filter(|cpus| waits && *cpus < WAITS), row(SWITCHES)) {
        let why = format!("the workload uses {cpus:.2} CPUs: it waits, and a switch is where that begins");
        return Some(Choice { event: switches.event.clone(), why });
    }
    if let Some((first, each, share)) = misses(events) {
        let why = format!(
            "no event that happens to the program is frequent, and of what its CPUs count {} take most: {}/s, {} if each costs {each:.0}, which is an estimate",
            first.event,
            figure(busy(first)),
            if share <= 1.0 {
                format!("some {:.0} % of its cycles", 100.0 * share)
            } else {
                "more cycles than it has: several are under way at once".to_owned()
            },
        );
        return Some(Choice { event: first.event.clone(), why });
    }
    let clock = ["cycles", "cpu-clock", "task-clock"].into_iter().find_map(row)?;
    let why = match cpus {
        Some(cpus) if row(SWITCHES).is_none() && row(VOLUNTARY).is_some_and(|row| row.rose) => format!(
            "the workload uses {cpus:.2} CPUs; it waits often (voluntary-switches rose), but its switches cannot be sampled here"
        ),
        Some(cpus) => format!(
            "the workload uses {cpus:.2} CPUs, and no event that it causes itself (of context switches the voluntary ones) happens as often as {} times in a second of CPU time: only time says where it is",
            figure(OFTEN)
        ),
        None => "no other event can be counted here".to_owned(),
    };
    Some(Choice { event: clock.event.clone(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Rate;
    use crate::counting::{ALL, Event};

    /// Lists every event as countable, at rest but for those given.
    fn events(rates: &[(&str, f64)]) -> Vec<EventRow> {
        let rate = |per_second| Some(Rate { per_second, interval: None });
        let row = |event: &Event| {
            let given = rates.iter().find(|(name, _)| *name == event.name);
            EventRow {
                event: event.name.to_owned(),
                class: event.class,
                not_counted: None,
                user_mode_only: false,
                idle: rate(1.0),
                workload: rate(given.map_or(1.0, |(_, rate)| *rate)),
                apart: None,
                rose: given.is_some(),
            }
        };
        let mut events: Vec<EventRow> = ALL.iter().map(row).collect();
        if let Some((_, rate)) = rates.iter().find(|(name, _)| *name == VOLUNTARY) {
            let switches = events[0].clone();
            let workload = Some(Rate { per_second: *rate, interval: None });
            events.push(EventRow {
                event: VOLUNTARY.into(),
                class: Class::Detail,
                workload,
                rose: *rate > 1.0,
                ..switches
            });
        }
        events
    }

    fn without(mut events: Vec<EventRow>, name: &str) -> Vec<EventRow> {
        let row = events.iter_mut().find(|row| row.event == name).unwrap();
        (row.not_counted, row.rose, row.workload) = (Some("planted".to_owned()), false, None);
        events
    }

    fn chosen(events: &[EventRow]) -> String {
        choose(events).unwrap().event
    }

    #[test]
    fn each_kind_of_workload_has_its_event() {
        let two_cpus = ("task-clock", 1.9e9);
        assert_eq!(chosen(&events(&[two_cpus, ("context-switches", 2e5), ("page-faults", 900.0)])), "context-switches");
        assert_eq!(chosen(&events(&[two_cpus, ("page-faults", 5e5), ("context-switches", 4000.0)])), "page-faults");
        // Switches that the program did not ask for are the scheduler's.
        let spinning = events(&[two_cpus, ("context-switches", 6000.0), (VOLUNTARY, 20.0), ("cycles", 4e9)]);
        assert_eq!(chosen(&spinning), "cycles");
        assert_eq!(chosen(&without(spinning, "cycles")), "cpu-clock");
        assert_eq!(chosen(&events(&[two_cpus, ("context-switches", 6000.0), (VOLUNTARY, 600.0)])), "context-switches");
        // Little CPU time: what happens in it happens often, and where nothing does, it waits.
        assert_eq!(chosen(&events(&[("task-clock", 2e7), ("context-switches", 500.0)])), "context-switches");
        assert_eq!(chosen(&events(&[("task-clock", 2e7)])), "context-switches");
        let starved = [("task-clock", 2e8), ("context-switches", 900.0), (VOLUNTARY, 1.0)];
        assert_eq!(chosen(&without(events(&starved), "cycles")), "cpu-clock");
    }

    #[test]
    fn misses_that_take_the_cycles_are_chosen() {
        let with = |cache: f64, branch: f64| {
            let counts = [("cycles", 4e9), ("instructions", 2e9), ("branches", 4e8)];
            let misses = [("cache-misses", cache), ("branch-misses", branch)];
            events(&[&[("task-clock", 1.9e9)][..], &counts, &misses].concat())
        };
        assert_eq!(chosen(&with(2e7, 1e6)), "cache-misses");
        assert_eq!(chosen(&with(1e6, 1.5e8)), "branch-misses");
        assert_eq!(chosen(&with(1e6, 1e6)), "cycles");
        assert_eq!(chosen(&without(with(2e7, 1e6), "cycles")), "cpu-clock", "a share of what?");
        assert!(choose(&with(2e7, 1e6)).unwrap().why.contains("some 50 % of its cycles"));
        // A clock in the place of each: misses cannot be as many as branches.
        let alike = ["cycles", "instructions", "branches", "branch-misses", "cache-misses"].map(|name| (name, 1.9e9));
        let alike = events(&[&[("task-clock", 1.9e9)][..], &alike].concat());
        assert_eq!((chosen(&alike).as_str(), stand_in(&alike)), ("cycles", Some(1.0)));
        assert_eq!(stand_in(&with(2e7, 1.9e8)), None);
    }

    #[test]
    fn what_cannot_be_counted_is_not_chosen() {
        let events = events(&[("task-clock", 1e9), ("context-switches", 2e5)]);
        assert_eq!(chosen(&without(events.clone(), "context-switches")), "cycles");
        let nothing: Vec<_> = events.iter().fold(events.clone(), |events, row| without(events, &row.event));
        assert_eq!(choose(&nothing), None);
        assert!(choose(&events).unwrap().why.contains("one in 5 µs"), "{:?}", choose(&events));
    }

    #[test]
    fn only_rates_that_are_apart_rose() {
        assert!(rose(&[1.0, 2.0], &[4.0, 3.5]));
        assert!(!rose(&[1.0, 2.0], &[9.0, 1.9]) && !rose(&[10.0], &[11.0]) && !rose(&[], &[]));
        assert!(rose(&[0.0], &[0.1]));
    }
}
