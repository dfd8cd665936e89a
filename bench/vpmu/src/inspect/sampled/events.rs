//! The events that sample, and how often.

use event_list::tracepoints::Tracepoints;
use host_pmu::sampler::{Rate, SampledEvent};
use perf_data::attr::{Attr, Event};
use results::error::Error;
use vmm::sample::{self, MOST_EVENTS, Sampling};

use crate::setting::parse::most_like;

/// Shortest period of the kernel's clocks, ns.
const SHORTEST_NS: u64 = 10_000;
/// PERF_TYPE_RAW, of events that no perf has a type for. `perf script` shows no address of a dummy event.
const RAW: u32 = 4;

/// Checks that each event is there once, and that the kernel samples so often.
///
/// # Errors
/// Exit 2: it is not so.
pub fn check(events: &[sample::Event], rate: Rate) -> Result<(), Error> {
    if let Some((at, event)) = events.iter().enumerate().find(|(at, event)| events[..*at].contains(event)) {
        let first = events[..at].iter().position(|before| before == event).unwrap_or(0);
        return Err(Error::usage(
            format!("duplicate event {event}"),
            format!("it is number {} and {} of --event", first + 1, at + 1),
            "leave one out",
        ));
    }
    if events.len() > MOST_EVENTS {
        let what = format!("cannot sample by {} events at once", events.len());
        return Err(Error::usage(what, format!("a recording has {MOST_EVENTS} at the most"), "leave some out"));
    }
    match rate {
        Rate::Period(ns)
            if ns < SHORTEST_NS && events.iter().filter_map(sample::Event::host).any(SampledEvent::is_clock) =>
        {
            Err(Error::usage(
                format!("cannot sample a clock each {ns} ns"),
                format!("the kernel's clocks sample each {SHORTEST_NS} ns at the most"),
                "give a longer --count",
            ))
        }
        _ => Ok(()),
    }
}

/// The events as a recording has them; `user_only`: all samples are those of a user task, and perf misses no kernel.
///
/// # Errors
/// Exit 4: this host does not have one.
pub fn described(sampling: &Sampling, user_only: bool) -> Result<Vec<Event>, Error> {
    let event = |(at, event): (usize, &sample::Event)| {
        let host = event.host();
        let (type_, config) = match host {
            Some(host) => {
                let encoding = host.encoding();
                encoding.map_err(|why| Error::host(format!("cannot sample by {event}"), why, remedy(host)))?
            }
            None => (RAW, 0),
        };
        // perf refuses a file with a tracepoint and without its format. Its name is in the file, whatever its type.
        let type_ = if host.is_some_and(SampledEvent::is_tracepoint) { RAW } else { type_ };
        let (period, by_frequency) = event.rate(sampling.rate);
        let exclude_host = host.is_some_and(SampledEvent::is_hardware);
        let attr =
            Attr { type_, config, period, by_frequency, exclude_host, exclude_kernel: user_only, ..Attr::default() };
        Ok(Event { attr, name: event.to_string(), ids: vec![at as u64 + 1] })
    };
    sampling.events.iter().enumerate().map(event).collect()
}

/// Tells how to get an event that this host does not have.
fn remedy(event: &SampledEvent) -> String {
    let (found, name) = (Tracepoints::of_this_host(), event.to_string());
    // One that is there has another fault.
    let like = most_like(&name, found.names.iter().map(String::as_str)).filter(|like| *like != name);
    match like.filter(|_| event.is_tracepoint()) {
        Some(like) => format!("did you mean {like}?"),
        None => "give another --event; `vpmu list` has them".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_sampled_once() {
        let of = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>();
        let refused = |names: &[&str]| check(&of(names), Rate::Hertz(1)).map_err(|error| error.to_string());
        assert_eq!(refused(&["pmi", "exit", "exit:io", "cpu-clock", "task-clock"]), Ok(()));
        for (names, needle) in [
            (&["pmi", "pmi"][..], "duplicate event pmi"),
            (&["exit", "cpu-clock", "cpu-clock"], "number 2 and 3"),
            (&["kvm:kvm_exit", "kvm:kvm_exit"], "kvm:kvm_exit"),
        ] {
            let why = refused(names).unwrap_err();
            assert!(why.contains(needle) && why.lines().count() == 1, "{why}");
        }
    }

    #[test]
    fn a_clock_has_a_shortest_period() {
        let clock = ["cpu-clock".parse().unwrap()];
        assert!(
            check(&clock, Rate::Period(SHORTEST_NS - 1)).is_err() && check(&clock, Rate::Period(SHORTEST_NS)).is_ok()
        );
        assert!(check(&["pmi".parse().unwrap()], Rate::Period(1)).is_ok());
    }
}
