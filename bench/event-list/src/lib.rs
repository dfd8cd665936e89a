//! The events of a host: those that may stand behind a guest's counters and those that record a guest, with their
//! meaning, whether they open here, and the cost of creating one.
#![forbid(unsafe_code)]

pub mod guest;
pub mod tracepoints;

use std::time::Duration;

use host_pmu::backend::BackendKey;
use host_pmu::open::{self, Cost};
use host_pmu::sampler::SampledEvent;
use host_pmu::stats::ns;
use serde::Serialize;

/// Medians over a number of events, created and closed one after the other; ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Price {
    /// Events.
    pub events: usize,
    /// Time to create one after the first.
    pub create_ns: u64,
    /// Time to close one.
    pub close_ns: u64,
    /// Time to create the first, which may set something up for all.
    pub first_create_ns: u64,
}

impl Price {
    /// Summarizes the costs of these events; `None` for none.
    pub fn of(costs: &[Cost]) -> Option<Self> {
        let (first, rest) = costs.split_first()?;
        let rest = if rest.is_empty() { costs } else { rest };
        Some(Self {
            events: costs.len(),
            create_ns: median(rest.iter().map(|cost| cost.open)),
            close_ns: median(rest.iter().map(|cost| cost.close)),
            first_create_ns: ns(first.open),
        })
    }
}

/// Returns the middle one; of an even number the lower of both.
fn median(times: impl Iterator<Item = Duration>) -> u64 {
    let mut times: Vec<_> = times.map(ns).collect();
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// A backend on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backend {
    /// Its key.
    pub key: String,
    /// Event that it counts.
    pub counts: &'static str,
    /// True if its counts stand in for the event that the guest selects.
    pub stand_in: bool,
    /// Reason why its events do not open here.
    pub refused: Option<String>,
    /// Cost of creating one; none without host events.
    pub price: Option<Price>,
}

/// Events per backend whose cost is measured.
const BACKEND_TRIES: usize = 33;
/// Backends whose first or last event may take tens of milliseconds get this many tries.
const EXPENSIVE_TRIES: usize = 4;

/// Lists the backends of a host with such names, tried on the calling thread.
pub fn backends(named: impl Fn(&str) -> bool) -> Vec<Backend> {
    BackendKey::all()
        .filter(|(key, _)| named(&key.to_string()))
        .map(|(key, counts)| tried_backend(&key, counts))
        .collect()
}

/// Returns their names; nothing is tried_backend.
pub fn backend_names() -> impl Iterator<Item = String> {
    BackendKey::all().map(|(key, _)| key.to_string())
}

fn tried_backend(key: &BackendKey, counts: &'static str) -> Backend {
    let times = if key.first_open_is_expensive() { EXPENSIVE_TRIES } else { BACKEND_TRIES };
    let (refused, price) = match open::costs(key, times) {
        Ok(costs) => (None, Price::of(&costs)),
        Err(error) => (Some(error.to_string()), None),
    };
    Backend { key: key.to_string(), counts, stand_in: key.is_stand_in(), refused, price }
}

/// An event of `vpmu record -e`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordingEvent {
    /// Its name.
    pub name: String,
    /// Description of the event.
    pub about: String,
    /// Reason why it does not open here.
    pub refused: Option<String>,
    /// Cost of creating one.
    pub price: Option<Price>,
}

/// Events whose cost is measured.
const EVENT_TRIES: usize = 17;
/// Tracepoints are slow to open and close, so try fewer.
const TRACEPOINT_TRIES: usize = 3;

/// perf's spelling of the host PMU's own events.
const RAW: &str = "rHEX";

/// Lists events with such names, except tracepoints, tried on the calling thread.
pub fn recording_events(named: impl Fn(&str) -> bool) -> Vec<RecordingEvent> {
    let host = SampledEvent::named().filter(|name| named(name)).map(|name| of_host(name, describe(name), EVENT_TRIES));
    let raw = named(RAW).then(|| RecordingEvent {
        name: RAW.to_owned(),
        about: "the host PMU's own event: umask and event in hexadecimal, as perf's rNNN; in guest mode only"
            .to_owned(),
        ..of_host("r0", "", 1)
    });
    host.chain(raw).collect()
}

/// Returns their names; nothing is tried.
pub fn recording_names() -> impl Iterator<Item = &'static str> {
    SampledEvent::named().chain([RAW])
}

/// Describes a tracepoint, with its cost.
pub fn recording_tracepoint(name: &str) -> RecordingEvent {
    of_host(name, "occurrences on the vCPU's thread", TRACEPOINT_TRIES)
}

fn describe(name: &str) -> &'static str {
    match name {
        "cpu-clock" => "ns that the vCPU's thread runs, in the guest and in the host for it",
        "task-clock" => "the same by the task's clock",
        _ => "by the host's PMU, in guest mode only",
    }
}

fn of_host(name: &str, about: &str, times: usize) -> RecordingEvent {
    let costs = name.parse::<SampledEvent>().and_then(|event| event.costs(times));
    let (refused, price) = match costs {
        Ok(costs) => (None, Price::of(&costs)),
        Err(why) => (Some(why), None),
    };
    RecordingEvent { name: name.to_owned(), about: about.to_owned(), refused, price }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_apart() {
        let cost = |open, close| Cost { open: Duration::from_nanos(open), close: Duration::from_nanos(close) };
        let costs = [cost(900, 1), cost(10, 5), cost(30, 7), cost(20, 6)];
        let price = Price { events: 4, create_ns: 20, close_ns: 6, first_create_ns: 900 };
        assert_eq!(Price::of(&costs), Some(price));
        assert_eq!(Price::of(&costs[..1]).map(|price| (price.create_ns, price.first_create_ns)), Some((900, 900)));
        assert_eq!(Price::of(&[]), None);
    }

    #[test]
    fn each_backend_opens_or_says_why_not() {
        let all = backends(|_| true);
        assert_eq!(
            backend_names().collect::<Vec<_>>(),
            all.iter().map(|backend| backend.key.clone()).collect::<Vec<_>>()
        );
        assert_eq!(backends(|name| name == "none").len(), 1);
        for backend in all {
            let has_events = backend.key.parse::<BackendKey>().unwrap().has_host_events();
            let priced = backend.price.is_some();
            assert_eq!(priced, has_events && backend.refused.is_none(), "{backend:?}");
            assert!(backend.refused.is_none_or(|why| !why.is_empty()));
        }
    }

    #[test]
    fn each_name_is_one_that_record_takes() {
        let all = recording_events(|_| true);
        assert!(recording_names().eq(all.iter().map(|event| event.name.as_str())));
        for event in all {
            assert!(event.name == RAW || event.name.parse::<SampledEvent>().is_ok(), "{event:?}");
            assert!(!event.about.is_empty() && (event.refused.is_none() || event.price.is_none()), "{event:?}");
        }
        let missing = recording_tracepoint("kvm:no_such_event");
        assert!(missing.refused.is_some() && missing.price.is_none());
    }
}
